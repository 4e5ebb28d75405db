"use strict";
// The page of the service: an image is sent once, and its certificate grows with every event.

const $ = (id) => document.getElementById(id);
const canvas = $("canvas");
const pen = canvas.getContext("2d", { willReadFrequently: true });
const PEN_WIDTH = 22;
const MOST_BARS = 10;

let source = "draw";
let file = null;
let drawn = false;
let model = null;
let running = null;
let points = [];

// --- drawing -------------------------------------------------------------------------------------

function clearCanvas() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  drawn = false;
  invite();
}

function stroke(from, to) {
  pen.strokeStyle = "#fff";
  pen.lineWidth = PEN_WIDTH;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(from.x, from.y);
  pen.lineTo(to.x, to.y);
  pen.stroke();
  drawn = true;
  invite();
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  const scale = canvas.width / box.width;
  return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
}

let last = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  last = place(event);
  stroke(last, last);
});
canvas.addEventListener("pointermove", (event) => {
  if (!last) return;
  const next = place(event);
  stroke(last, next);
  last = next;
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, () => { last = null; });
}

// By keyboard: arrows move a pen that starts in the middle, and it draws while space is held.
const cursor = { x: canvas.width / 2, y: canvas.height / 2, down: false };
const STEPS = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] };
canvas.addEventListener("keydown", (event) => {
  if (event.key === " ") {
    cursor.down = true;
    event.preventDefault();
    return;
  }
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const from = { x: cursor.x, y: cursor.y };
  cursor.x = Math.min(canvas.width - 10, Math.max(10, cursor.x + step[0]));
  cursor.y = Math.min(canvas.height - 10, Math.max(10, cursor.y + step[1]));
  if (cursor.down) stroke(from, cursor);
  const where = `${Math.round(cursor.x / 2.8)} % across, ${Math.round(cursor.y / 2.8)} % down`;
  $("pen").textContent = `Pen ${where}`;
});
canvas.addEventListener("keyup", (event) => {
  if (event.key === " ") cursor.down = false;
});

// The digits of MNIST fill 20 of 28 pixels, with their centre of mass in the middle.
function centred() {
  const { width, height } = canvas;
  const data = pen.getImageData(0, 0, width, height).data;
  let [left, top, right, bottom, mass, sumX, sumY] = [width, height, 0, 0, 0, 0, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const value = data[4 * (y * width + x)];
      if (!value) continue;
      left = Math.min(left, x); right = Math.max(right, x + 1);
      top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
      mass += value; sumX += value * x; sumY += value * y;
    }
  }
  const scale = (width * 20) / 28 / Math.max(right - left, bottom - top);
  const target = document.createElement("canvas");
  target.width = width;
  target.height = height;
  const into = target.getContext("2d");
  into.fillStyle = "#000";
  into.fillRect(0, 0, width, height);
  into.setTransform(scale, 0, 0, scale, width / 2 - (scale * sumX) / mass, height / 2 - (scale * sumY) / mass);
  into.drawImage(canvas, left, top, right - left, bottom - top, left, top, right - left, bottom - top);
  return new Promise((resolve) => target.toBlob(resolve, "image/png"));
}

// --- files ---------------------------------------------------------------------------------------

function choose(chosen) {
  if (!chosen) return;
  file = chosen;
  const preview = $("preview");
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(chosen);
  preview.alt = `Preview of ${chosen.name}`;
  preview.hidden = false;
  $("drop-text").textContent = chosen.name;
  use("file");
}

$("picker").addEventListener("change", (event) => choose(event.target.files[0]));
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") choose(event.dataTransfer.files[0]);
  });
}

function use(wanted) {
  source = wanted;
  for (const name of ["draw", "file"]) {
    $(name).hidden = name !== wanted;
    $(`use-${name}`).setAttribute("aria-pressed", String(name === wanted));
  }
  invite();
}

function ready() {
  const has = source === "draw" ? drawn : file !== null;
  $("certify").disabled = running !== null || !has;
}

// What to do next, as long as there is no result in its place.
function invite() {
  ready();
  if (running !== null || !$("numbers").hidden) return;
  if (!$("certify").disabled) say("Press Certify.");
  else say(source === "draw" ? "Draw a digit to begin." : "Choose an image to begin.");
}

// --- asking --------------------------------------------------------------------------------------

async function certify() {
  points = [];
  running = new AbortController();
  $("stop").hidden = false;
  ready();
  say("Counting votes …");
  // What ended the last answer says nothing of this one.
  $("facts").textContent = "";
  $("record").hidden = true;
  let finished = false;
  try {
    const image = source === "draw" ? await centred() : file;
    const response = await fetch(`v1/certify/stream?seconds=${$("seconds").value}`, {
      method: "POST", body: image, signal: running.signal,
      headers: { "content-type": image.type || "application/octet-stream" },
    });
    if (!response.ok) throw new Error((await response.json()).error);
    for await (const [name, answer] of events(response.body)) {
      finished = name === "final";
      show(answer, finished);
    }
    if (!finished) throw new Error("The connection ended before the answer.");
  } catch (error) {
    if (error.name === "AbortError") say("Stopped. What is shown holds for the draws so far.");
    else say(error.message, true);
  }
  running = null;
  $("stop").hidden = true;
  ready();
}

// Server-sent events of a POST, which the browser's own EventSource cannot make.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const name = lines.find((line) => line.startsWith("event: ")).slice(7);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      yield [name, JSON.parse(data.join("\n"))];
    }
  }
}

// --- showing -------------------------------------------------------------------------------------

