// The part of a page's script that draws charts, hears what the reader chooses, and tells values.
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

// Gives the marks of the chart's runs that lie in its range, with their places, without those that would lie on
// each other.
function marksOf(chart, plan) {
  const found = [];
  for (const run of new Set(chart.series.map(one => one.run))) {
    const clock = runs[run][plan.x], end = {};
    for (const mark of runs[run].marks ?? []) {
      const x = clock ? clockAt(clock, mark.step) : mark.step, left = plan.left(x);
      if (x < plan.first || x > plan.last || Math.abs(left - (end[mark.kind] ?? -9)) < 6) continue;
      end[mark.kind] = left;
      found.push({...mark, run, left});
    }
  }
  return found;
}

function drawnMark(mark, [, , top, bottom]) {
  const color = "color-" + mark.run % 10, x = mark.left.toFixed(1);
  if (mark.kind === "warning") return element("path", {class: color + " warning", d: `M${x} ${top}V${bottom}`});
  return element("path", {class: color + " checkpoint", d: `M${x} ${bottom - 8}l4 8h-8z`});
}

function draw(chart, choices) {
  const plan = layOut(chart, choices), drawn = axesOf(chart, plan);
  plan.marks = marksOf(chart, plan);
  drawn.push(...plan.marks.map(mark => drawnMark(mark, chart.box)));
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
  if (chart.table?.open) fillTable(chart);
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
  const marks = chart.plan.marks.filter(mark => Math.abs(mark.left - chart.plan.left(at.x)) < 5).map(mark =>
    ({classes: "", text: (runs.length > 1 ? runs[mark.run].name + ", " : "") + "step " + mark.step + ": " + mark.text}));
  return {x: at.x, rows: [{classes: "", text: xAxes[x].name + ": " + value}, ...rows, ...marks]};
}

function cellOf(kind, text, scope) {
  const cell = document.createElement(kind);
  cell.textContent = text;
  if (scope) cell.scope = scope;
  return cell;
}

// Fills the table under a chart with its values, or with means if these are what smoothing would be applied to;
// with about 100 rows at equal distances.
function fillTable(chart) {
  const {yScale} = chart.plan, most = 100, rows = new Map();
  chart.series.forEach((one, i) => one.means.forEach(([step, y]) => {
    if (!rows.has(step)) rows.set(step, chart.series.map(() => ""));
    rows.get(step)[i] = written(y / yScale.size, 6);
  }));
  const steps = [...rows.keys()].sort((a, b) => a - b), stride = Math.ceil(steps.length / most);
  // Evaluations, which are few, are not to fall through.
  const few = new Set(chart.series.filter(one => one.means.length <= most / 2).flatMap(one => one.means.map(([step]) => step)));
  const kept = steps.filter((step, i) => (steps.length - 1 - i) % stride === 0 || few.has(step));
  const unit = yScale.name && " (" + yScale.name + ")";
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(cellOf("th", "step", "col"), ...chart.series.map(one => cellOf("th", one.name + unit, "col")));
  for (const step of kept) {
    body.insertRow().append(cellOf("th", step, "row"), ...rows.get(step).map(text => cellOf("td", text)));
  }
  chart.table.querySelector(".wide").replaceChildren(table);
}

function addTable(chart, figure) {
  const summary = document.createElement("summary"), wide = document.createElement("div");
  summary.textContent = "values";
  wide.className = "wide";
  wide.tabIndex = 0;
  chart.table = document.createElement("details");
  chart.table.className = "values";
  chart.table.append(summary, wide);
  chart.table.addEventListener("toggle", () => chart.table.open ? fillTable(chart) : wide.replaceChildren());
  figure.append(chart.table);
}

// Gives the x of the point that a key leads to from `at`; null for a key that leads nowhere.
function pointAfter(chart, key, at) {
  const all = chart.plan.lines.flatMap(line => line.raw.map(point => point.x));
  const xs = [...new Set(all)].sort((a, b) => a - b), last = xs.length - 1;
  const now = at === null ? last + 1 : xs.findIndex(x => x >= at);
  const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity}[key];
  if (by === undefined || last < 0) return null;
  return xs[Math.max(0, Math.min(last, (now < 0 ? last : now) + by))];
}

