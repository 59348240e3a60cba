// SPDX-License-Identifier: Apache-2.0
"use strict";
// Elements, and SVG charts. Text goes in as text nodes only: names in a run are hostile.
const SVG = "http://www.w3.org/2000/svg";
D.el = (name, attributes = {}, ...children) => {
  const node = attributes.xmlns === SVG || D.el.svg.has(name)
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((c) => c !== null && c !== undefined));
  return node;
};
D.el.svg = new Set(["svg", "g", "path", "rect", "circle", "line", "text", "polyline", "polygon",
  "title", "defs", "pattern"]);
// Redrawing a part keeps what a reader has opened, and the focus.
D.named = (node) => node.getAttribute("aria-label") ?? node.textContent;
D.put = (node, ...children) => {
  const focus = document.activeElement, held = focus !== node && node.contains(focus);
  const opened = (what) => [...node.querySelectorAll(what)].map(D.named);
  const tables = opened("button[aria-expanded=true]").length && [...node.querySelectorAll(
    "button[aria-expanded]")].map((b) => b.getAttribute("aria-expanded"));
  const folds = opened("details[open] > summary");
  node.replaceChildren(...children.flat(9).filter((c) => c));
  if (tables) [...node.querySelectorAll("button[aria-expanded]")].forEach((b, i) => {
    if (tables[i] === "true") b.click();
  });
  for (const s of folds.length ? node.querySelectorAll("details > summary") : [])
    if (folds.includes(s.textContent)) s.parentNode.open = true;
  if (held) [...node.querySelectorAll(focus.tagName)].find((o) => D.named(o) === D.named(focus))
    ?.focus({ preventScroll: true });
};

