// SPDX-License-Identifier: Apache-2.0
"use strict";
// Deliveries (parsers/measure/delivered.py) and what is computed from them. No page here.
const D = {};
D.WAYS = ["never", "multicast", "repaired", "backstop", "backlog", "LDM6", "file"];

D.fromBase64 = (text) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text.trim()), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
};

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Four bytes or fewer stay whole numbers of 32 bits, which is several times as fast.
function column(body, at, width, count) {
  if (width <= 4) {
    const out = new Int32Array(count);
    for (let plane = 0; plane < width; plane++)
      for (let i = 0, from = at + plane * count; i < count; i++) out[i] |= body[from + i] << 8 * plane;
    for (let i = 0; i < count; i++) out[i] = (out[i] >>> 1) ^ -(out[i] & 1);
    return out;
  }
  const out = new Float64Array(count);
  for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256)
    for (let i = 0, from = at + plane * count; i < count; i++) out[i] += body[from + i] * scale;
  for (let i = 0; i < count; i++) out[i] = out[i] % 2 ? -(out[i] + 1) / 2 : out[i] / 2;
  return out;
}

// Times in seconds after the first insertion, latencies in seconds; rows are receivers.
D.decode = async (bytes) => {
  const word = (from, to) => new TextDecoder().decode(bytes.subarray(from, to));
  if (word(0, 8) !== "DPDELIV1") throw new Error("deliveries of another version");
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(8, true);
  const head = JSON.parse(word(12, 12 + length)), n = head.products, m = head.receivers.length;
  const body = await inflate(bytes.subarray(12 + length));
  let at = 0;
  const take = (name, count) => {
    const found = column(body, at, head.columns[name], count);
    at += head.columns[name] * count;
    return found;
  };
  const steps = take("created", n), size = take("size", n), wait = take("wait", n);
  const created = new Float64Array(n);
  for (let i = 0, sum = 0; i < n; i++) { sum += steps[i]; created[i] = sum / 1e6; }
  const way = take("way", n * m), late = take("latency", n * m);
  const rest = take("rest", n * m), blocks = take("blocks", n * m);
  const latency = new Float64Array(n * m), delay = new Float64Array(n * m);
  for (let row = 0, k = 0; row < m; row++)
    for (let i = 0; i < n; i++, k++) {
      latency[k] = late[k] / 1e6;
      if (way[k] === 1 || way[k] === 2) delay[k] = (late[k] - wait[i] - rest[k]) / 1e6;
    }
  const idents = n ? new TextDecoder().decode(body.subarray(at)).split("\n") : [];
  return { begin: head.begin_us / 1e6, hosts: head.receivers, n, m, created, size, idents, way,
    latency, delay, blocks };
};

// The products before `first` of one, then all of another with the same receivers.
D.joined = (before, first, after) => {
  const n = first + after.n, m = after.m, out = { ...after, n, receivers: undefined };
  const join = (name, rows) => {
    const a = before[name], b = after[name], was = before.n, is = after.n;
    const made = a instanceof Int32Array && b instanceof Int32Array ? new Int32Array(rows * n)
      : new Float64Array(rows * n);
    for (let row = 0; row < rows; row++) {
      made.set(a.subarray(row * was, row * was + first), row * n);
      made.set(b.subarray(row * is, (row + 1) * is), row * n + first);
    }
    out[name] = made;
  };
  for (const name of ["created", "size"]) join(name, 1);
  for (const name of ["way", "latency", "delay", "blocks"]) join(name, m);
  out.idents = before.idents.slice(0, first).concat(after.idents);
  return out;
};
D.fits = (before, first, after) => before && after && before.n >= first && before.begin === after.begin
  && before.hosts.join() === after.hosts.join();

// Puts the value that would be the k-th of sorted ones there, and no greater one before it.
const place = (values, k, from) => {
  for (let low = from, high = values.length - 1; low < high;) {
    const middle = values[(low + high) >> 1];
    let i = low, j = high;
    while (i <= j) {
      while (values[i] < middle) i++;
      while (values[j] > middle) j--;
      if (i <= j) { const held = values[i]; values[i++] = values[j]; values[j--] = held; }
    }
    if (k <= j) high = j; else if (k >= i) low = i; else break;
  }
  return values[k];
};
// Returns ascending quantiles of values, which it reorders; nulls without values. It takes a tenth of
// the time of sorting them.
D.quantiles = (values, shares) => {
  let from = 0;
  return shares.map((p) => {
    if (!values.length) return null;
    const at = p * (values.length - 1), low = Math.floor(at), found = place(values, low, from);
    from = low;
    return low === at ? found : found + (place(values, low + 1, low + 1) - found) * (at - low);
  });
};