// Tells the values at a place of a chart that the pointer or the arrow keys choose, and adds its table.
function listen(chart) {
  const {svg} = chart, [, , top, bottom] = chart.box, told = document.createElement("div");
  const pointer = element("line", {class: "pointer", y1: top, y2: bottom});
  let at = null;
  told.className = "told";
  told.hidden = true;
  told.setAttribute("role", "status");
  svg.after(told);
  svg.tabIndex = 0;
  svg.setAttribute("role", "application");
  svg.setAttribute("aria-roledescription", "chart");
  svg.setAttribute("aria-description", "Arrow keys, Page Up, Page Down, Home and End tell values; Escape ends that.");
  const hide = () => { told.hidden = true; pointer.remove(); at = null; };
  const tell = (wanted, height) => {
    const found = toldAt(chart, wanted);
    if (!found) return;
    at = found.x;
    const left = chart.plan.left(at);
    for (const name of ["x1", "x2"]) pointer.setAttribute(name, left);
    svg.append(pointer);
    told.replaceChildren(...found.rows.map(row => {
      const line = document.createElement("div");
      line.className = row.classes;
      line.textContent = row.text;
      return line;
    }));
    told.hidden = false;
    const box = svg.parentElement.getBoundingClientRect(), own = svg.getBoundingClientRect();
    const place = own.left - box.left + left / svg.viewBox.baseVal.width * own.width;
    // Beside the place there is room only in a wide chart; in a narrow one the values stand below it.
    const isNarrow = box.width < 480, isRight = !isNarrow && place > box.width / 2;
    told.style.left = isRight ? "auto" : (isNarrow ? 0 : place + 12) + "px";
    told.style.right = isRight ? box.width - place + 12 + "px" : "auto";
    told.style.maxWidth = (isNarrow ? box.width : isRight ? place : box.width - place) - 16 + "px";
    told.style.top = own.top - box.top + (isNarrow ? own.height : height) + "px";
  };
  svg.addEventListener("pointermove", event => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    tell(chart.plan.valueAt(point.x), event.clientY - svg.getBoundingClientRect().top + 16);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", event => {
    if (event.key === "Escape") return hide();
    const x = pointAfter(chart, event.key, at);
    if (x === null) return;
    event.preventDefault();
    tell(x, 16);
  });
  addTable(chart, svg.parentElement);
}

let runs = [], charts = [];  // set by the script that follows
const form = document.querySelector(".choices"), {x: xChoice, y: yChoice, smoothing, auto} = form.elements;

// Says which runs do not have the x axis that is asked for.
function lackOf(x) {
  if (x === "steps") return "";
  const names = runs.filter((run, i) => !run[x].length && charts.some(chart => chart.series.some(one => one.run === i)))
    .map(run => run.name);
  return names.length ? `The metrics have no ${x === "tokens" ? "counts of tokens" : "times"} of "${names.join('", "')}". ` +
    "Charts that show them go by steps." : "";
}

// Says what the smoothing does: a value counts `keep` times as much as the next one.
function smoothingOf(keep) {
  if (keep === undefined) return "noisy lines: half of a mean's weight lies on a fiftieth of the line";
  if (keep === 0) return "0: each line as it was measured";
  return `${keep.toFixed(2)}: half of a mean's weight lies on the last ${written(Math.log(0.5) / Math.log(keep), 2)} points`;
}

function drawAll() {
  const choices = {x: xChoice.value, y: yChoice.value, keep: auto.checked ? undefined : Number(smoothing.value)};
  form.querySelector("output").textContent = smoothingOf(choices.keep);
  form.querySelector("[role=status]").textContent = lackOf(choices.x);
  form.hidden = !charts.length;
  for (const chart of charts) draw(chart, choices);
}

form.addEventListener("input", event => {
  if (event.target === smoothing) auto.checked = false;
  drawAll();
});
form.addEventListener("reset", () => setTimeout(drawAll));
form.addEventListener("submit", event => event.preventDefault());
)js";

// The end of the script of a page that holds its charts.
inline constexpr const char* kReportScript = R"js(
runs = [...document.querySelectorAll(".run")].map(({dataset}) =>
  ({name: dataset.name, tokens: pairs(dataset.tokens), seconds: pairs(dataset.seconds), marks: JSON.parse(dataset.marks)}));
charts = [...document.querySelectorAll("figure svg")].map(readChart);
charts.forEach(listen);
drawAll();
)js";

}  // namespace tessera::report
