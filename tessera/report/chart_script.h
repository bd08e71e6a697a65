// The part of the page's script that draws a chart anew as the reader chooses.
#pragma once

namespace tessera::report {

inline constexpr const char* kChartScript = R"js("use strict";
// Units, ticks and margins are those of report/axis.cpp and report/line_chart.cpp.
const units = {
  none: [[0, 1, ""]],
  bytes: ["B", "KiB", "MiB", "GiB", "TiB"].map((name, i) => [1024 ** i, 1024 ** i, name]),
  seconds: [[1e-6, 1e-6, "\u00b5s"], [1e-3, 1e-3, "ms"], [1, 1, "s"], [120, 60, "min"], [7200, 3600, "h"],
    [172800, 86400, "d"]]
};
const xAxes = {
  steps: {name: "step", unit: "none"},
  tokens: {name: "tokens seen", unit: "none"},
  seconds: {name: "wall time of the steps", unit: "seconds"}
};

function scaleOf(unit, largest) {
  const [, size, name] = units[unit].filter(u => largest >= u[0]).pop() ?? units[unit][0];
  return {size, name};
}

function written(value, digits = 4) {
  const size = Math.abs(value);
  if (size >= 1e18 || (size && size < 1e-4)) return Number(value.toPrecision(digits)).toExponential();
  const power = size < 1e4 ? 0 : Math.floor(Math.log10(size) / 3 + 1e-12);
  return Number((value / 1000 ** power).toPrecision(digits)) + ["", "k", "M", "G", "T", "P"][power];
}

function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= raw || factor === 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) found.push(i * step);
  return found;
}

function logTicks(low, high) {
  const decades = Math.log10(high) - Math.log10(low), stride = Math.ceil(decades / 8), found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride) {
    for (const factor of decades <= 3 ? [1, 2, 5] : [1]) {
      const tick = factor * 10 ** power;
      if (tick >= low && tick <= high) found.push(tick);
    }
  }
  return found.length < 3 ? ticks(low, high, 5) : found;
}

function rangeOf(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

function yRange(values, isLog) {
  let [low, high] = rangeOf(values);
  if (isLog) return [low * 0.9, high * 1.1];
  const largest = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= 1e-9 * largest) {
    const margin = largest === 0 ? 1 : largest * 0.5;
    low -= margin;
    high += margin;
  }
  const margin = (high - low) * 0.05;
  return [low === 0 ? 0 : low - margin, high + margin];
}

// Gives the mean of the points up to each one, in which a value counts `keep` times as much as the next one.
function smooth(points, keep) {
  let sum = 0, weight = 0;
  return points.map(([step, value]) => {
    sum = keep * sum + value;
    weight = keep * weight + 1;
    return [step, sum / weight];
  });
}

// Gives what a run had seen or taken at a step, between the steps of which its clock tells.
function clockAt(clock, step) {
  let low = 0, high = clock.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (clock[middle][0] < step) low = middle + 1; else high = middle;
  }
  if (low === clock.length) return clock[low - 1][1];
  const [from, begin] = low === 0 ? [0, 0] : clock[low - 1], [to, end] = clock[low];
  return to <= from ? end : begin + (end - begin) * (step - from) / (to - from);
}

const pairs = text => text ? text.split(" ").map(pair => pair.split(",").map(Number)) : [];

function readChart(svg) {
  const {axis, unit, limit, box} = svg.dataset, caption = svg.parentElement.querySelector("figcaption");
  const note = caption.querySelector(".note") ?? caption.appendChild(document.createElement("span"));
  note.className = "note";
  const series = [...svg.querySelectorAll("[data-values]")].map(element => ({
    name: element.dataset.name,
    run: Number(element.dataset.run),
    classes: [...element.classList].filter(name => name !== "faint").join(" "),
    isNoisy: element.classList.contains("faint"),
    values: pairs(element.dataset.values),
    means: pairs(element.dataset.means ?? element.dataset.values)
  }));
  return {svg, note, axis, unit, series, box: box.split(" ").map(Number), isLog: "log" in svg.dataset,
    isStacked: svg.querySelector("polygon") !== null, limit: limit === undefined ? Infinity : Number(limit),
    cutNote: note.textContent};
}

// Gives the lines with their smoothed ones, all as points {x, y, step}. `choices` has the x axis, the y axis
// and `keep` of smoothing, which is undefined where each chart has its own.
function linesOf(chart, choices, x) {
  return chart.series.map(one => {
    const clock = runs[one.run][x];
    const placed = points => points.map(([step, y]) => ({x: clock ? clockAt(clock, step) : step, y, step}));
    const keep = choices.keep ?? (one.isNoisy ? 2 ** (-50 / one.means.length) : 0);
    return {...one, raw: placed(one.values), smoothed: keep ? placed(smooth(one.means, keep)) : null};
  });
}

// Sets the tops of the areas, each of which stands on the one before.
function stack(lines) {
  let floor = null;
  for (const line of lines) {
    const own = line.smoothed ?? line.raw;
    line.floor = floor ?? own.map(({x}) => ({x, y: 0}));
    line.top = own.map(({x, y}, i) => ({x, y: y + line.floor[i].y}));
    floor = line.top;
  }
}

// Drops what a logarithmic axis cannot show, if the chart has one, and says which axis it has and why.
function chooseY(chart, choices, lines) {
  const isAsked = choices.y === "log", note = {text: ""};
  let isLog = isAsked || (choices.y === "auto" && chart.isLog);
  if (chart.isStacked) {
    if (isAsked) note.text = "(areas have a linear axis)";
    return {isLog: false, note};
  }
  const isShown = point => point.y > 0;
  if (isLog && !lines.some(line => line.raw.some(isShown))) {
    isLog = false;
    note.text = "(no value is above 0, so the axis is linear)";
  }
  if (!isLog) {
    if (!note.text) note.text = chart.cutNote.trim();
    return {isLog, note};
  }
  if (!lines.every(line => line.raw.every(isShown))) note.text = "(values that are not above 0 are left out)";
  for (const line of lines) {
    line.raw = line.raw.filter(isShown);
    line.smoothed = line.smoothed && line.smoothed.filter(isShown);
  }
  return {isLog, note};
}

// Gives all that is drawn of a chart: lines, axes with ranges and units, and the place of a point.
function layOut(chart, choices) {
  const x = choices.x !== "steps" && chart.series.every(one => runs[one.run][choices.x].length) ? choices.x : "steps";
  const lines = linesOf(chart, choices, x);
  const {isLog, note} = chooseY(chart, choices, lines);
  if (chart.isStacked) stack(lines);
  const limit = isLog ? Infinity : chart.limit;
  const all = chart.isStacked ? [...lines[lines.length - 1].top, {x: lines[0].top[0].x, y: 0}] : lines.flatMap(line => line.raw);
  const [first, end] = rangeOf(all.map(point => point.x));
  const last = end > first ? end : first + 1;
  const [low, high] = yRange(all.map(point => Math.min(point.y, limit)), isLog);
  const [left, right, top, bottom] = chart.box, f = isLog ? Math.log : value => value;
  return {
    x, lines, note, isLog, first, last, low, high,
    xScale: scaleOf(xAxes[x].unit, Math.max(Math.abs(first), Math.abs(last))),
    yScale: scaleOf(chart.unit, Math.max(Math.abs(low), Math.abs(high))),
    left: value => left + (value - first) / (last - first) * (right - left),
    top: value => bottom - (f(Math.min(value, high)) - f(low)) / (f(high) - f(low)) * (bottom - top),
    valueAt: place => first + (place - left) / (right - left) * (last - first)
  };
}
)js";

}  // namespace tessera::report
