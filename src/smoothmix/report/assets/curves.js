"use strict";
// The curves of certified accuracy: a slider reads off all runs at one radius, checkboxes hide runs in every chart.
(() => {
  const { data, charts, colour, percent, at } = report;
  const section = data.sections.curves;
  if (!section) return;
  const { shown } = charts;
  const ROOM = 1.02; // how much longer the axis is than the longest curve
  const LABEL = 100; // pixels from one label of a largest radius to the next
  const slider = document.getElementById("radius");
  const [end, step] = [Number(slider.max), Number(slider.step)];
  const number = document.getElementById("radius-box");
  const rows = [...document.querySelectorAll("#readings tbody tr")];
  const boxes = [...document.querySelectorAll("[data-show]")];
  const all = document.getElementById("show-all");
  const curve = charts.box("curve");
  const curves = data.charts.curve.traces.map(({ axis, y }) => [data.axes[axis], y]);
  const tidy = (value) => Number(value.toFixed(9));
  let radius = 0;

  // Dotted lines where no number of equal votes could certify more. Labels stand above the curves; those that would
  // touch are one.
  function limits() {
    const places = [...new Set(section.limits.filter((limit, i) => limit && shown[i]))].sort((a, b) => a - b);
    const groups = [];
    const room = (LABEL / curve.clientWidth) * end;
    for (const place of places) {
      const last = groups.at(-1);
      if (last && place - last[0] < room) last.push(place);
      else groups.push([place]);
    }
    const up = (value) => (Math.ceil(tidy(value * 1000)) / 1000).toFixed(3); // an upper limit
    const line = { color: colour("soft"), width: 1.5, dash: "dot" };
    return {
      shapes: places.map((x) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line, layer: "below" })),
      annotations: groups.map((group) => ({
        x: group[0],
        y: 1,
        yref: "paper",
        yanchor: "bottom",
        xanchor: "center",
        showarrow: false,
        font: { size: 12, color: colour("soft") },
        text: "≤ " + [...new Set(group.map(up))].join(", "),
      })),
    };
  }

  charts.finishLayout("curve", (layout) => {
    const { shapes, annotations } = limits();
    const line = { color: colour("accent"), width: 2 };
    const marker = { type: "line", x0: radius, x1: radius, y0: 0, y1: 1, yref: "paper", line };
    layout.shapes = [marker, ...shapes];
    layout.annotations = annotations;
    layout.margin = { ...charts.margin, t: annotations.length ? 24 : charts.margin.t };
  });

  // The slider lies under the axis that it moves along: its thumb, 16 pixels wide, under the line.
  charts.onDrawn(() => {
    const { l, w } = curve._fullLayout._size;
    slider.style.marginLeft = `${l - 8}px`;
    slider.style.width = `${w / ROOM + 16}px`;
  });

  let frame = 0;
  let pause = 0;

  function read(value, from) {
    // The radius shown is the radius read: the next step up, which claims no more than the file does.
    radius = tidy(Math.min(Math.max(Math.ceil(tidy(value / step)) * step, 0), end));
    if (from !== slider) slider.value = radius;
    if (from !== number) number.value = tidy(radius);
    const shares = curves.map((each) => at(each, radius));
    // Only runs of one group were certified alike.
    const best = {};
    shares.forEach((share, i) => {
      if (shown[i]) best[section.groups[i]] = Math.max(share, best[section.groups[i]] ?? 0);
    });
    const rivals = (i) => section.groups.filter((group) => group === section.groups[i]).length;
    document.querySelector("[data-radius]").textContent = tidy(radius);
    rows.forEach((row, i) => {
      const images = section.images[i];
      row.querySelector(".value").textContent = percent(shares[i]);
      row.querySelector("small").textContent = `${Math.round(shares[i] * images).toLocaleString("en")} of ${images.toLocaleString("en")}`;
      row.querySelector(".bar").style.setProperty("--share", `${100 * shares[i]}%`);
      row.classList.toggle("best", shown[i] && rivals(i) > 1 && shares[i] > 0 && shares[i] === best[section.groups[i]]);
    });
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => Plotly.relayout(curve, { "shapes[0].x0": radius, "shapes[0].x1": radius }));
    clearTimeout(pause); // a screen reader hears the numbers once the slider rests
    pause = setTimeout(() => {
      const each = data.runs.map((name, i) => `${name} ${percent(shares[i])}`).filter((_, i) => shown[i]);
      document.getElementById("reading-status").textContent = `At radius ${tidy(radius)}: ${each.join(", ")}`;
    }, 700);
  }

  function show(which, on) {
    for (const i of which) {
      shown[i] = boxes[i].checked = on;
      for (const item of document.querySelectorAll(`[data-run="${i}"]`)) item.classList.toggle("off", !on);
    }
    all.checked = shown.every(Boolean);
    all.indeterminate = !all.checked && shown.some(Boolean);
    charts.drawAll();
    read(radius);
  }

  // After charts.js has drawn: plotly adds `on` to a box when it draws into it.
  document.addEventListener("DOMContentLoaded", () => {
    slider.addEventListener("input", () => read(Number(slider.value), slider));
    number.addEventListener("input", () => number.value !== "" && read(Number(number.value), number));
    number.addEventListener("change", () => read(number.value === "" ? radius : Number(number.value)));
    curve.on("plotly_click", ({ points }) => read(points[0].x));
    // With a search, only what it found.
    all.addEventListener("change", () => show([...data.runs.keys()].filter((i) => !rows[i].hidden), all.checked));
    const find = document.getElementById("find-run");
    find?.addEventListener("input", () => {
      const words = find.value.toLowerCase().split(/\s+/);
      rows.forEach((row, i) => (row.hidden = !words.every((word) => data.runs[i].toLowerCase().includes(word))));
    });
    for (const each of boxes) each.addEventListener("change", () => show([Number(each.dataset.show)], each.checked));
    all.checked = true; // browsers remember choices over a reload
    for (const each of boxes) each.checked = true;
    read(Number(slider.getAttribute("value")));
  });
})();