D.end = (d) => {
  let last = 0;
  for (let row = 0, k = 0; row < d.m; row++)
    for (let i = 0; i < d.n; i++, k++)
      if (d.way[k]) last = Math.max(last, d.created[i] + d.latency[k]);
  return Math.max(last, d.n ? d.created[d.n - 1] : 0, 1);
};

// One receiver's numbers, as parsers/measure/metrics.py takes them: DRFSM21 3.2 and latencies.
D.receiver = (d, row) => {
  let all = 0, bytesAll = 0, fmtp = 0, bytes = 0, delay = 0, blocks = 0, repaired = 0, missing = 0;
  const taken = new Float64Array(d.n);
  let came = 0;
  for (let i = 0, k = row * d.n; i < d.n; i++, k++) {
    const way = d.way[k];
    if (!way) { missing++; continue; }
    taken[came++] = d.latency[k];
    if (way > 3) continue;
    all++; bytesAll += d.size[i];
    if (way === 3) continue;
    fmtp++; bytes += d.size[i]; blocks += d.blocks[k];
    delay += Math.round(d.delay[k] * 1e6);
    if (way === 2) repaired++;
  }
  const [p50, p99] = D.quantiles(taken.subarray(0, came), [0.5, 0.99]);
  return { host: d.hosts[row], arrived: came, missing, repaired, blocks,
    throughput: delay > 0 ? 8e6 * bytes / delay : null,
    ffdr: all ? 100 * fmtp / all : null,
    mplr: bytes ? 100 * blocks * 1448 / bytes : null,
    p50, p99 };
};

D.SERIES = {
  latency: { label: "Latency, mean of an interval", unit: "s" },
  delay: { label: "FMTP delay from BOP, mean of an interval", unit: "s" },
  throughput: { label: "FMTP throughput (DRFSM21 eq. 1)", unit: "bit/s" },
  rate: { label: "Bytes that arrived", unit: "bit/s" },
  blocks: { label: "Blocks sent again, per second", unit: "1/s" },
  missing: { label: "Products not arrived yet", unit: "" },
};

function binSums(d, row, width, bins) {
  const count = new Float64Array(bins), latency = new Float64Array(bins),
    delay = new Float64Array(bins), sized = new Float64Array(bins), bytes = new Float64Array(bins),
    blocks = new Float64Array(bins), missing = new Float64Array(bins);
  const bin = (t) => Math.min(bins - 1, Math.max(0, Math.floor(t / width)));
  for (let i = 0, k = row * d.n; i < d.n; i++, k++) {
    const made = bin(d.created[i]);
    const came = d.way[k] ? bin(d.created[i] + d.latency[k]) : bins;
    if (came > made) { missing[made]++; missing[came]--; } // steps, summed below
    if (came === bins) continue;
    count[came]++; latency[came] += d.latency[k]; bytes[came] += d.size[i];
    if (d.way[k] <= 2) {
      delay[came] += d.delay[k]; sized[came] += d.size[i]; blocks[came] += d.blocks[k];
    }
  }
  for (let b = 1; b < bins; b++) missing[b] += missing[b - 1];
  return { count, latency, delay, sized, bytes, blocks, missing };
}

// Each receiver's values by interval (null: none), and over receivers: median, 10 and 90 %.
D.WIDTHS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600];
D.series = (d, what, end) => {
  const width = D.WIDTHS.find((w) => end / w <= 150) ?? end / 150;
  const bins = Math.max(1, Math.ceil(end / width)), rows = [];
  const value = {
    latency: (s, b) => s.count[b] ? s.latency[b] / s.count[b] : null,
    delay: (s, b) => s.sized[b] ? s.delay[b] / s.count[b] : null,
    throughput: (s, b) => s.delay[b] > 0 ? 8 * s.sized[b] / s.delay[b] : null,
    rate: (s, b) => 8 * s.bytes[b] / width,
    blocks: (s, b) => s.blocks[b] / width,
    missing: (s, b) => s.missing[b],
  }[what];
  for (let row = 0; row < d.m; row++) {
    const sums = binSums(d, row, width, bins);
    rows.push(Array.from({ length: bins }, (_, b) => value(sums, b)));
  }
  const over = [0.1, 0.5, 0.9].map(() => []);
  for (let b = 0; b < bins; b++) {
    const known = rows.map((r) => r[b]).filter((v) => v !== null);
    D.quantiles(known, [0.1, 0.5, 0.9]).forEach((v, i) => over[i].push(v));
  }
  return { width, rows, low: over[0], median: over[1], high: over[2] };
};

