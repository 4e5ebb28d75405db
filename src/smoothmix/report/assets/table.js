"use strict";
// Tables that sort, and commands that copy themselves.
(() => {
  const { element } = report;

  function compare(a, b, kind, sign) {
    if (a === "" || b === "") return (a === "") - (b === ""); // what is missing stays last
    return sign * (kind === "text" ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b));
  }

  function sort(table, heading, button) {
    const column = heading.cellIndex;
    const kind = button.dataset.kind;
    const first = kind === "text" ? "ascending" : "descending";
    const other = kind === "text" ? "descending" : "ascending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    for (const th of table.querySelectorAll("[aria-sort]")) th.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => row.cells[column].dataset.sort;
    // Within each block: runs of different sigmas are not ranked.
    for (const body of table.tBodies) {
      body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b), kind, sign)));
    }
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const button of table.querySelectorAll("thead button")) {
      button.addEventListener("click", () => sort(table, button.closest("th"), button));
    }
  }

  // Paper does not scroll: a wide table becomes smaller there.
  report.onPrint((now) => {
    for (const table of document.querySelectorAll(".scroll > table")) {
      table.style.zoom = now ? Math.min(1, table.parentElement.clientWidth / table.scrollWidth) : "";
    }
  });

  async function copy(pre) {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      return "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // no clipboard here: leave it selected, one key away
      return "Selected";
    }
  }

  for (const box of document.querySelectorAll(".commands")) {
    const pre = box.querySelector("pre");
    const button = element("button", { type: "button", "aria-live": "polite" }, "Copy");
    button.addEventListener("click", async () => {
      button.textContent = await copy(pre);
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    box.append(button);
  }
})();
