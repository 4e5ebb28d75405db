"use strict";
// The charts, and the slider that reads off all models at one radius.
(() => {
  const { data, at, colour, percent } = report;
  const { runs } = data;
  if (!runs.length) return;
  const COLOURS = 7;
  const ROOM = 1.02; // how much longer the axis is than the longest curve
  const MARGIN = { l: 52, r: 24, t: 12, b: 48 };
  const LABEL = 100; // pixels from one label of a largest radius to the next
  // The same marks and dashes as in swatches.html.
  const MARKS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
  const DASHES = ["solid", "7px,3px", "2px,2px", "8px,3px,2px,3px", "13px,3px"];
  const shown = runs.map(() => true);
  const figures = {};
  const slider = document.getElementById("radius");
  const [end, step] = [Number(slider.max), Number(slider.step)];
  const number = document.getElementById("radius-box");
  const rows = [...document.querySelectorAll("#readings tbody tr")];
  const boxes = [...document.querySelectorAll("[data-show]")];
  const all = document.getElementById("show-all");
  const curve = document.getElementById("chart-curve");
  let radius = 0;

  // Plotly reads a little markup in its texts; a name has none.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "%\u200b{");
  const tidy = (value) => Number(value.toFixed(9));
  const steps = (to, by) => Array.from({ length: Math.round(to / by) + 1 }, (_, k) => tidy(k * by));
  const faint = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
  const every = (make) => runs.map((run, i) => [run, i]).filter(([, i]) => shown[i]).map(([run, i]) => make(run, i)).filter(Boolean);

  function trace(run, i, points) {
    const own = colour(`run-${i % COLOURS}`);
    return {
      name: plain(run.name),
      mode: "lines",
      line: { color: own, width: 2, dash: DASHES[i % DASHES.length] },
      marker: { color: own, symbol: MARKS[i % MARKS.length], size: 8, maxdisplayed: 11 },
      ...points,
    };
  }

  // A line of "share at x or beyond", read off at the same places for all runs: what hovering says is then exact.
  function falling(run, i, curve, grid) {
    const y = grid.map((x) => at(curve, x));
    const made = trace(run, i, { x: grid, y, mode: "lines+markers", hovertemplate: "%{y:.1%}" });
    made.line.shape = "vh";
    made.marker.opacity = y.map((value) => (value > 0 ? 1 : 0)); // marks along the axis would only hide one another
    return made;
  }

  function layout(x, y, more = {}) {
    const axis = {
      gridcolor: colour("grid"),
      zerolinecolor: colour("line"),
      linecolor: colour("line"),
      tickcolor: colour("line"),
      automargin: true,
      fixedrange: true,
    };
    const spike = { spikecolor: colour("soft"), spikethickness: -1, spikedash: "solid" };
    const titled = (text) => ({ title: { text, standoff: 12, font: { size: 13, color: colour("soft") } } });
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("soft") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: MARGIN,
      showlegend: false,
      dragmode: false,
      hovermode: "x unified",
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink"), size: 13 }, namelength: 32 },
      xaxis: { ...axis, ...spike, showgrid: false, showline: true, ticks: "outside", ...titled(x.text), ...x },
      yaxis: { ...axis, ...titled(y.text), ...y },
      ...more,
    };
  }

  const share = (text) => ({ text, tickformat: "~%", range: [0, 1.02], zeroline: false });

  // Where no number of equal votes could certify more. Labels stand above the curves; those that would touch are one.
  function cliffs() {
    const places = [...new Set(every((run) => run.largest))].sort((a, b) => a - b);
    const groups = [];
    const room = (LABEL / curve.clientWidth) * end;
    for (const place of places) {
      const last = groups.at(-1);
      if (last && place - last[0] < room) last.push(place);
      else groups.push([place]);
    }
    const up = (value) => (Math.ceil(tidy(value * 1000)) / 1000).toFixed(3); // a limit
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

  figures["chart-curve"] = () => {
    const { shapes, annotations } = cliffs();
    const margin = { ...MARGIN, t: annotations.length ? 24 : MARGIN.t };
    const line = { color: colour("accent"), width: 2 };
    const marker = { type: "line", x0: radius, x1: radius, y0: 0, y1: 1, yref: "paper", line };
    const x = { text: "radius (L2)", range: [0, end * ROOM], zeroline: false, unifiedhovertitle: { text: "radius %{x}" } };
    const grid = steps(end, step);
    return {
      traces: every((run, i) => falling(run, i, run.curve, grid)),
      layout: layout(x, share("certified accuracy"), { margin, shapes: [marker, ...shapes], annotations, hoverdistance: -1 }),
    };
  };

  figures["chart-tails"] = () => {
    const known = runs.filter((run) => run.tails && run.tails[0].length);
    const first = Math.min(...known.map((run) => run.tails[0][0]));
    const last = Math.max(1, ...known.map((run) => run.tails[0].at(-1)));
    const wide = document.getElementById("chart-tails").clientWidth > 480;
    const nines = steps(Math.floor(last), 1).slice(1).filter((k) => wide || k % 2);
    const ticks = first < 0.2 ? [[1, "0"]] : [];
    ticks.push([0.5, ".5"], ...nines.map((k) => [10 ** -k, "." + "9".repeat(k)]));
    const x = {
      text: "probability p<sub>A</sub> of the class under noise",
      type: "log", // of 1 - p, from right to left
      range: [0.02 * last - first, -last * 1.03],
      tickvals: ticks.map(([place]) => place),
      ticktext: ticks.map(([, text]) => text),
      tickangle: 0,
      showgrid: true,
      zeroline: false,
      unifiedhovertitle: { text: "p<sub>A</sub> at least 1 − %{x:.2~g}" },
    };
    const grid = steps(1, 1 / 300).map((part) => tidy(first + part * (last - first)));
    const lacking = grid.map((t) => 10 ** -t);
    return {
      traces: every((run, i) => run.tails && { ...falling(run, i, run.tails, grid), x: lacking }),
      layout: layout(x, share("share of images"), { hoverdistance: -1 }),
    };
  };

  figures["chart-histogram"] = () => {
    const some = every((run) => run).length <= 2;
    const bins = (run, i) => {
      const [left, y] = run.histogram;
      if (!left.length) return null;
      const width = left.length > 1 ? left[1] - left[0] : end / 20;
      const x = [-1, ...left.keys(), left.length].map((k) => tidy((left[k] ?? left[0] + k * width) + width / 2));
      const made = trace(run, i, { x, y: [0, ...y, 0], hovertemplate: "%{y:.1%}" });
      made.line.shape = "hvh";
      return some ? { ...made, fill: "tozeroy", fillcolor: faint(made.line.color, 0.1) } : made;
    };
    const x = { text: "certified radius (L2)", range: [0, end * ROOM], zeroline: false, unifiedhovertitle: { text: "radius about %{x:.3~g}" } };
    return { traces: every(bins), layout: layout(x, { text: "share of images", tickformat: "~%", rangemode: "tozero" }) };
  };

  figures["chart-scatter"] = () => {
    const bars = (values, color) => {
      if (values[1] === null || values[2] === null) return undefined;
      return { type: "data", symmetric: false, array: [values[2] - values[0]], arrayminus: [values[0] - values[1]], color, thickness: 1.5, width: 0 };
    };
    const point = (run, i) => {
      const accuracy = run.clean ?? [at(run.curve, 0), null, null];
      const made = trace(run, i, { x: [run.acr[0]], y: [accuracy[0]], mode: "markers" });
      const pale = faint(made.line.color, 0.6);
      const hovertemplate = "ACR %{x:.3f}<br>accuracy %{y:.1%}";
      return { ...made, marker: { ...made.marker, size: 12 }, error_x: bars(run.acr, pale), error_y: bars(accuracy, pale), hovertemplate };
    };
    const x = { text: "average certified radius (L2)", zeroline: false, showgrid: true };
    return { traces: every(point), layout: layout(x, { text: "certified accuracy at 0", tickformat: "~%", zeroline: false }, { hovermode: "closest" }) };
  };

  const longest = Math.max(...runs.map((run) => run.training?.epochs.length ?? 0));
  const epochs = { text: "epoch", zeroline: false, dtick: longest > 8 ? undefined : 1, unifiedhovertitle: { text: "epoch %{x}" } };
  const learned = (pick, hovertemplate, shape = "linear") =>
    every((run, i) => {
      const y = run.training && pick(run.training);
      if (!y) return null;
      const made = trace(run, i, { x: run.training.epochs, y, hovertemplate, mode: y.length > 1 ? "lines" : "markers" });
      made.line.shape = shape;
      return made;
    });
  // Left alone, plotly puts equal shares into the middle of an axis that goes beyond 0 % and 100 %.
  const withinPercent = (traces) => {
    const shares = traces.flatMap(({ y }) => y).filter((value) => value !== null);
    const [low, high] = [Math.min(1, ...shares), Math.max(0, ...shares)];
    const room = Math.max(0.05, 0.1 * (high - low));
    return { range: [Math.max(0, low - room), Math.min(1, high + room) + 0.002] };
  };
  const part = document.getElementById("loss-part");
  if (part) {
    const names = new Set(runs.flatMap((run) => Object.keys(run.training?.losses ?? {})));
    part.append(...[...names].map((name) => new Option(name, name)));
    part.addEventListener("change", () => draw("chart-loss"));
    figures["chart-loss"] = () => ({
      traces: learned(({ losses }) => losses[part.value], "%{y:.4g}"),
      layout: layout(epochs, { text: "", rangemode: "tozero" }),
    });
    figures["chart-accuracy"] = () => ({
      traces: learned(({ accuracy }) => accuracy, "%{y:.1%}"),
      layout: layout(epochs, { text: "", tickformat: "~%", ...withinPercent(learned(({ accuracy }) => accuracy)) }),
    });
    figures["chart-rate"] = () => ({
      traces: learned(({ rate }) => rate, "%{y:.3g}", "hv"),
      layout: layout(epochs, { text: "", rangemode: "tozero", tickformat: "~g" }),
    });
  }

  function draw(id) {
    const box = document.getElementById(id);
    const { traces, layout } = figures[id]();
    // Without a line, plotly makes up an axis from -1 to 6.
    if (!traces.length) for (const axis of [layout.xaxis, layout.yaxis]) axis.range ??= [0, 1];
    layout.height = box.clientHeight;
    layout.width = box.clientWidth;
    return Plotly.react(box, traces, layout, { displayModeBar: false, responsive: false });
  }

  // The slider lies under the axis that it moves along: its thumb, 16 pixels wide, under the line.
  function align() {
    const { l, w } = curve._fullLayout._size;
    slider.style.marginLeft = `${l - 8}px`;
    slider.style.width = `${w / ROOM + 16}px`;
  }

  function drawAll() {
    Object.keys(figures).filter((id) => document.getElementById(id)).forEach(draw);
    align();
  }

  // Reading off ---------------------------------------------------------------------------------------------------
  let frame = 0;
  let pause = 0;

  function read(value, from) {
    // What is said is what is read off: the next step up, which claims no more than the file does.
    radius = tidy(Math.min(Math.max(Math.ceil(tidy(value / step)) * step, 0), end));
    if (from !== slider) slider.value = radius;
    if (from !== number) number.value = tidy(radius);
    const shares = runs.map((run) => at(run.curve, radius));
    const best = Math.max(...shares.filter((_, i) => shown[i]));
    document.querySelector("[data-radius]").textContent = tidy(radius);
    rows.forEach((row, i) => {
      row.querySelector(".value").textContent = percent(shares[i]);
      row.querySelector("small").textContent = `${Math.round(shares[i] * runs[i].images).toLocaleString("en")} of ${runs[i].images.toLocaleString("en")}`;
      row.querySelector(".bar").style.setProperty("--share", `${100 * shares[i]}%`);
      row.classList.toggle("best", shown[i] && runs.length > 1 && best > 0 && shares[i] === best);
    });
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => Plotly.relayout(curve, { "shapes[0].x0": radius, "shapes[0].x1": radius }));
    clearTimeout(pause); // a screen reader hears the numbers once the slider rests
    pause = setTimeout(() => {
      const each = every((run, i) => `${run.name} ${percent(shares[i])}`).join(", ");
      document.getElementById("reading-status").textContent = `At radius ${tidy(radius)}: ${each}`;
    }, 700);
  }

  function show(which, on) {
    for (const i of which) {
      shown[i] = boxes[i].checked = on;
      for (const item of document.querySelectorAll(`[data-run="${i}"]`)) item.classList.toggle("off", !on);
    }
    all.checked = shown.every(Boolean);
    all.indeterminate = !all.checked && shown.some(Boolean);
    drawAll();
    read(radius);
  }

  function listen() {
    slider.addEventListener("input", () => read(Number(slider.value), slider));
    number.addEventListener("input", () => number.value !== "" && read(Number(number.value), number));
    number.addEventListener("change", () => read(number.value === "" ? radius : Number(number.value)));
    curve.on("plotly_click", ({ points }) => read(points[0].x));
    all.addEventListener("change", () => show(runs.keys(), all.checked));
    for (const box of boxes) box.addEventListener("change", () => show([Number(box.dataset.show)], box.checked));
    all.checked = true; // browsers remember choices over a reload
    for (const box of boxes) box.checked = true;
    let late = 0;
    window.addEventListener("resize", () => {
      clearTimeout(late);
      late = setTimeout(() => !report.isPrinting() && drawAll(), 100);
    });
    report.onTheme(drawAll);
  }

  drawAll();
  listen();
  read(Number(slider.getAttribute("value")));
})();
