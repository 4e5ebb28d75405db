"use strict";
// What the other scripts share: the data, small helpers, and events for a change of colours or of the medium.
const report = (() => {
  document.documentElement.classList.add("js");
  const data = JSON.parse(document.getElementById("data").textContent);
  const themed = [];
  const printed = [];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  let printing = false;

  // Text goes in as text: nothing that a file is called can become markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  // A curve's y is the share at x or beyond: between two points the next one holds, after the last none.
  function at([x, y], r) {
    let low = 0;
    let high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] >= r) high = middle;
      else low = middle + 1;
    }
    return low < x.length ? y[low] : 0;
  }

  function setPrinting(now) {
    if (now === printing) return;
    printing = now;
    document.documentElement.classList.toggle("printing", now);
    // What is folded because there are many models would fill a hundred sheets.
    const closed = now ? "details:not([open]):not(.many)" : "details[data-closed]";
    for (const details of document.querySelectorAll(closed)) {
      details.open = now;
      details.toggleAttribute("data-closed", now);
    }
    for (const act of printed) act(now);
    for (const act of themed) act();
  }

  dark.addEventListener("change", () => themed.forEach((act) => act()));
  paper.addEventListener("change", () => setPrinting(paper.matches));
  window.addEventListener("beforeprint", () => setPrinting(true));
  window.addEventListener("afterprint", () => setPrinting(false));

  return {
    data,
    element,
    colour,
    at,
    percent: (share) => (share === null ? "–" : (100 * share).toFixed(1) + "%"),
    onTheme: (act) => themed.push(act),
    onPrint: (act) => printed.push(act),
    isPrinting: () => printing,
  };
})();