// For each receiver and column of products: greatest latency, and whether any was repaired.
D.heat = (d, columns) => {
  const count = Math.max(1, Math.min(columns, d.n));
  const worst = new Float64Array(d.m * count).fill(-1), flag = new Uint8Array(d.m * count);
  for (let row = 0; row < d.m; row++)
    for (let i = 0, k = row * d.n; i < d.n; i++, k++) {
      const at = row * count + Math.floor(i * count / d.n);
      if (!d.way[k]) { flag[at] |= 4; continue; }
      worst[at] = Math.max(worst[at], d.latency[k]);
      if (d.way[k] === 2) flag[at] |= 1;
      if (d.way[k] > 2) flag[at] |= 2;
    }
  return { count, worst, flag };
};

// Products created before t and not everywhere yet: the latest, at most `most`.
D.flying = (d, t, most) => {
  const found = [];
  for (let i = 0; i < d.n && d.created[i] <= t; i++) {
    let there = 0;
    for (let row = 0; row < d.m; row++) {
      const k = row * d.n + i;
      if (d.way[k] && d.created[i] + d.latency[k] <= t) there++;
    }
    if (there < d.m) found.push({ i, there });
  }
  return { count: found.length, latest: found.slice(-most).reverse() };
};
D.nearest = (d, t) => {
  let low = 0, high = d.n - 1;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (d.created[mid] <= t) low = mid; else high = mid - 1;
  }
  return low;
};

// -- numbers as text -----------------------------------------------------------------------------
const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];
D.digits = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return String(Math.round(value));
  return value.toPrecision(3).replace(/(\.\d*?)0+(?=$|e)/, "$1").replace(/\.(?=$|e)/, "");
};
D.show = (value, unit, reason) => {
  if (value === null || value === undefined || Number.isNaN(value))
    return reason ? `n/a (${reason})` : "n/a";
  const size = Math.abs(value);
  if (["bit/s", "B", "s", "B/s"].includes(unit) && size > 0 && !(unit === "s" && size >= 1)) {
    const [scale, prefix] = PREFIXES.find(([s]) => size >= s * 0.9995) || PREFIXES[5];
    const fine = unit !== "s" && scale < 1;
    return `${D.digits(value / (fine ? 1 : scale))} ${fine ? "" : prefix}${unit}`;
  }
  return `${D.digits(value)}${unit ? " " + unit : ""}`;
};
// A factor's level with its unit: rate_bps 2e7 is "rate 20 Mbit/s".
D.level = (name, value) => {
  if (typeof value !== "number") return `${name} ${value}`;
  if (name === "loss") return `loss ${D.digits(100 * value)} %`;
  const [, what, unit] = name.match(/^(.*)_(bps|ms|s|bytes)$/) || [null, name, ""];
  return `${what} ${D.show(unit === "ms" ? value / 1e3 : value,
    { bps: "bit/s", ms: "s", s: "s", bytes: "B" }[unit] ?? "")}`;
};
// The names of rows. Rows that share one get, until they differ: the levels in which they do, where
// they were published, under which conditions, and a number.
D.rowNames = (rows, base) => {
  const names = rows.map(base), levels = (r) => Object.entries(r.at ?? {});
  const more = [(r, group) => levels(r).filter(([k, v]) => group.some((o) => o.at?.[k] !== v))
    .map(([k, v]) => D.level(k, v)).join(", "),
    (r) => r.source, (r) => r.conditions, (r, group) => String(group.indexOf(r) + 1)];
  for (const text of more) {
    const known = [...names];
    rows.forEach((r, i) => {
      const group = rows.filter((_, j) => known[j] === known[i]);
      if (group.length > 1 && text(r, group)) names[i] = `${known[i]}, ${text(r, group)}`;
    });
  }
  return names;
};
D.clock = (t) => t >= 3600 ? `${Math.floor(t / 3600)} h ${Math.floor(t / 60) % 60} min`
  : t >= 60 ? `${Math.floor(t / 60)} min ${Math.floor(t % 60)} s` : `${D.digits(t)} s`;
