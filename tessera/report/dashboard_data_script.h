// The part of the dashboard's script that keeps what runs have measured, in bounded memory.
#pragma once

namespace tessera::report {

inline constexpr const char* kDashboardDataScript = R"js(
// A line of any number of points, of which at most `most` stretches are kept: the lowest and the highest point of
// each, the last one, and the sum.
class Line {
  static most = 1200;
  constructor() { Object.assign(this, {parts: [], width: 1, count: 0, missing: 0}); }

  add(step, value) {
    const point = [step, value], part = {low: point, high: point, last: point, sum: value, count: 1};
    ++this.count;
    if (this.parts.length && this.parts.at(-1).count < this.width) Line.join(this.parts.at(-1), part);
    else this.parts.push(part);
    if (this.parts.length <= Line.most) return;
    this.width *= 2;
    this.parts = this.parts.filter((part, i) => i % 2 === 0 ? (Line.join(part, this.parts[i + 1]), true) : false);
  }
  static join(part, next) {
    if (!next) return;
    if (next.low[1] < part.low[1]) part.low = next.low;
    if (next.high[1] > part.high[1]) part.high = next.high;
    part.last = next.last;
    part.sum += next.sum;
    part.count += next.count;
  }
  // Gives a line of zeros of the same stretches.
  zeros() {
    const line = new Line();
    Object.assign(line, {width: this.width, count: this.count});
    line.parts = this.parts.map(({last, count}) => {
      const point = [last[0], 0];
      return {low: point, high: point, last: point, sum: 0, count};
    });
    return line;
  }
  get lasts() { return this.parts.map(part => part.last); }
  get means() { return this.parts.map(part => [part.last[0], part.sum / part.count]); }
  get values() {
    if (this.width === 1) return this.lasts;
    return this.parts.flatMap(({low, high}) => low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]);
  }
  get newest() { return this.parts.at(-1)?.last[1]; }
}

// Collects the numbers of a line of metrics under joined names, and the names of those that are null.
function numbersOf(value, name, found, missing) {
  if (value === null) missing.push(name);
  else if (typeof value === "number") found.set(name, value);
  else if (typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) numbersOf(inner, name ? name + "/" + key : key, found, missing);
  }
}

class Run {
  constructor(id) {
    Object.assign(this, {id, name: "", status: {}, isShown: true, recipe: null, samples: new SampleLog()});
    this.restart();
  }

  restart() {
    Object.assign(this, {lines: new Map(), sections: new Map(), clockTokens: new Line(), clockSeconds: new Line(),
      stalls: 0, elapsed: 0, before: 0, slowRank: -1, warnings: [], numBroken: 0, next: 0, mark: "", recipe: null});
    this.samples.restart();
  }
  line(name) {
    if (!this.lines.has(name)) this.lines.set(name, new Line());
    return this.lines.get(name);
  }
  take(text) {
    let record = null;
    try { record = JSON.parse(text); } catch { /* counted below */ }
    if (!record || typeof record !== "object" || !Number.isInteger(record.step)) { ++this.numBroken; return; }
    const found = new Map(), missing = [], {step} = record;
    numbersOf(record, "", found, missing);
    found.delete("step");
    for (const [name, value] of found) this.line(name).add(step, value);
    for (const name of missing) ++this.line(name).missing;
    if ([...found.keys(), ...missing].some(name => name === "eval_loss" || name.startsWith("eval/"))) return;
    this.warn(step, found, missing);
    this.tick(step, found);
    this.divide(step, found);
    this.before = step;
  }
  // The warnings are those of report/run_marks.cpp.
  warn(step, found, missing) {
    const add = text => { if (this.warnings.length < 1000) this.warnings.push({step, kind: "warning", text}); };
    const skipped = found.get("skipped_steps") ?? 0, rank = found.get("straggler/rank") ?? -1;
    if (missing.includes("loss")) add("the loss is not finite");
    if (skipped > 0) add(skipped + (skipped === 1 ? " step" : " steps") + " without an update");
    if (rank >= 0 && rank !== this.slowRank) add("rank " + rank + " slows the others down");
    this.slowRank = rank;
  }
  // The clocks are those of report/run_clock.cpp.
  tick(step, found) {
    const isBehind = (line, value) => !line.count || (step > line.parts.at(-1).last[0] && value >= line.newest);
    const tokens = found.get("tokens_seen"), stepS = found.get("step_s");
    if (tokens !== undefined && isBehind(this.clockTokens, tokens)) this.clockTokens.add(step, tokens);
    this.stalls += found.get("save_stall_s") ?? 0;
    if (stepS === undefined) return;
    this.elapsed += stepS * Math.max(step - this.before, 1);
    const seconds = this.elapsed + this.stalls;
    if (isBehind(this.clockSeconds, seconds)) this.clockSeconds.add(step, seconds);
  }
  // Divides the time of a step as report/run_charts.cpp does: waits, checkpoints, and computing, which is the rest.
  divide(step, found) {
    const parts = new Map([["compute", 0]]);
    for (const [name, value] of found) {
      const wait = name === "data_wait_s" ? "data" : /^traffic\/(.*)\/wait_s$/.exec(name)?.[1];
      if (wait) parts.set("wait for " + wait, value);
    }
    const waited = [...parts.values()].reduce((a, b) => a + b, 0);
    parts.set("compute", Math.max((found.get("step_s") ?? 0) - waited, 0));
    if (found.has("save_stall_s") || this.sections.has("checkpoints"))
      parts.set("checkpoints", (found.get("save_stall_s") ?? 0) / Math.max(step - this.before, 1));
    const compute = this.sections.get("compute");
    for (const name of parts.keys()) {
      if (!this.sections.has(name)) this.sections.set(name, compute ? compute.zeros() : new Line());
    }
    for (const [name, line] of this.sections) line.add(step, parts.get(name) ?? 0);
  }
  get tokens() { return this.clockTokens.lasts; }
  get seconds() { return this.clockSeconds.lasts; }
  get marks() {
    const {checkpoints = [], has_hung, state, step} = this.status, end = [];
    if (has_hung) end.push({step, kind: "warning", text: "the ranks hung; a report lies beside the output folder"});
    if (state === "failed") end.push({step, kind: "warning", text: "the run ended without a result"});
    return [...this.warnings, ...checkpoints.map(at => ({step: at, kind: "checkpoint", text: "checkpoint"})), ...end]
      .sort((a, b) => a.step - b.step);
  }
}

