// The part of the page's script that hears what the reader chooses and where the pointer is.
#pragma once

namespace tessera::report {

// The reader chooses by it for all charts. Without a script there is nothing to choose, and so it is hidden.
inline constexpr const char* kChoices = R"html(<form class="choices" hidden>
<label>x axis <select name="x"><option value="steps">steps</option><option value="tokens">tokens seen</option>
<option value="seconds">wall time</option></select></label>
<label>y axis <select name="y"><option value="auto">automatic</option><option value="linear">linear</option>
<option value="log">logarithmic</option></select></label>
<label>smoothing <input type="range" name="smoothing" min="0" max="0.99" step="0.01" value="0.6"><output></output></label>
<label><input type="checkbox" name="auto" checked> automatic</label>
<button type="reset">reset</button>
<span role="status"></span>
</form>
)html";

inline constexpr const char* kPageScript = R"js(
function element(kind, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

const withUnit = (name, scale) => scale.name ? name + " (" + scale.name + ")" : name;

function axesOf(chart, plan) {
  const [left, right, top, bottom] = chart.box, {xScale, yScale} = plan, found = [];
  const levels = (plan.isLog ? logTicks : ticks)(plan.low / yScale.size, plan.high / yScale.size, 5);
  for (const level of levels) {
    const y = plan.top(level * yScale.size);
    found.push(element("line", {class: "grid", x1: left, x2: right, y1: y, y2: y}));
    found.push(element("text", {class: "left", x: left - 6, y: y + 4}, written(level)));
  }
  for (const tick of ticks(plan.first / xScale.size, plan.last / xScale.size, 6)) {
    if (plan.x === "steps" && !Number.isInteger(tick)) continue;
    const x = plan.left(tick * xScale.size);
    found.push(element("line", {class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4}));
    found.push(element("text", {class: "below", x, y: bottom + 17}, written(tick)));
  }
  found.push(element("line", {class: "axis", x1: left, x2: right, y1: bottom, y2: bottom}));
  found.push(element("text", {class: "below", x: (left + right) / 2, y: bottom + 36},
    withUnit(xAxes[plan.x].name, xScale)));
  found.push(element("text", {class: "below", transform: `translate(14 ${(top + bottom) / 2}) rotate(-90)`},
    withUnit(chart.axis, yScale)));
  return found;
}

function draw(chart, choices) {
  const plan = layOut(chart, choices), drawn = axesOf(chart, plan);
  const place = points => points.map(({x, y}) => plan.left(x).toFixed(1) + "," + plan.top(y).toFixed(1)).join(" ");
  for (const line of plan.lines) {
    if (chart.isStacked) {
      const outline = place([...line.top, ...line.floor.slice().reverse()]);
      drawn.push(element("polygon", {class: line.classes, points: outline}));
      continue;
    }
    const shown = line.smoothed ?? line.raw;
    if (line.smoothed) drawn.push(element("polyline", {class: line.classes + " faint", points: place(line.raw)}));
    drawn.push(element("polyline", {class: line.classes, points: place(shown)}));
    if (shown.length > 40) continue;
    for (const {x, y} of shown) {
      drawn.push(element("circle", {class: line.classes, cx: plan.left(x), cy: plan.top(y), r: 2.5}));
    }
  }
  chart.svg.replaceChildren(...drawn);
  chart.note.textContent = plan.note.text && " " + plan.note.text;
  chart.plan = plan;
}

const nearest = (points, x) => points.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);

// Gives the value of each line that is nearest to `wanted`, as rows of text, and where they are.
function toldAt(chart, wanted) {
  const {x, lines, xScale, yScale} = chart.plan;
  const found = lines.filter(line => line.raw.length).map(line => ({line, point: nearest(line.raw, wanted)}));
  if (!found.length) return null;
  const at = nearest(found.map(({point}) => point), wanted);
  const text = y => written(y / yScale.size, 6) + (yScale.name && " " + yScale.name);
  const rows = found.map(({line, point}) => {
    const mean = line.smoothed && line.smoothed.length ? text(nearest(line.smoothed, point.x).y) + ", unsmoothed " : "";
    const step = x === "steps" && point.step === at.step ? "" : " (step " + point.step + ")";
    return {classes: "key " + line.classes, text: line.name + ": " + mean + text(point.y) + step};
  });
  const value = x === "steps" ? at.x : written(at.x / xScale.size, 6) + (xScale.name && " " + xScale.name);
  return {x: at.x, rows: [{classes: "", text: xAxes[x].name + ": " + value}, ...rows]};
}

function listen(chart) {
  const {svg} = chart, [, , top, bottom] = chart.box, told = document.createElement("div");
  told.className = "told";
  told.hidden = true;
  svg.after(told);
  const pointer = element("line", {class: "pointer", y1: top, y2: bottom});
  svg.addEventListener("pointermove", event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = toldAt(chart, chart.plan.valueAt(at.x));
    if (!found) return;
    for (const name of ["x1", "x2"]) pointer.setAttribute(name, chart.plan.left(found.x));
    svg.append(pointer);
    told.replaceChildren(...found.rows.map(row => {
      const line = document.createElement("div");
      line.className = row.classes;
      line.textContent = row.text;
      return line;
    }));
    told.hidden = false;
    const box = svg.parentElement.getBoundingClientRect();
    const isRight = event.clientX - box.left > box.width / 2;
    told.style.left = isRight ? "auto" : event.clientX - box.left + 16 + "px";
    told.style.right = isRight ? box.right - event.clientX + 16 + "px" : "auto";
    told.style.top = event.clientY - box.top + 16 + "px";
  });
  svg.addEventListener("pointerleave", () => { told.hidden = true; pointer.remove(); });
}

const runs = [...document.querySelectorAll(".run")].map(({dataset}) =>
  ({name: dataset.name, tokens: pairs(dataset.tokens), seconds: pairs(dataset.seconds)}));
const charts = [...document.querySelectorAll("figure svg")].map(readChart);
const form = document.querySelector(".choices"), {x: xChoice, y: yChoice, smoothing, auto} = form.elements;

// Says which runs do not have the x axis that is asked for.
function lackOf(x) {
  if (x === "steps") return "";
  const names = runs.filter((run, i) => !run[x].length && charts.some(chart => chart.series.some(one => one.run === i)))
    .map(run => run.name);
  return names.length ? `The metrics have no ${x === "tokens" ? "counts of tokens" : "times"} of "${names.join('", "')}". ` +
    "Charts that show them go by steps." : "";
}

function drawAll() {
  const choices = {x: xChoice.value, y: yChoice.value, keep: auto.checked ? undefined : Number(smoothing.value)};
  form.querySelector("output").textContent = auto.checked ? "" : Number(smoothing.value).toFixed(2);
  form.querySelector("[role=status]").textContent = lackOf(choices.x);
  for (const chart of charts) draw(chart, choices);
}

form.addEventListener("input", event => {
  if (event.target === smoothing) auto.checked = false;
  drawAll();
});
form.addEventListener("reset", () => setTimeout(drawAll));
form.addEventListener("submit", event => event.preventDefault());
form.hidden = !charts.length;
charts.forEach(listen);
drawAll();
)js";

}  // namespace tessera::report
