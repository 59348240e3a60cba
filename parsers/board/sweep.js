// SPDX-License-Identifier: Apache-2.0
"use strict";
// A sweep as small multiples: each metric over one factor, a line for the levels of the others.
const CUTS = ["subscriber", "file_set_bytes", "first_s"]; // parts of a cell, not cells
D.MOST_LINES = 8; // as many styles as the style sheet has

// Axis, lines and metrics of points; null: nothing varies.
D.sweepOf = (points, wanted) => {
  const whole = points.filter((p) => CUTS.every((c) => p.factors[c] === undefined));
  const used = whole.length ? whole : points, levels = {};
  for (const p of used) for (const [k, v] of Object.entries(p.factors))
    if (v !== null) (levels[k] ??= new Set()).add(v);
  const varying = Object.keys(levels).filter((k) => levels[k].size > 1);
  const isNumeric = (k) => [...levels[k]].every((v) => typeof v === "number");
  const axis = varying.sort((a, b) => isNumeric(b) - isNumeric(a)
    || levels[b].size - levels[a].size)[0];
  if (!axis) return null;
  const ordered = isNumeric(axis) ? [...levels[axis]].sort((a, b) => a - b) : [...levels[axis]];
  const lines = new Map();
  for (const p of used) if (p.factors[axis] !== undefined && p.factors[axis] !== null) {
    const name = varying.filter((k) => k !== axis && p.factors[k] !== undefined
      && p.factors[k] !== null).map((k) => p.shown?.[k] ?? String(p.factors[k])).join(", ") || "all";
    if (!lines.has(name)) lines.set(name, []);
    lines.get(name).push(p);
  }
  for (const line of lines.values())
    line.sort((a, b) => ordered.indexOf(a.factors[axis]) - ordered.indexOf(b.factors[axis]));
  return { axis, isNumeric: isNumeric(axis), levels: ordered,
    lines: [...lines].map(([name, own]) => ({ name, points: own })),
    metrics: wanted.filter((n) => used.some((p) => p.estimates[n])) };
};

// Places and names of an axis: `factor` has its label, unit and scale.
const axisOf = (sweep, factor, box) => {
  const { levels, isNumeric } = sweep, [low, high] = [levels[0], levels.at(-1)];
  const width = box.right - box.left, step = width / levels.length; // `step`: of a text
  const x = (level) => box.left + (isNumeric ? 8 + (width - 16) * (level - low) / (high - low)
    : step * (levels.indexOf(level) + 0.5));
  const room = Math.floor(step / 6.5);
  const text = (level) => isNumeric ? D.digits(level / factor.scale)
    : level.length > room ? level.slice(0, Math.max(1, room - 1)) + "…" : level;
  const ticks = isNumeric ? levels.reduce((kept, level) => kept.length
    && x(level) - x(kept.at(-1)) < 34 ? kept : [...kept, level], []) : levels;
  return { x, text, ticks, label: factor.label + (factor.unit ? `, ${factor.unit}` : "") };
};

// Styles of lines by index; those of more lines than there are styles go to what is shown.
D.styleOf = (sweep, shown, i) => (sweep.lines.length <= D.MOST_LINES ? i : shown.indexOf(i))
  % D.MOST_LINES;

// `shown`: indices of lines.
D.multiple = (name, metric, sweep, factor, shown, onPick) => {
  const W = 320, H = 200, box = { left: 70, right: W - 12, top: 26, bottom: H - 40 };
  const { x, text, ticks, label } = axisOf(sweep, factor, box);
  const lines = shown.map((i, nth) => ({ name: sweep.lines[i].name,
    style: D.styleOf(sweep, shown, i),
    aside: (nth - (shown.length - 1) / 2) * (sweep.isNumeric ? 2 : 5),
    points: sweep.lines[i].points.filter((p) => p.estimates[name]).map((p) => ({
      level: p.factors[sweep.axis], cell: p.cells[0], at: p.shown?.[sweep.axis],
      ...p.estimates[name] })) }));
  const most = Math.max(...lines.flatMap((l) => l.points).map((p) => p.n > 1 ? p.high : p.mean), 0)
    || 1;
  const y = (v) => box.bottom - Math.max(0, v) / most * (box.bottom - box.top);
  return D.el("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart small", role: "group",
    "aria-label": `${metric.label} over ${label}` },
  D.axes(box, ticks.map((v) => [v, x(v)]), D.ticks(0, most, 3).map((v) => [v, y(v)]),
    text, (v) => D.show(v, metric.unit), label, metric.label),
  lines.map((line) => D.el("g", { class: "line" },
    sweep.isNumeric ? D.el("path", { class: `chosen c${line.style}`,
      d: D.pathOf(line.points.map((p) => p.mean), (k) => x(line.points[k].level) + line.aside, y) })
      : null,
    line.points.map((p) => {
      const cx = x(p.level) + line.aside, value = D.withInterval(p, metric.unit);
      return D.el("g", {}, p.n > 1 ? D.el("line", { class: "whisker", x1: cx, x2: cx,
        y1: y(p.low), y2: y(p.high) }) : null, D.el("path", { class: `dot c${line.style}`,
        d: D.mark(line.style, cx, y(p.mean)), tabindex: "0", role: "button",
        "aria-label": `${line.name}, ${p.at}: ${value}`, onclick: () => onPick(p.cell),
        onkeydown: (e) => {
          if (e.key !== "Enter" && e.key !== " ") return;
          e.preventDefault(); e.stopPropagation(); onPick(p.cell);
        } }, D.el("title", {}, `${line.name}, ${p.at}: ${value}`)));
    }))));
};

D.withInterval = (found, unit) => D.show(found.mean, unit) + (found.n > 1
  ? `, ${D.show(found.low, unit)} to ${D.show(found.high, unit)}` : "");

// The same numbers in words.
D.sweepTable = (sweep, factor, metrics) => D.table("Means over the parameters, 95 % intervals",
  ["Levels", factor.label, ...sweep.metrics.map((n) => metrics(n).label)],
  sweep.lines.flatMap((line) => line.points.map((p) => [line.name, p.shown?.[sweep.axis]
    ?? String(p.factors[sweep.axis]), ...sweep.metrics.map((n) => p.estimates[n]
    ? D.withInterval(p.estimates[n], metrics(n).unit) : "n/a")])), 2);