D.table = (caption, header, rows, left = 1) => D.el("div",
  { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
  D.el("table", {}, D.el("caption", {}, caption),
    D.el("thead", {}, D.el("tr", {}, header.map((h, i) =>
      D.el("th", { scope: "col", class: i < left ? "left" : null }, h)))),
    D.el("tbody", {}, rows.map((row) => D.el("tr", {}, row.map((cell, i) => i === 0
      ? D.el("th", { scope: "row", class: left ? "left" : null }, cell)
      : D.el("td", { class: i < left ? "left" : null }, cell)))))));

// A figure: a sentence that says what it shows, the picture, and a table of the same numbers.
D.figure = (sentence, picture, makeTable) => {
  const holder = D.el("div", { hidden: true });
  const button = makeTable && D.el("button", { type: "button", "aria-expanded": "false",
    onclick: () => {
      if (holder.hidden) D.put(holder, makeTable());
      holder.hidden = !holder.hidden;
      button.setAttribute("aria-expanded", String(!holder.hidden));
    } }, "Table");
  return D.el("figure", {}, picture, D.el("figcaption", {}, sentence, " ", button), holder);
};

// A line or band of a legend, as the chart draws it; `mark`: the style of its dots, if it has any.
D.key = (kind, text, mark = null) => D.el("span", { class: "key" }, D.el("svg", { width: 34,
  height: 12, "aria-hidden": "true" }, D.el("path", { class: kind, d: kind === "band"
  ? "M0 1h34v10h-34Z" : "M0 6h34" }), mark === null ? null : D.el("path", { class: `dot c${mark}`,
  d: D.mark(mark, 17, 6) })), " ", text);

// Dots that need no colour: every style has its shape. The style sheet fills the first five.
const SHAPES = ["m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", "m-4 -4h8v8h-8Z",
  "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5Z", "m0 -5l5 9h-10Z", "m0 5l5 -9h-10Z"];
D.mark = (style, x, y) => `M${x.toFixed(1)} ${y.toFixed(1)}${SHAPES[style % 5]}`;

D.ticks = (low, high, count = 5) => {
  if (!(high > low)) return [low];
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const out = [], first = Math.ceil(low / step), last = Math.floor(high / step + 1e-6);
  for (let i = first; i <= last && out.length < 99; i++) out.push(i * step);
  return out;
};

D.pathOf = (values, x, y) => {
  let text = "", pen = false;
  values.forEach((v, i) => {
    if (v === null) { pen = false; return; }
    text += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
  });
  return text;
};
const bandOf = (low, high, x, y) => {
  let text = "", run = [];
  const close = () => {
    if (run.length > 1)
      text += "M" + run.map((i) => `${x(i).toFixed(1)} ${y(high[i]).toFixed(1)}`).join("L") + "L"
        + run.reverse().map((i) => `${x(i).toFixed(1)} ${y(low[i]).toFixed(1)}`).join("L") + "Z";
    run = [];
  };
  low.forEach((v, i) => { if (v === null) close(); else run.push(i); });
  close();
  return text;
};

D.axes = (box, xs, ys, xText, yText, xLabel, yLabel) => [
  ys.map(([v, at]) => D.el("g", {}, D.el("line", { class: "grid", x1: box.left, x2: box.right,
    y1: at, y2: at }), D.el("text", { class: "tick", x: box.left - 6, y: at + 4,
    "text-anchor": "end" }, yText(v)))),
  xs.map(([v, at]) => D.el("text", { class: "tick", x: at, y: box.bottom + 16,
    "text-anchor": "middle" }, xText(v))),
  D.el("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
  D.el("text", { class: "label", x: (box.left + box.right) / 2, y: box.bottom + 34,
    "text-anchor": "middle" }, xLabel),
  D.el("text", { class: "label", x: box.left, y: box.top - 8 }, yLabel),
];

// Median and 10-90 % band over receivers; chosen receivers as dashed lines, named at their ends.
D.seriesChart = (d, what, found, view, chosen, now, events, size) => {
  const { width: W, height: H } = size;
  const box = { left: 74, right: W - 16, top: 26, bottom: H - 40 };
  const all = [found.high, found.median, ...chosen.map((r) => found.rows[r])].flat()
    .filter((v) => v !== null);
  const most = Math.max(...all, 0) || 1;
  const x = (t) => box.left + (t - view[0]) / (view[1] - view[0]) * (box.right - box.left);
  const y = (v) => box.bottom - v / most * (box.bottom - box.top);
  const at = (i) => x((i + 0.5) * found.width);
  const unit = D.SERIES[what].unit;
  const svg = D.el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "chart",
    "aria-label": D.seriesSentence(d, what, found) },
  D.axes(box, D.ticks(view[0], view[1], W > 600 ? 8 : 4).map((t) => [t, x(t)]),
    D.ticks(0, most).map((v) => [v, y(v)]), D.digits, (v) => D.show(v, unit),
    "seconds after the first insertion", D.SERIES[what].label),
  D.el("svg", { x: box.left, y: 0, width: box.right - box.left, height: H,
    viewBox: `${box.left} 0 ${box.right - box.left} ${H}` },
  events.map((e) => D.el("line", { class: "event", x1: x(e.at_s), x2: x(e.at_s), y1: box.top,
    y2: box.bottom }, D.el("title", {}, e.text))),
  D.el("path", { class: "band", d: bandOf(found.low, found.high, at, y) }),
  D.el("path", { class: "median", d: D.pathOf(found.median, at, y) }),
  chosen.map((r, i) => D.el("path", { class: `chosen c${i % 4}`,
    d: D.pathOf(found.rows[r], at, y) })),
  D.el("line", { class: "now", x1: x(now), x2: x(now), y1: box.top, y2: box.bottom })));
  return svg;
};
D.seriesSentence = (d, what, found) => {
  const known = found.median.filter((v) => v !== null);
  const most = Math.max(...found.high.filter((v) => v !== null), 0);
  const [middle] = D.quantiles(known, [0.5]);
  return `${D.SERIES[what].label}, ${d.m} receivers, intervals of ${D.clock(found.width)}: `
    + `the median receiver's is mostly ${D.show(middle, D.SERIES[what].unit)}; nine of ten stay `
    + `below ${D.show(most, D.SERIES[what].unit)}.`;
};

// cividis at nine points: dark is quick, bright is slow.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74",
  "#c3b369", "#fee838"].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
