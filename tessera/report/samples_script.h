// The part of the dashboard's script that keeps and shows what models have made of prompts.
#pragma once

namespace tessera::report {

inline constexpr const char* kSamplesScript = R"js(
// The samples of a run by the steps of its evaluations. The newest are kept, up to a number of characters.
class SampleLog {
  static most = 8e6;
  constructor() { this.restart(); }

  restart() { Object.assign(this, {steps: new Map(), size: 0, next: 0, mark: ""}); }
  take(text) {
    let sample = null;
    try { sample = JSON.parse(text); } catch { /* left out */ }
    if (!Number.isInteger(sample?.step)) return;
    if (!this.steps.has(sample.step)) this.steps.set(sample.step, {rows: [], size: 0});
    const own = this.steps.get(sample.step);
    own.rows.push(sample);
    own.size += text.length;
    this.size += text.length;
    for (const [step, {size}] of this.steps) {
      if (this.size <= SampleLog.most || step === sample.step) break;
      this.size -= size;
      this.steps.delete(step);
    }
  }
}

// The tables are those of report/run_samples.cpp.
const longText = 1200, mostSteps = 20;
function sampleCell(name, text, note = "") {
  const shown = [String(text ?? "")], cell = make("td");
  cell.dataset.name = name;
  if (note) shown.push(make("span", {className: "note", textContent: note}));
  cell.append(...(shown[0].length < longText ? shown : [make("div", {tabIndex: 0}, ...shown)]));
  return cell;
}
function sampleTable(rows) {
  const table = make("table"), body = table.createTBody(), notes = {stop: "", length: " … cut"};
  table.createTHead().insertRow().append(
    ...["row", "prompt", "expected", "generated"].map(name => make("th", {scope: "col", textContent: name})));
  rows.forEach(({dataset, prompt, expected, generated, finish}, i) => body.insertRow().append(
    make("th", {scope: "row", textContent: i + 1 + (dataset ? " " + dataset : "")}), sampleCell("prompt", prompt),
    sampleCell("expected", expected), sampleCell("generated", generated, notes[finish ?? "stop"] ?? " " + finish)));
  return make("div", {className: "wide", tabIndex: 0}, table);
}

// Shows those of a run: the newest evaluation, whose table stays open as others follow, and earlier ones to open.
function showSamples(run) {
  const steps = [...run.samples.steps].reverse(), stride = Math.ceil(steps.length / mostSteps);
  const isShown = run.isShown && steps.length > 0;
  if (!isShown && !run.sampleRoom) return;
  run.sampleRoom ??= (() => {
    const room = make("section", {className: "samples"}, make("h2"), make("details", {open: true}, make("summary")));
    document.getElementById("samples").append(room);
    return room;
  })();
  const room = run.sampleRoom, title = "Samples of " + run.name;
  room.hidden = !isShown;
  if (room.firstChild.textContent !== title) room.firstChild.textContent = title;
  if (!isShown) return;
  const fillWith = (details, step, {rows, size}) => {
    const facts = step + " " + size;
    if (details.dataset.facts === facts) return;
    details.dataset.facts = facts;
    details.firstChild.textContent = "after step " + step;
    details.replaceChildren(details.firstChild, sampleTable(rows));
  };
  fillWith(room.children[1], ...steps[0]);
  const earlier = steps.slice(1).filter((one, i) => (i + 1) % stride === 0), wanted = new Set(earlier.map(([step]) => String(step)));
  for (const details of [...room.children].slice(2)) if (!wanted.has(details.dataset.step)) details.remove();
  earlier.forEach(([step, own], i) => {
    const there = room.children[i + 2];
    if (there?.dataset.step === String(step)) return there.open && fillWith(there, step, own);
    const details = make("details", {}, make("summary", {textContent: "after step " + step}));
    details.dataset.step = step;
    details.addEventListener("toggle", () => { if (details.open) fillWith(details, step, run.samples.steps.get(step)); });
    room.insertBefore(details, there ?? null);
  });
}
)js";

}  // namespace tessera::report