function say(text, failed = false) {
  $("verdict").textContent = text;
  $("verdict").classList.toggle("failed", failed);
  $("spoken").textContent = text;
}

const count = (number) => number.toLocaleString("en");
// Cut, not rounded: nothing shown is more than what was proved.
const cut = (value) => (Math.floor(value * 1000) / 1000).toFixed(3);

function show(answer, finished) {
  $("numbers").hidden = false;
  if (points.length === 0) reveal();
  $("verdict").classList.remove("failed");
  const name = answer.abstained ? null : answer.name;
  const after = ` after ${count(answer.draws)} draws`;
  let words = name === null ? `No class yet${after}.` : `Class ${name}${after}.`;
  if (finished && name === null) {
    words = answer.draws ? `No class holds${after}: the votes are too mixed, or too few.`
      : "The time ended before any draw: the service is busy, or the time is too short.";
  }
  $("verdict").textContent = words;
  if (finished) $("spoken").textContent = `${words} Certified radius ${cut(answer.radius)}.`;
  $("radius").textContent = cut(answer.radius);
  points.push([answer.draws, answer.radius]);
  chart();
  $("change").textContent = change(answer, name);
  bars(answer);
  $("alpha").textContent = String(answer.alpha);
  if (finished) {
    const ended = { enough: "all draws that were asked for", deadline: "the time was over" };
    $("facts").textContent = `${count(answer.draws)} draws; ended because: ${ended[answer.ended] || answer.ended}. ` +
      `The image was ${answer.image.note}.`;
    $("json").textContent = JSON.stringify(answer, null, 2);
    $("record").hidden = false;
  }
}

// On a phone the result is below the image, where nobody would see it grow.
function reveal() {
  const result = $("result");
  if (result.getBoundingClientRect().top > window.innerHeight * 0.6) result.scrollIntoView();
}

function change(answer, name) {
  if (name === null || !(answer.radius > 0)) return "";
  const next = answer.runner_up;
  const rival = next ? `The likeliest other class is ${next.name}, with ${(100 * next.share).toFixed(1)} % of the votes. `
    : "No other class got a vote. ";
  const { levels_everywhere: levels, values_switched: switched } = answer.equivalent;
  let size = `every value by up to ${levels} of 255 levels`;
  if (switched > 0) size += `, or switching any ${switched} between black and white,`;
  const beyond = next ? `To reach ${next.name} or any other class` : "To reach another class";
  return `${rival}${beyond}, the image must move by at least ${cut(answer.radius)}. Changing ${size} cannot do it.`;
}

function chart() {
  const [most] = points[points.length - 1];
  const largest = Math.max(...points.map(([, radius]) => radius)) * 1.05;
  // Up to an even number in its last digit, so that the line in the middle is a short one.
  const step = 2 * 10 ** Math.floor(Math.log10(Math.max(0.1, largest) / 2));
  const highest = step * Math.max(1, Math.ceil(largest / step));
  const line = points.map(([draws, radius]) =>
    `${(400 * draws) / Math.max(1, most)},${110 - (110 * radius) / highest}`);
  $("line").setAttribute("points", ["0,110", ...line].join(" "));
  $("axis-end").textContent = `${count(most)} draws`;
  $("axis-middle").textContent = Number((highest / 2).toPrecision(2));
}

function bars(answer) {
  const total = Math.max(1, answer.draws);
  const classes = Object.entries(answer.votes).filter(([number]) => number !== "-1");
  classes.sort((a, b) => b[1] - a[1]);
  const list = $("votes");
  list.replaceChildren(...classes.slice(0, MOST_BARS).map(([number, votes]) => {
    const item = document.createElement("li");
    if (Number(number) === answer.selected) item.className = "top-class";
    const share = (100 * votes) / total;
    item.append(label("who", nameOf(number)), bar(share),
      label("count", `${count(votes)} · ${percent(share)}`));
    return item;
  }));
}

function percent(share) {
  return share < 0.05 ? "< 0.1 %" : `${share.toFixed(1)} %`;
}

function nameOf(number) {
  return model ? model.classes[Number(number)] : number;
}

function label(kind, text) {
  const span = document.createElement("span");
  span.className = kind;
  span.textContent = text;
  return span;
}

function bar(share) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("aria-hidden", "true");
  const rect = document.createElementNS(space, "rect");
  rect.setAttribute("width", `${share}%`);
  rect.setAttribute("height", "100%");
  rect.setAttribute("rx", "3");
  svg.append(rect);
  return svg;
}

// --- start ---------------------------------------------------------------------------------------

async function begin() {
  const response = await fetch("v1/model");
  model = await response.json();
  $("model").textContent = `Network ${model.model}, noise ${model.noise} with standard deviation ${model.sigma}, ` +
    `images ${model.image[2]}×${model.image[1]}.`;
  $("alpha").textContent = String(model.alpha);
  for (const option of $("seconds").options) {
    option.hidden = option.disabled = Number(option.value) > model.limits.most_seconds;
  }
  // A drawing is white on black: networks for colour images know nothing of the kind.
  if (model.image[0] !== 1) {
    use("file");
    $("use-draw").parentElement.hidden = true;
  }
}

$("clear").addEventListener("click", clearCanvas);
$("certify").addEventListener("click", certify);
$("stop").addEventListener("click", () => running && running.abort());
$("use-draw").addEventListener("click", () => use("draw"));
$("use-file").addEventListener("click", () => use("file"));
clearCanvas();
begin().catch((error) => say(`The service does not answer (${error.message}).`, true));
