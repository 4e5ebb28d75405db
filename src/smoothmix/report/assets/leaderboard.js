"use strict";
// The filters of the leaderboard, and the marks of the best among the rows that are shown.
(() => {
  const form = document.querySelector(".choose");
  const table = document.querySelector("#runs table");
  const rows = [...table.tBodies[0].rows];
  const search = form.querySelector("[data-search]");
  const selects = [...form.querySelectorAll("[data-filter]")];
  const output = form.querySelector("output");
  const ranked = [...table.querySelectorAll("[data-ranked]")].map((heading) => heading.cellIndex);

  function matches(row) {
    const words = search.value.toLowerCase().split(/\s+/);
    const text = row.cells[0].textContent.toLowerCase();
    if (!words.every((word) => text.includes(word))) return false;
    return selects.every((select) => !select.value || row.dataset[select.dataset.filter] === select.value);
  }

  // Within each group: runs that were certified otherwise are not ranked. A tie of all marks nobody.
  function mark(shown) {
    const groups = Map.groupBy(shown.filter((row) => row.dataset.group), (row) => row.dataset.group);
    for (const members of groups.values()) {
      for (const column of ranked) {
        const values = members.map((row) => Number(row.cells[column].dataset.sort));
        const best = Math.max(...values);
        if (best <= Math.min(...values)) continue;
        members.forEach((row, at) => row.cells[column].classList.toggle("best", values[at] === best));
      }
    }
  }

  function update() {
    for (const cell of table.querySelectorAll(".best")) cell.classList.remove("best");
    for (const row of rows) row.hidden = !matches(row);
    const shown = rows.filter((row) => !row.hidden);
    output.textContent = `${shown.length} of ${rows.length} runs`;
    mark(shown);
  }

  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
