// The part of the dashboard's script that asks the server, and shows what runs there are.
#pragma once

namespace tessera::report {

inline constexpr const char* kDashboardScript = R"js(
const colors = 10, pollMs = 3000, mostShown = 10, minToSmooth = 60;
const figures = new Map();  // by their titles
let key = sessionStorage.getItem("tessera-key") || "", hasAsked = false;

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const colorOf = index => "color-" + index % colors;

async function ask(path) {
  const reply = await fetch(path, {headers: key ? {Authorization: "Bearer " + key} : {}, cache: "no-store"});
  if (reply.status === 401 && !hasAsked) {
    key = window.prompt("This server needs an API key:") ?? "";
    hasAsked = !key;
    sessionStorage.setItem("tessera-key", key);
    return ask(path);
  }
  if (!reply.ok) throw new Error((await reply.json().catch(() => null))?.error?.message ?? "the server answered " + reply.status);
  return reply;
}

// Lets `log` take the lines that have been added to a file, some pieces at most. Returns whether any have come.
async function readPieces(path, log, most) {
  let hasNew = false;
  for (let i = 0; i < most; ++i) {
    const piece = await (await ask(`${path}?after=${log.next}&mark=${log.mark}`)).json();
    if (piece.begin !== log.next) { log.restart(); hasNew = true; }
    for (const line of piece.lines.split("\n")) if (line) log.take(line);
    hasNew ||= piece.next !== log.next;
    const isLast = piece.next === log.next;
    Object.assign(log, {next: piece.next, mark: piece.mark});
    if (isLast || piece.next >= piece.size) break;
  }
  return hasNew;
}

async function poll() {
  const told = await (await ask("runs")).json(), isFirst = !runs.length;
  for (const one of told.runs) {
    const run = runs[one.id] ??= new Run(one.id);
    run.name = one.name;
    run.status = one;
  }
  if (isFirst && runs.length > mostShown) {
    const newest = [...runs].sort((a, b) => (a.status.quiet_s ?? Infinity) - (b.status.quiet_s ?? Infinity)).slice(0, mostShown);
    for (const run of runs) run.isShown = newest.includes(run);
  }
  let hasNew = isFirst, isBehind = false;
  for (const run of runs) {
    const facts = JSON.stringify([run.name, run.status.state, run.status.checkpoints, run.status.has_hung]);
    hasNew ||= facts !== run.facts;
    run.facts = facts;
    if (!run.isShown || run.status.state === "gone") continue;
    try {
      hasNew = await readPieces(`runs/${run.id}/metrics`, run, 8) || hasNew;
      if (run.status.sample_bytes !== run.samples.next) await readPieces(`runs/${run.id}/samples`, run.samples, 8);
    } catch { /* it is asked again */ }
    isBehind ||= run.next < run.status.bytes && run.status.bytes - run.next > 65536;
  }
  showRuns();
  runs.forEach(showSamples);
  if (hasNew || isBehind) showCharts();
  tell();
  return isBehind;
}

function tell() {
  const behind = runs.filter(run => run.isShown && run.status.bytes - run.next > 65536);
  const going = runs.filter(run => run.status.state === "running");
  const parts = [runs.length ? `${runs.length} ${runs.length === 1 ? "run" : "runs"}, ${going.length} running` : "no run yet"];
  for (const run of behind) parts.push(`reads ${run.name}: ${Math.round(100 * run.next / run.status.bytes)} %`);
  const broken = runs.reduce((sum, run) => sum + run.numBroken, 0);
  if (broken) parts.push(`${broken} ${broken === 1 ? "line is" : "lines are"} no record and left out`);
  sayFollowed(parts.join("; "));
  document.title = going.length === 1 ? `${going[0].status.step}/${going[0].status.steps ?? "?"} ${going[0].name}` : "Training runs";
}

// Says it only where it is new, since screen readers read it out.
function sayFollowed(text) {
  const followed = document.getElementById("followed");
  if (followed.textContent !== text) followed.textContent = text;
}

function duration(seconds) {
  const {size, name} = scaleOf("seconds", Math.max(seconds, 1));
  return written(Math.round(seconds / size * 10) / 10, 3) + " " + name;
}

const columns = [
  ["run", run => run.name],
  ["state", ({status}) => status.state + (status.state === "stale" ? ", silent for " + duration(status.quiet_s) : "")],
  ["step", ({status}) => status.step === undefined ? "" : status.step + (status.steps ? " of " + status.steps : "")],
  ["time left", ({status}) => status.seconds_left == null ? "" : duration(status.seconds_left)],
  ["epoch", run => newest(run, "epoch")],
  ["loss", run => newest(run, "loss")],
  ["evaluation", run => newest(run, "eval_loss")],
  ["tokens/s", run => newest(run, "tokens_per_s")],
  ["share of the roofline", run => newest(run, "sol")],
  ["memory per rank", run => {
    const bytes = run.lines.get("peak_device")?.newest ?? run.lines.get("peak_rss")?.newest;
    if (bytes === undefined) return "";
    const {size, name} = scaleOf("bytes", bytes);
    return written(bytes / size) + " " + name;
  }]
];
function newest(run, name) {
  const value = run.lines.get(name)?.newest;
  return value === undefined ? "" : written(value);
}

// Shows the table of runs, in which their boxes stay, so that the one with the focus keeps it.
function showRuns() {
  const table = document.getElementById("runs"), body = table.tBodies[0];
  if (!table.tHead.rows.length) {
    table.tHead.insertRow().append(...columns.map(([name]) => make("th", {scope: "col", textContent: name})));
  }
  runs.forEach((run, i) => {
    if (!body.rows[i]) {
      const box = make("input", {type: "checkbox", checked: run.isShown});
      box.onchange = () => { run.isShown = box.checked; showCharts(); showSamples(run); soon(); };
      const name = make("span", {className: "key " + colorOf(i)});
      body.insertRow().append(make("th", {scope: "row"}, make("label", {}, box, " ", name)),
        ...columns.slice(1).map(() => make("td")));
    }
    columns.forEach(([, told], j) => {
      const cell = j ? body.rows[i].cells[j] : body.rows[i].querySelector("span"), text = String(told(run));
      if (cell.textContent !== text) cell.textContent = text;
    });
    showRecipe(run);
  });
}

function showRecipe(run) {
  run.details ??= (() => {
    const text = make("pre", {tabIndex: 0}), details = make("details", {}, make("summary"), text);
    details.ontoggle = async () => {
      if (!details.open) return;
      try { text.textContent = await (await ask(`runs/${run.id}/recipe`)).text() || "The run has no recipe."; }
      catch (error) { text.textContent = error.message; }
    };
    document.getElementById("recipes").append(details);
    return details;
  })();
  run.details.firstChild.textContent = "Recipe of " + run.name;
}

// Gives a limit that nearly all values are below, if a few are far above it; as report/line_chart.cpp.
function outlierLimit(lines) {
  const all = lines.flatMap(line => line.values.map(([, value]) => value)).sort((a, b) => a - b);
  const low = all[0], usual = all[Math.floor(0.95 * (all.length - 1))] - low;
  return usual > 0 && all.at(-1) - low > 10 * usual ? low + 1.5 * usual : Infinity;
}

function newFigure(title) {
  const note = make("span", {className: "note"}), missing = make("span", {className: "missing"});
  const legend = make("div", {className: "legend"}), svg = element("svg", {viewBox: "0 0 560 276"});
  svg.setAttribute("aria-label", title);
  const figure = make("figure", {}, make("figcaption", {}, title, note, missing), legend, svg);
  const chart = {svg, note, missing, legend, figure, box: [76, 540, 10, 232], series: []};
  document.querySelector(".charts").append(figure);
  listen(chart);
  return chart;
}

function fill(chart, wanted) {
  const {axis, unit, isLog = false, isStacked = false} = wanted, lines = wanted.series.map(one => one.line);
  const limit = wanted.cuts ? outlierLimit(lines) : Infinity;
  const highest = limit < Infinity ? Math.max(...lines.flatMap(line => line.parts.map(({high}) => high[1]))) : 0;
  const cutNote = limit < Infinity ? `(cut above; the highest is ${written(highest)})` : "";
  const missing = lines.reduce((sum, line) => sum + line.missing, 0);
  chart.missing.textContent = missing ? ` (${missing} ${missing === 1 ? "value that is" : "values that are"} not finite left out)` : "";
  const series = wanted.series.map(({name, run, color, isNoisy = false, isDashed = false, line}) => ({
    name, run, classes: colorOf(color) + (isDashed ? " dashed" : "") + (isStacked ? " area" : ""),
    isNoisy: isNoisy && line.count >= minToSmooth, values: isStacked ? line.means : line.values, means: line.means}));
  Object.assign(chart, {axis, unit, isLog, isStacked, limit, cutNote, series});
  chart.legend.replaceChildren(...(wanted.hasLegend ? series : []).map(one =>
    make("span", {className: "key " + one.classes, textContent: one.name})));
}

function showCharts() {
  const wanted = chartsOf(runs), titles = new Set(wanted.map(one => one.title)), room = document.querySelector(".charts");
  for (const [title, chart] of figures) {
    if (titles.has(title)) continue;
    chart.figure.remove();
    figures.delete(title);
  }
  charts = wanted.map((one, i) => {
    if (!figures.has(one.title)) figures.set(one.title, newFigure(one.title));
    const chart = figures.get(one.title);
    if (room.children[i] !== chart.figure) room.insertBefore(chart.figure, room.children[i] ?? null);
    fill(chart, one);
    return chart;
  });
  drawAll();
  showMarks();
}

function showMarks() {
  const details = document.getElementById("marks"), table = details.querySelector("table");
  const all = runs.filter(run => run.isShown).flatMap(run => run.marks.map(mark => [run.name, mark.step, mark.text]));
  details.hidden = !all.length;
  details.firstChild.textContent = `Checkpoints and warnings (${all.length})`;
  if (!table.tHead.rows.length)
    table.tHead.insertRow().append(...["run", "step", ""].map(name => make("th", {scope: "col", textContent: name})));
  table.tBodies[0].replaceChildren(...all.map(([name, step, text]) =>
    make("tr", {}, make("th", {scope: "row", textContent: name}), make("td", {textContent: step}), make("td", {textContent: text}))));
}

let timer = 0, isPolling = false;
async function follow() {
  clearTimeout(timer);
  if (isPolling) return;
  isPolling = true;
  let isBehind = false;
  try { isBehind = await poll(); }
  catch (error) { sayFollowed("the server does not answer, which is tried again: " + error.message); }
  isPolling = false;
  timer = setTimeout(follow, isBehind ? 0 : pollMs);
}
const soon = () => { if (!isPolling) follow(); };
follow();
)js";

}  // namespace tessera::report
