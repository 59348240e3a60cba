// SPDX-License-Identifier: Apache-2.0
"use strict";
// Places of a network on an equirectangular map that is true to scale at its middle latitude.
D.hasMap = (network) => network.nodes.length > 1 && network.nodes.every((n) => n.at)
  && new Set(network.nodes.map((n) => n.at.join())).size > 1;

// What a node covers: the middle relative to its place, width, height.
const cover = (n) => n.kind !== "host" ? [0, 7, Math.max(18, n.name.length * 6 + 6), 32]
  : n.publisher ? [18, -2, Math.max(72, n.name.length * 8 + 8), 60] : [54, 4, 132, 36];
const ROWS = 12; // of a site's hosts in a column

// What moves as one: a switch, the publisher, or all other hosts of a site in columns. `share`: how
// much of the way it goes when it and another one part; sites stay nearly where they are.
const unitsOf = (nodes) => {
  const sites = new Map();
  for (const n of nodes) {
    const key = n.kind === "host" && !n.publisher ? n.at.join() : n.name;
    sites.set(key, [...sites.get(key) ?? [], n]);
  }
  return [...sites.values()].map((members) => {
    const [mx, my, w, h] = cover(members[0]), columns = Math.ceil(members.length / ROWS);
    const rows = Math.ceil(members.length / columns), { at, kind, publisher } = members[0];
    members.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    return { at, share: kind === "host" ? 0.85 : 0.15, up: (rows - 1) * h / 2,
      side: 1, kind: kind !== "host" ? "switch" : publisher ? "publisher" : "hosts",
      members: members.map((n, i) => [n.name, Math.floor(i / rows) * w, i % rows * h]),
      cover: [mx + (columns - 1) * w / 2, my + (rows - 1) * h / 2, columns * w, rows * h] };
  });
};

// How far two units cover each other, in x and y; not at all if one of both is negative.
const covering = ({ place: p, cover: [mx, my, w, h] }, { place: q, cover: [ox, oy, ow, oh] }) =>
  [(w + ow) / 2 - Math.abs(p[0] + mx - q[0] - ox), (h + oh) / 2 - Math.abs(p[1] + my - q[1] - oy)];

// Puts the hosts of a site beside their switch, on the side where they cover less.
const beside = (unit, units, network, W) => {
  const first = unit.members[0][0], switches = units.filter((u) => u.kind === "switch");
  const links = network.edges?.flatMap((e) => e.a === first ? e.b : e.b === first ? e.a : []) ?? [];
  const own = switches.find((u) => links.includes(u.members[0][0]) && u.at.join() === unit.at.join())
    ?? switches.findLast((u) => u.at.join() === unit.at.join());
  if (!own) return;
  const [mx, my, w, h] = unit.cover, away = own.cover[2] / 2 + w / 2 + 0.1, y = own.place[1] - unit.up;
  const sides = [1, -1].map((side) => ({ ...unit, side, cover: [side * mx, my, w, h],
    place: [own.place[0] + side * (away - mx), y],
    members: unit.members.map(([name, dx, dy]) => [name, side * dx, dy]) }));
  const [right, left] = sides.map((turned) => {
    const middle = turned.place[0] + turned.cover[0];
    return units.reduce((sum, other) => {
      const [overX, overY] = covering(turned, other);
      return other === unit || overX <= 0 || overY <= 0 ? sum : sum + overX * overY;
    }, h * Math.max(0, w / 2 - middle, middle + w / 2 - W));
  });
  Object.assign(unit, sides[left < right ? 1 : 0]);
};

// Moves units until none covers another, each pair along the shorter way.
const moveApart = (units, W, H) => {
  for (let round = 0, moved = true; moved && round < 1000; round++) {
    moved = false;
    for (let i = 0; i < units.length; i++) {
      const { place: p, cover: [mx, my, w, h], share } = units[i];
      for (let j = 0; j < i; j++) {
        const { place: q, cover: [ox, oy], share: other } = units[j];
        const dx = p[0] + mx - q[0] - ox, dy = p[1] + my - q[1] - oy;
        const [overX, overY] = covering(units[i], units[j]);
        if (overX <= 0 || overY <= 0) continue;
        const axis = overX < overY ? 0 : 1, by = ((axis ? overY : overX) + 0.2) / (share + other);
        const sign = (axis ? dy : dx) < 0 ? -1 : 1;
        p[axis] += sign * by * share; q[axis] -= sign * by * other;
        moved = true;
      }
      p[0] = Math.min(Math.max(p[0], w / 2 - mx), W - w / 2 - mx);
      p[1] = Math.min(Math.max(p[1], h / 2 - my), H - 16 - h / 2 - my);
    }
  }
};

D.map = (network) => {
  if (network.map) return network.map;
  const bounds = [0, 1].map((i) => network.nodes.map((n) => n.at[i]))
    .map((all) => [Math.min(...all), Math.max(...all)]);
  const [[south, north], [west, east]] = bounds;
  const narrow = Math.cos((south + north) / 2 * Math.PI / 180);
  const units = unitsOf(network.nodes), sites = units.filter((u) => u.kind === "hosts");
  const most = (i) => Math.max(0, ...sites.map((u) => u.cover[i])); // width and height of sites
  const W = 1040, side = 24 + most(2) / 2, top = Math.max(50, most(3) / 2 + 16);
  const scale = Math.min((W - 2 * side) / Math.max((east - west) * narrow, 0.1),
    520 / Math.max(north - south, 0.1));
  const hosts = network.nodes.filter((n) => n.kind === "host").length;
  const H = Math.max((north - south) * scale + 2 * top, 440, hosts * 18);
  const left = (W - (east - west) * narrow * scale) / 2, over = (H - (north - south) * scale) / 2;
  const x = (lon) => left + (lon - west) * narrow * scale, y = (lat) => over + (north - lat) * scale;
  const place = {}, here = {};
  for (const unit of units) {
    const key = unit.at.join(), nth = here[key] = (here[key] ?? -1) + 1;
    unit.place = [x(unit.at[1]) + (nth ? 12 : 0), y(unit.at[0]) + nth * 3 - unit.up];
  }
  moveApart(units.filter((u) => u.kind !== "hosts"), W, H);
  for (const unit of sites) beside(unit, units, network, W);
  moveApart(units, W, H);
  for (const { members, side, place: [px, py] } of units)
    for (const [name, dx, dy] of members) place[name] = [px + dx, py + dy, side];
  const step = [1, 2, 5, 10, 20, 30].find((s) => s * scale >= 90) ?? 30;
  const lines = (low, high, draw) => Array.from({ length: Math.floor(high / step)
    - Math.ceil(low / step) + 1 }, (_, i) => draw((Math.ceil(low / step) + i) * step));
  const shown = (degrees, plus, minus) => `${Math.abs(degrees)}° ${degrees < 0 ? minus : plus}`;
  const reach = (px) => px / scale;
  const grid = D.el("g", {}, lines(south - reach(over), north + reach(over), (lat) => D.el("g", {},
    D.el("line", { class: "grid", x1: 0, x2: W, y1: y(lat), y2: y(lat) }),
    D.el("text", { class: "tick", x: 4, y: y(lat) - 4 }, shown(lat, "N", "S")))),
  lines(west - reach(left) / narrow, east + reach(left) / narrow, (lon) => D.el("g", {},
    D.el("line", { class: "grid", x1: x(lon), x2: x(lon), y1: 0, y2: H }),
    D.el("text", { class: "tick", x: x(lon) + 4, y: H - 4 }, shown(lon, "E", "W")))));
  return network.map = { W, H, place, grid };
};
