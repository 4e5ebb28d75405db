"use strict";
// The gallery of test images: made once the rest of the page is there, filtered by kind.
(() => {
  const { data, element } = report;
  const images = data.sections.gallery;
  const list = document.getElementById("cards");
  if (!list) return;
  const cards = [];

  const swatch = (run) => document.querySelector(`[data-run="${run}"] .swatch`).cloneNode(true);

  function bar(votes, total, label) {
    const box = element("div", { class: "votes", "aria-hidden": "true" });
    for (const [name, count] of votes) {
      const part = element("i", name === label ? { class: "right" } : {});
      part.style.width = `${(100 * count) / total}%`;
      box.append(part);
    }
    return box;
  }

  function verdict([run, predict, correct, radius, votes, n], label) {
    const name = data.runs[run];
    const abstains = predict === null;
    const mark = abstains ? "" : correct ? "✓ " : "✗ ";
    const prediction = element("span", { class: correct ? "right" : "wrong" }, mark + (predict ?? "abstains"));
    const who = element("span", { title: name }, swatch(run), " ", name);
    const row = element("div", { class: "verdict" }, element("div", { class: "line" }, who, prediction));
    const total = n || votes.reduce((sum, [, count]) => sum + count, 0);
    const seen = votes.slice(0, 2).filter(([, count], k) => k === 0 || count / total >= 0.0005);
    const shares = seen.map(([c, count]) => `${c}\u00a0${((100 * count) / total).toFixed(1)}%`);
    const none = n === 0 ? "wrong in selection" : "votes not recorded";
    if (votes.length) row.append(bar(votes, total, label));
    row.append(
      element(
        "div",
        { class: "line", title: votes.map(([c, count]) => `${c}: ${count.toLocaleString("en")}`).join(", ") },
        element("small", {}, votes.length ? shares.join(", ") : none),
        element("small", {}, abstains ? "no radius" : `radius ${radius}`),
      ),
    );
    return row;
  }

  function image({ source, size, label, idx }) {
    if (!source) return element("div", { class: "blank", role: "img", "aria-label": `image ${idx}, not at hand` }, `#${idx}`);
    return element("img", { src: source, alt: `test image ${idx}, ${label}`, width: size[0], height: size[1], class: Math.max(...size) < 64 ? "pixels" : "" });
  }

  function card(item) {
    const tags = element("div", { class: "tags" }, ...item.tags.map((tag) => element("small", { "data-tag": tag }, tag)));
    const about = element("div", {}, element("h3", {}, item.label), element("small", {}, `image ${item.idx}`), tags);
    const made = element("li", { class: "card" }, element("div", { class: "head" }, image(item), about));
    made.append(...item.verdicts.map((each) => verdict(each, item.label)));
    return made;
  }

  const least = ({ verdicts }) => Math.min(...verdicts.filter((v) => v[2]).map((v) => Number(v[3])));

  function filter() {
    const wanted = document.querySelector("[name=filter]:checked").value;
    const shown = images.map((item, i) => i).filter((i) => !wanted || images[i].tags.includes(wanted));
    if (wanted === "smallest radius") shown.sort((a, b) => least(images[a]) - least(images[b]) || a - b);
    list.replaceChildren(...shown.map((i) => (cards[i] ??= card(images[i]))));
    document.getElementById("gallery-status").textContent = `${shown.length} images`;
  }

  for (const radio of document.querySelectorAll("[name=filter]")) {
    radio.checked = radio.value === ""; // browsers remember choices over a reload
    radio.addEventListener("change", filter);
  }
  // On a busy machine there may be no idle moment for long: a second is enough to wait.
  const soon = window.requestIdleCallback ? (work) => requestIdleCallback(work, { timeout: 1000 }) : setTimeout;
  soon(() => list.childElementCount || filter());
  report.onPrint((now) => now && !list.childElementCount && filter());
})();