// Makes the charts of the table in report/run_charts.cpp, without those that have no point.
function chartsOf(all) {
  const shown = all.map((run, i) => ({run, i})).filter(({run}) => run.isShown), found = [];
  const names = new Set(shown.flatMap(({run}) => [...run.lines.keys()])), isOne = shown.length === 1;
  const chart = (title, axis, unit, series, more = {}) => {
    const some = series.filter(one => one.line?.count);
    if (some.length) found.push({title, axis, unit, series: some, hasLegend: series.length > 1, ...more});
  };
  const below = prefix => [...names].filter(name => name.startsWith(prefix)).map(name => name.slice(prefix.length));
  const losses = (trained, evaluated, name, run, i, color) => [
    {name, run: i, color, isNoisy: true, line: run.lines.get(trained)},
    {name: name + ", evaluation", run: i, color, isDashed: true, line: run.lines.get(evaluated)}];
  const ofDataset = (dataset, name, {run, i}, color) =>
    losses("losses/" + dataset, "eval_losses/" + dataset, name, run, i, color);
  const kinds = {
    losses: (title, number, axis, unit) =>
      chart(title, axis, unit, shown.flatMap(({run, i}) => losses(number, "eval_" + number, run.name, run, i, i)), {cuts: true}),
    datasets(title, begin, axis, unit) {
      const datasets = [...new Set([...below("losses/"), ...below("eval_losses/")])].sort();
      if (isOne) chart(title, axis, unit, datasets.flatMap((one, j) => ofDataset(one, one, shown[0], j)), {cuts: true});
      else for (const one of datasets)
        chart(begin + one, axis, unit, shown.flatMap(run => ofDataset(one, run.run.name, run, run.i)), {cuts: true});
    },
    number(title, number, axis, unit, isNoisy, isLog) {
      const series = shown.map(({run, i}) => ({name: run.name, run: i, color: i, isNoisy, line: run.lines.get(number)}));
      chart(title, axis, unit, series, {isLog: isLog && series.every(({line}) => !line || line.parts.every(({low}) => low[1] > 0))});
    },
    sections(title, number, axis, unit) {
      for (const {run, i} of shown) {
        const series = [...run.sections].map(([name, line], j) => ({name, run: i, color: j, line}));
        if (series.length > 1 && series[0].line.count > 1) chart(title + run.name, axis, unit, series, {isStacked: true});
      }
    },
    sent(title, number, axis, unit) {
      const axes = [...new Set(below("traffic/").map(name => name.split("/")[0]))].sort();
      chart(title, axis, unit, shown.flatMap(({run, i}, j) => axes.map((one, k) =>
        ({name: isOne ? one : run.name + ", " + one, run: i, color: j * axes.length + k, line: run.lines.get(`traffic/${one}/bytes_sent`)}))));
    },
    others(title, number, axis, unit) {
      const elsewhere = new Set([...known.elsewhere, ...known.rows.map(row => row[2])]);
      for (const name of [...names].sort())
        if (!elsewhere.has(name) && !/^(losses|eval_losses|traffic|straggler)\//.test(name)) kinds.number(name, name, name, unit, false, false);
    }
  };
  for (const [kind, ...row] of known.rows) kinds[kind](...row);
  return found;
}
)js";

}  // namespace tessera::report
