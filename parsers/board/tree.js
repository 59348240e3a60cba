// SPDX-License-Identifier: Apache-2.0
"use strict";
// The network, in layers from the publisher or on a map (map.js): links by load and loss, hosts by
// state, and how far a product has got.
const STATES = {
  active: "a product came less than 10 minutes ago",
  quiet: "a product came less than an hour ago",
  unavailable: "no product for an hour, or none at all",
};
D.hostState = (d, row, t) => {
  let last = -Infinity;
  for (let i = 0, k = row * d.n; i < d.n && d.created[i] <= t; i++, k++)
    if (d.way[k]) { const at = d.created[i] + d.latency[k]; if (at <= t && at > last) last = at; }
  return t - last < 600 ? "active" : t - last < 3600 ? "quiet" : "unavailable";
};

const MARKS = {
  active: (x, y) => D.el("circle", { cx: x, cy: y, r: 8 }),
  quiet: (x, y) => D.el("path", { d: `M${x} ${y - 9}L${x + 9} ${y + 7}L${x - 9} ${y + 7}Z` }),
  unavailable: (x, y) => D.el("path", { d: `M${x - 7} ${y - 7}h14v14h-14Z` }),
};

D.layers = (network) => {
  const layers = Math.max(...network.nodes.map((n) => n.layer), 1);
  const most = Math.max(...Array.from({ length: layers + 1 },
    (_, l) => network.nodes.filter((n) => n.layer === l).length), 1);
  const W = Math.max(620, layers * 120 + 150), H = Math.max(170, most * 42 + 40);
  const place = {};
  for (const n of network.nodes) {
    const peers = network.nodes.filter((o) => o.layer === n.layer);
    place[n.name] = [36 + n.layer * (W - 190) / layers,
      24 + (peers.indexOf(n) + 0.5) * (H - 48) / peers.length];
  }
  return { W, H, place };
};

// `places` from D.layers or D.map, whose hosts may have their names on the left (side -1).
D.networkChart = (network, places, d, t, product) => {
  const { W, H, place } = places;
  const busiest = Math.max(...network.edges.map((e) => e.bps), 1);
  const edges = network.edges.map((e) => {
    const [x1, y1] = place[e.a], [x2, y2] = place[e.b];
    const lossy = e.lost_share > 0, load = e.bps === null ? "load n/a" : D.show(e.bps, "bit/s");
    return D.el("line", { x1, y1, x2, y2, class: `link${lossy ? " lossy" : ""}${e.bps ? "" : " idle"}`,
      "stroke-width": e.bps ? (1 + 6 * Math.sqrt(e.bps / busiest)).toFixed(1) : 1 },
    D.el("title", {}, `${e.a} – ${e.b}: ${load} on average`
      + (lossy ? `, ${D.show(100 * e.lost_share, "%")} of the packets lost` : ", nothing lost")));
  });
  const rows = Object.fromEntries(d ? d.hosts.map((h, i) => [h, i]) : []);
  const states = Object.fromEntries(network.nodes.filter((n) => n.kind === "host" && !n.publisher)
    .map((n) => [n.name, d && rows[n.name] !== undefined ? D.hostState(d, rows[n.name], t)
      : "unavailable"]));
  const nodes = network.nodes.map((n) => {
    const [x, y, side = 1] = place[n.name];
    if (n.kind !== "host") return D.el("g", { class: "switch" }, D.el("rect", { x: x - 7, y: y - 5,
      width: 14, height: 10, rx: 2 }), D.el("text", { x, y: y + 19, "text-anchor": "middle" },
    n.name));
    const row = rows[n.name];
    const state = n.publisher ? "active" : states[n.name];
    let word = n.publisher ? "publisher" : state, has = false;
    if (row !== undefined && d && product !== null) {
      const k = row * d.n + product, came = d.created[product] + d.latency[k];
      has = d.way[k] && came <= t;
      if (state === "active") word = !d.way[k] ? "never came"
        : has ? `+${D.show(d.latency[k], "s")}${d.way[k] > 1 ? `, ${D.WAYS[d.way[k]]}` : ""}`
          : "on its way";
    }
    const at = n.publisher ? { x: x - 12 } : { x: x + 13 * side,
      "text-anchor": side < 0 ? "end" : "start" };
    return D.el("g", { class: `host ${state}${has ? " has" : ""}${n.publisher ? " root" : ""}` },
      D.el("title", {}, `${n.name}: ${STATES[state]}`), MARKS[state](x, y),
      D.el("text", { ...at, y: y + (n.publisher ? -14 : 1), class: "name" }, n.name),
      D.el("text", { ...at, y: y + (n.publisher ? 23 : 14), class: "word" }, word));
  });
  const counts = {};
  if (d) for (const state of Object.values(states)) counts[state] = (counts[state] || 0) + 1;
  const words = Object.entries(counts).map(([s, c]) => `${c} ${s}`).join(", ") || "no delivery yet";
  const name = product === null || !d ? "" : ` Product ${d.idents[product]}: shown how far it came.`;
  const sentence = `The network at ${D.clock(Math.max(0, t))}: ${words}. A link is wider with its `
    + `average load, and dashed if packets were lost on it.${places.grid ? " Neighbours that would "
      + "cover each other are moved apart." : ""}${name}`;
  return [D.el("svg", { viewBox: `0 0 ${W} ${H}`, class: `chart tree${places.grid ? " map" : ""}`, role: "img",
    "aria-label": sentence }, places.grid, edges, nodes), sentence];
};