D.colour = (share) => {
  const at = Math.min(0.9999, Math.max(0, share)) * 8, low = Math.floor(at), part = at - low;
  return CIVIDIS[low].map((v, i) => Math.round(v + (CIVIDIS[low + 1][i] - v) * part));
};
D.heatScale = (heat) => {
  const [near, most] = D.quantiles(heat.worst.filter((v) => v >= 0), [0.01, 1]);
  const low = Math.max(1e-6, near || 1e-6), high = Math.max(low * 1.01, most || low);
  return { low, high, share: (v) => Math.log(Math.max(v, low) / low) / Math.log(high / low) };
};
D.drawHeat = (canvas, heat, scale, m, selected) => {
  const cell = Math.max(6, Math.min(18, Math.floor(300 / m)));
  canvas.width = heat.count; canvas.height = m * cell;
  const context = canvas.getContext("2d"), image = context.createImageData(heat.count, m * cell);
  const pixels = new Uint32Array(image.data.buffer);
  const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  const WHITE = word([255, 255, 255]), RED = word([200, 0, 60]), ORANGE = word([255, 140, 0]),
    GREY = word([128, 128, 128]);
  const shades = Uint32Array.from({ length: 256 }, (_, i) => word(D.colour(i / 255)));
  for (let row = 0; row < m; row++)
    for (let c = 0; c < heat.count; c++) {
      const k = row * heat.count + c, flag = heat.flag[k], worst = heat.worst[k];
      const plain = worst < 0 ? WHITE : shades[Math.round(255 * Math.min(1, scale.share(worst)))];
      for (let line = 0; line < cell; line++) {
        // Marks that need no colour: a bar below for repairs, a full one for the backstop, and
        // stripes for what never arrived.
        let pixel = plain;
        if (flag & 4 && (line + c) % 4 < 2) pixel = RED;
        else if (flag & 2 && line >= cell - 4 && line < cell - 1) pixel = WHITE;
        else if (flag & 1 && line >= cell - 3 && line < cell - 1) pixel = ORANGE;
        if (line === cell - 1) pixel = GREY;
        pixels[(row * cell + line) * heat.count + c] = c === selected ? WHITE : pixel;
      }
    }
  context.putImageData(image, 0, 0);
  return cell;
};

// Ours with its interval, the paper's value hollow; each on the scale of the paper's value.
D.besideChart = (rows, width) => {
  const longest = Math.max(...rows.map((r) => r.name.length)) * 6.8 + 24;
  const H = 34, narrow = width < 560 || longest > width / 2;
  const text = narrow ? 12 : Math.max(300, longest);
  const top = 22, left = text, right = width - (narrow ? 12 : 16);
  const ratios = rows.flatMap((r) => [r.low, r.high, r.ours].filter((v) => v !== null)
    .map((v) => v / r.paper)).filter(Number.isFinite);
  const high = Math.min(3, Math.max(1.25, ...ratios) * 1.05), low = Math.max(0, Math.min(0.75,
    ...ratios) * 0.95);
  const x = (v) => left + (Math.min(high, Math.max(low, v)) - low) / (high - low) * (right - left);
  const step = narrow ? H + 20 : H, height = top + rows.length * step + 24;
  return D.el("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `${rows.length} values beside the published ones, as multiples of these` },
  D.ticks(low, high, narrow ? 3 : 6).map((v) => D.el("g", {}, D.el("line", { class: v === 1
    ? "one" : "grid", x1: x(v), x2: x(v), y1: top - 6, y2: height - 22 }), D.el("text",
    { class: "tick", x: x(v), y: height - 8, "text-anchor": "middle" },
    v === 1 ? "as published" : `× ${D.digits(v)}`))),
  rows.map((r, i) => {
    const y = top + i * step + (narrow ? 30 : 12);
    const parts = [D.el("text", { class: "name", x: narrow ? 0 : left - 12,
      y: narrow ? y - 14 : y + 4, "text-anchor": narrow ? "start" : "end" }, r.name)];
    if (r.ours !== null) {
      if (r.low !== null) parts.push(D.el("line", { class: "interval", x1: x(r.low / r.paper),
        x2: x(r.high / r.paper), y1: y, y2: y }));
      parts.push(D.el("circle", { class: "ours", cx: x(r.ours / r.paper), cy: y, r: 5 }));
    }
    parts.push(D.el("path", { class: "paper", d: `M${x(1)} ${y - 7}l7 7l-7 7l-7 -7Z` }));
    return D.el("g", {}, D.el("title", {}, r.sentence), parts);
  }));
};
