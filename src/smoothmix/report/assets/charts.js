"use strict";
// Draws every chart of the page from its data: traces and a plotly layout per chart. Colours and fonts come from the
// page, and a trace that belongs to a run has that run's colour, dash and marker and is hidden with it.
report.charts = (() => {
  const { data, colour } = report;
  const COLOURS = 7;
  const NARROW = 480; // pixels
  const MARGIN = { l: 52, r: 24, t: 12, b: 48 };
  // The same markers and dashes as in swatches.html.
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
  const DASHES = ["solid", "7px,3px", "2px,2px", "8px,3px,2px,3px", "13px,3px"];
  const shown = data.runs.map(() => true);
  const finishers = {};
  const box = (id) => document.getElementById(`chart-${id}`);
  const choice = (id) => document.getElementById(`choice-${id}`);

  // Plotly reads a little markup in its texts; names have none.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "%\u200b{");
  const faint = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");

  function styled({ run, axis, y, options }) {
    const [look, dash] = data.styles[run] ?? [0, 0];
    const own = colour(run === null ? "accent" : `run-${look % COLOURS}`);
    const made = {
      name: run === null ? "" : plain(data.runs[run]),
      mode: "lines",
      ...options,
      x: data.axes[axis],
      y,
      line: { color: own, width: 2, dash: DASHES[dash % DASHES.length], ...options.line },
      marker: { color: own, symbol: MARKERS[look % MARKERS.length], size: 8, maxdisplayed: 11, ...options.marker },
    };
    // Markers along the axis would only hide one another.
    if (made.mode === "lines+markers") made.marker.opacity = y.map((value) => (value > 0 ? 1 : 0));
    for (const bar of ["error_x", "error_y"]) if (made[bar]) made[bar] = { ...made[bar], color: faint(own, 0.6) };
    if (!made.fill) return made;
    // Fills of many runs would cover one another.
    if (shown.filter(Boolean).length > 2) delete made.fill;
    else made.fillcolor = faint(own, 0.1);
    return made;
  }

  function visibleTraces(id) {
    const chosen = choice(id)?.value ?? "";
    return data.charts[id].traces.filter((trace) => trace.choice === chosen && (trace.run === null || shown[trace.run]));
  }

  function themed(given) {
    const axis = {
      gridcolor: colour("grid"),
      zerolinecolor: colour("line"),
      linecolor: colour("line"),
      tickcolor: colour("line"),
      automargin: true,
      fixedrange: true,
    };
    const xaxis = { spikecolor: colour("soft"), spikethickness: -1, spikedash: "solid", showgrid: false, showline: true, ticks: "outside" };
    const title = (text) => ({ title: { text: text ?? "", standoff: 12, font: { size: 13, color: colour("soft") } } });
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("soft") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: MARGIN,
      showlegend: false,
      dragmode: false,
      hovermode: "x unified",
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink"), size: 13 }, namelength: 32 },
      ...given,
      xaxis: { ...axis, ...xaxis, ...given.xaxis, ...title(given.xaxis?.title) },
      yaxis: { ...axis, ...given.yaxis, ...title(given.yaxis?.title) },
    };
  }

  function draw(id) {
    const { layout: given, narrow } = data.charts[id];
    const place = box(id);
    const traces = visibleTraces(id).map(styled);
    const layout = themed(place.clientWidth > NARROW ? given : { ...given, ...narrow });
    // Without a trace, plotly makes up an axis from -1 to 6.
    if (!traces.length) for (const axis of [layout.xaxis, layout.yaxis]) axis.range ??= [0, 1];
    layout.height = place.clientHeight;
    layout.width = place.clientWidth;
    finishers[id]?.(layout);
    return Plotly.react(place, traces, layout, { displayModeBar: false, responsive: false });
  }

  const drawn = [];
  function drawAll() {
    Object.keys(data.charts).forEach(draw);
    for (const act of drawn) act();
  }

  // Once all scripts have added what they need.
  document.addEventListener("DOMContentLoaded", () => {
    drawAll();
    for (const id of Object.keys(data.charts)) choice(id)?.addEventListener("change", () => draw(id));
    let late = 0;
    window.addEventListener("resize", () => {
      clearTimeout(late);
      late = setTimeout(() => !report.isPrinting() && drawAll(), 100);
    });
    report.onTheme(drawAll);
  });

  return {
    shown,
    box,
    drawAll,
    margin: MARGIN,
    finishLayout: (id, act) => (finishers[id] = act),
    onDrawn: (act) => drawn.push(act),
  };
})();
