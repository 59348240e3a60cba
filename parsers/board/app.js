// SPDX-License-Identifier: Apache-2.0
"use strict";
// The page. The address's fragment says what it shows, so that a view can be cited.
(async () => {
  const $ = (id) => document.getElementById(id);
  const live = document.documentElement.dataset.live !== undefined;
  let version = 0;
  const ask = async () => {
    const answer = await fetch("v1/board");
    version = (answer.headers.get("etag") || "").replaceAll('"', "") || 0;
    return answer.json();
  };
  let board = live ? await ask() : JSON.parse($("board").textContent);
  const decoded = new Map();
  const view = { cell: null, metric: "latency", hosts: [], product: null, t: null, from: 0, to: null,
    layers: false, sort: "host", play: 0, follow: live, lines: null };
  let d = null, end = 1, cell = null, series = null, heat = null, heatCell = 0;

  // -- the fragment -------------------------------------------------------------------------------
  const readFragment = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const names = board.cells.map((c) => c.name);
    view.cell = names.includes(given.get("cell")) ? given.get("cell") : names[0] ?? null;
    if (Object.hasOwn(D.SERIES, given.get("metric"))) view.metric = given.get("metric");
    view.hosts = (given.get("hosts") || "").split(",").filter(Boolean).slice(0, 4);
    const number = (name) => given.has(name) && Number.isFinite(+given.get(name))
      ? +given.get(name) : null;
    view.layers = given.get("network") === "layers";
    view.lines = given.has("lines") ? [...new Set(given.get("lines").split(",")
      .filter((n) => /^\d{1,4}$/.test(n)).map(Number))] : null;
    view.t = number("t"); view.product = number("product");
    if (!Number.isInteger(view.product)) view.product = null;
    view.from = number("from") ?? 0; view.to = number("to");
    if (view.t !== null) view.follow = false;
  };
  const writeFragment = () => {
    const out = new URLSearchParams();
    if (board.cells.length > 1) out.set("cell", view.cell);
    if (view.metric !== "latency") out.set("metric", view.metric);
    if (view.hosts.length) out.set("hosts", view.hosts.join(","));
    if (view.layers) out.set("network", "layers");
    if (view.lines) out.set("lines", view.lines.join(","));
    if (view.product !== null) out.set("product", view.product);
    if (view.t !== null && !view.follow) out.set("t", +view.t.toFixed(3));
    if (view.from) out.set("from", +view.from.toFixed(3));
    if (view.to !== null) out.set("to", +view.to.toFixed(3));
    history.replaceState(null, "", "#" + out);
  };
  const window_ = () => {
    const from = Math.min(Math.max(view.from, 0), end * 0.999);
    return [from, Math.max(Math.min(view.to ?? end, end), from + end * 1e-4)];
  };
  const now = () => view.follow || view.t === null ? end : Math.min(Math.max(view.t, 0), end);

  // -- the run ------------------------------------------------------------------------------------
  const metric = (name) => board.metrics[name] || { label: name, unit: "" };
  const drawTop = () => {
    document.title = `${board.run} – Downpour`;
    $("title").textContent = board.run;
    $("kind").textContent = `${board.clock} clock`
      + (board.clock.includes("virtual") ? " (times are the guest's, exact and repeatable)" : "")
      + (live ? ", live" : "");
    const verdict = $("verdict");
    verdict.className = `verdict ${board.verdict}`;
    const list = (texts) => D.el("ul", {}, texts.map((t) => D.el("li", {}, t)));
    const [worst] = board.doubts; // with the others below, the style sheet cuts it to three lines
    D.put(verdict, D.el("strong", {}, board.headline || board.verdict.toUpperCase()),
      worst && list([worst]), worst && (board.doubts.length > 1 || worst.length > 120)
        && D.el("details", {}, D.el("summary", {}, `All doubts: ${board.doubts.length}`),
          list(board.doubts)));
    D.put($("result"), board.result.map((t, i) => D.el("p", { class: i ? null : "first" }, t)));
  };
  const drawBeside = () => {
    const known = board.beside.filter((h) => h.paper !== null && h.paper !== 0);
    const rows = known.filter((h) => h.ours), others = known.length - rows.length;
    $("beside").hidden = !rows.length;
    if (!rows.length) return;
    const names = D.rowNames(rows, (h) => `${metric(h.metric).label}, ${h.protocol.toUpperCase()}`);
    const shown = rows.map((h, i) => ({ paper: h.paper, ours: h.ours ? h.ours.mean : null,
      low: h.ours && h.ours.n > 1 ? h.ours.low : null, high: h.ours && h.ours.n > 1 ? h.ours.high
        : null, name: names[i],
      sentence: h.sentence || h.reason }));
    const values = () => D.table("Ours beside the published values",
      ["Metric", "Ours", "Published", "Difference", "Source", "Conditions"],
      rows.map((h, i) => [shown[i].name, D.show(shown[i].ours, metric(h.metric).unit, h.reason),
        D.show(h.paper, metric(h.metric).unit), h.difference_percent === null ? "n/a"
          : `${h.difference_percent > 0 ? "+" : ""}${D.digits(h.difference_percent)} %`,
        h.source, h.conditions]), 1);
    D.put($("beside-body"), D.figure("Dots: ours, with the 95 % interval where there are repeats. "
      + "Hollow diamonds: the published value.", D.besideChart(shown, Math.min(900,
      $("beside-body").clientWidth || 900)), values), D.el("ul", { class: "notes" },
    rows.filter((h) => h.sentence).slice(0, 6).map((h) => D.el("li", {}, h.sentence)),
    others ? D.el("li", {}, `Published values that this run did not measure: ${others}.`) : null));
  };
  const drawSweep = () => {
    const sweep = D.sweepOf(board.points, board.shown_metrics);
    $("sweep").hidden = !sweep && !board.claims.length;
    if ($("sweep").hidden) return;
    const factor = sweep && (board.factors?.[sweep.axis] ?? { label: sweep.axis, unit: "", scale: 1 });
    const pick = (c) => { choose(c); $("cell").scrollIntoView(); };
    const lines = sweep?.lines ?? [];
    const shown = (view.lines ?? lines.map((_, i) => i).slice(0, D.MOST_LINES))
      .filter((i) => i < lines.length);
    const toggle = (i) => {
      view.lines = shown.includes(i) ? shown.filter((k) => k !== i) : [...shown, i].sort((a, b) => a - b);
      writeFragment(); drawSweep();
    };
    D.put($("legend"), lines.length > 1 ? [lines.map((line, i) => D.el("button", { type: "button",
      class: "key", "aria-pressed": String(shown.includes(i)), onclick: () => toggle(i) },
    shown.includes(i) ? D.key(sweep.isNumeric ? `chosen c${D.styleOf(sweep, shown, i)}` : "none",
      line.name, D.styleOf(sweep, shown, i)) : line.name)),
    shown.length < lines.length
      ? D.el("span", { class: "hint" }, `${shown.length} of ${lines.length} lines are shown.`) : null]
      : null);
    D.put($("multiples"), sweep && sweep.metrics.slice(0, 8).map((name) =>
      D.multiple(name, metric(name), sweep, factor, shown, pick)));
    D.put($("sweep-table"), sweep && D.figure("A dot leads to its cell; bars are 95 % intervals.",
      null, () => D.sweepTable(sweep, factor, metric)));
    const folded = (texts, what, text) => texts.length < 3 ? text : D.el("details", {},
      D.el("summary", {}, `${texts.length} ${what}`), D.el("ul", {}, texts.map((t) =>
        D.el("li", {}, t))));
    D.put($("claims"), board.claims.length ? D.table("Claims of the paper", ["Claim", "Here",
      "Numbers", "Why", "Source"], board.claims.map((c) => [c.text, c.verdict,
      folded(c.parts.map((p) => `${p.label}: ${p.numbers}`), "comparisons", c.numbers),
      folded(c.reasons, "reasons", c.reason), c.source]), 5) : null);
  };

  // -- a cell -------------------------------------------------------------------------------------
  const load = async (bytes = null, first = 0) => {
    const before = d;
    cell = board.cells.find((c) => c.name === view.cell) ?? null;
    d = null;
    if (!cell) return;
    if (!decoded.has(cell.name)) {
      if (!bytes && live && cell.blob) {
        const answer = await fetch(`v1/cells/${encodeURIComponent(cell.name)}/deliveries.bin`);
        if (answer.ok) bytes = new Uint8Array(await answer.arrayBuffer());
      } else if (!bytes && $(`blob-${cell.name}`)) bytes = D.fromBase64($(`blob-${cell.name}`).textContent);
      decoded.set(cell.name, bytes && bytes.length ? await D.decode(bytes) : null);
    }
    d = decoded.get(cell.name);
    if (first && !D.fits(before, first, d)) { decoded.delete(cell.name); return load(); }
    if (first) d = D.joined(before, first, d);
    if (live) decoded.delete(cell.name); // it grows
    end = d ? D.end(d) : 1;
    if (d && !(view.product >= 0 && view.product < d.n)) view.product = null;
    series = heat = null;
  };
  const drawCell = () => {
    $("cell").hidden = !cell;
    if (!cell) return;
    D.put($("picker"), board.cells.map((c) => D.el("option", { value: c.name,
      selected: c.name === view.cell }, `${c.name} (${c.verdict})`)));
    $("pick").hidden = board.cells.length < 2;
    $("none").hidden = !!d;
    $("none").textContent = cell.why_no_blob || "";
    $("with").hidden = !d;
    if (d) { drawReceivers(); drawSeries(); drawHeat(); drawTime(false); }
    drawEvidence();
  };
  const pickHost = (host) => {
    view.hosts = view.hosts.includes(host) ? view.hosts.filter((h) => h !== host)
      : [...view.hosts, host].slice(-4);
    drawReceivers(); drawSeries(); writeFragment();
  };
  const drawReceivers = () => {
    const filter = $("filter").value.toLowerCase();
    d.receivers ??= d.hosts.map((_, row) => D.receiver(d, row));
    const found = d.receivers.filter((r) => r.host.toLowerCase().includes(filter));
    D.put($("receivers"), D.table(`Receivers of ${d.n} products`, ["Receiver", "RTT", "Arrived",
      "Missing", "Repaired", "Blocks again", "FMTP throughput", "FFDR", "MPLR", "Latency p50",
      "p99"], found.map((r) => [D.el("button", { type: "button", class: "pick",
      "aria-pressed": String(view.hosts.includes(r.host)), onclick: () => pickHost(r.host) }, r.host),
    D.show((cell.rtt_ms[r.host] ?? NaN) / 1e3, "s"), String(r.arrived), String(r.missing),
    String(r.repaired), String(r.blocks), D.show(r.throughput, "bit/s"), D.show(r.ffdr, "%"),
    D.show(r.mplr, "%"), D.show(r.p50, "s"), D.show(r.p99, "s")])));
  };
  const drawSeries = () => {
    series ??= D.series(d, view.metric, end);
    const chosen = view.hosts.map((h) => d.hosts.indexOf(h)).filter((r) => r >= 0);
    const holder = $("series");
    const size = { width: Math.max(340, Math.min(1040, holder.clientWidth || 1040)), height: 300 };
    const picture = D.seriesChart(d, view.metric, series, window_(), chosen, now(), cell.events,
      size);
    const names = chosen.map((r, i) => D.key(`chosen c${i % 4}`, d.hosts[r]));
    D.put(holder, D.figure(D.seriesSentence(d, view.metric, series), D.el("div", {}, picture,
      D.el("p", { class: "keys" }, D.key("median", "median receiver"),
        D.key("band", "10–90 % of the receivers"), names)),
    () => D.table(D.SERIES[view.metric].label, ["Until", "10 %", "Median", "90 %", ...chosen.map(
      (r) => d.hosts[r])], series.median.map((v, i) => [D.clock((i + 1) * series.width),
      ...[series.low[i], v, series.high[i], ...chosen.map((r) => series.rows[r][i])].map((w) =>
        D.show(w, D.SERIES[view.metric].unit))]))));
  };
  const drawHeat = () => {
    heat ??= D.heat(d, Math.min(900, Math.max(1, d.n)));
    const scale = D.heatScale(heat), column = view.product === null ? -1
      : Math.floor(view.product * heat.count / d.n);
    heatCell = D.drawHeat($("heat"), heat, scale, d.m, column);
    $("heat").setAttribute("aria-label", `Latency of ${d.n} products at ${d.m} receivers, `
      + `${D.show(scale.low, "s")} (dark) to ${D.show(scale.high, "s")} (bright)`);
    D.put($("heat-names"), d.hosts.map((h) => D.el("li", {}, h)));
    $("heat").style.height = `${d.m * Math.max(heatCell, 9)}px`;
    D.put($("heat-key"), `Dark: ${D.show(scale.low, "s")}; bright: ${D.show(scale.high, "s")}. `
      + "Orange line: repaired by FMTP. White line: backstop or backlog. Red stripes: never came."
      + (heat.count < d.n ? ` A column is ${D.digits(d.n / heat.count)} products.` : ""));
    drawProduct();
  };
  const drawProduct = () => {
    $("product").hidden = view.product === null;
    if ($("product").hidden) return;
    const i = view.product;
    D.put($("product"), D.table(`${d.idents[i]}: ${D.show(d.size[i], "B")}, created at `
      + D.clock(d.created[i]), ["Receiver", "Came by", "Latency", "FMTP delay from BOP",
      "Blocks again"], d.hosts.map((h, row) => {
      const k = row * d.n + i, way = d.way[k], fmtp = way === 1 || way === 2;
      return [h, D.WAYS[way], D.show(way ? d.latency[k] : null, "s"),
        D.show(fmtp ? d.delay[k] : null, "s"), fmtp ? String(d.blocks[k]) : "n/a"];
    }), 2));
  };
  const drawTime = (alsoInSeries = true) => {
    const t = now();
    $("scrub").max = String(end); $("scrub").step = String(end / 2000); $("scrub").value = String(t);
    $("scrub").setAttribute("aria-valuetext", `${D.clock(t)} of ${D.clock(end)}`);
    $("at").textContent = `${t >= end ? "end, " : ""}${D.clock(t)}`;
    D.put($("events"), cell.events.filter((e) => e.at_s >= 0).slice(0, 12).map((e) => D.el("button",
      { type: "button", onclick: () => goto(e.at_s) }, `${D.clock(e.at_s)}: ${e.text}`)));
    const product = view.product ?? (d.n ? D.nearest(d, t) : null);
    $("h-tree").hidden = !cell.network;
    $("how").hidden = !(cell.network && D.hasMap(cell.network));
    if (!cell.network) D.put($("tree"));
    else {
      const asMap = !$("how").hidden && !view.layers;
      $("layers").setAttribute("aria-pressed", String(!asMap));
      const [picture, sentence] = D.networkChart(cell.network, asMap ? D.map(cell.network)
        : D.layers(cell.network), d, t, product);
      D.put($("tree"), D.figure(sentence, D.el("div", { class: "scroll", tabindex: "0",
        role: "group", "aria-label": "Network" }, picture), () => D.table("Links", ["Link",
        "Load", "Lost"], cell.network.edges.map((e) => [`${e.a} – ${e.b}`, D.show(e.bps, "bit/s",
        "not counted"), D.show(100 * e.lost_share, "%")]))));
    }
    const flying = D.flying(d, t, 8);
    D.put($("flying"), D.el(cell.network ? "h4" : "h3", {}, `On their way: ${flying.count} products`),
      D.el("ol", { class: "bars" }, flying.latest.map((f) => D.el("li", {}, D.el("button",
        { type: "button", onclick: () => { view.product = f.i; drawHeat(); drawTime();
          writeFragment(); } }, d.idents[f.i]), D.el("progress", { max: d.m, value: f.there,
        "aria-label": d.idents[f.i] }), ` ${f.there} of ${d.m}`))));
    if (alsoInSeries && series) drawSeries();
  };
  const drawEvidence = () => {
    const checks = cell.checks.filter((c) => c.status !== "n/a");
    const good = checks.filter((c) => c.status === "pass");
    const doubtful = checks.filter((c) => c.status !== "pass");
    const row = (c) => [c.name, c.status, c.text];
    D.put($("evidence"), D.el("p", {}, checks.length ? `${good.length} of ${checks.length} checks `
      + "pass." : "No checks yet."), doubtful.length ? D.table("Doubtful", ["Check", "Status",
      "Found"], doubtful.map(row), 3) : null, good.length ? D.el("details", {}, D.el("summary", {},
      `Checks that pass: ${good.length}`), D.table("Passed", ["Check", "Status", "Found"],
      good.map(row), 3)) : null,
    D.el("details", {}, D.el("summary", {}, "All metrics of this cell"), D.table("Metrics",
      ["Metric", "Value", "Source"], Object.entries(cell.values).map(([n, [v, why]]) =>
        [metric(n).label, D.show(v, metric(n).unit, v === null ? why : ""), metric(n).source]))));
    D.put($("files"), board.commands.map((c) => D.el("code", {}, c)));
  };
  const drawAll = () => { drawTop(); drawBeside(); drawSweep(); drawCell(); };
  const choose = async (name) => {
    Object.assign(view, { cell: name, product: null, t: null, from: 0, to: null, follow: live && name === board.newest });
    await load(); drawCell(); writeFragment();
    if (live) listen();
  };
  const goto = (t) => {
    view.t = Math.min(Math.max(t, 0), end); view.follow = live && t >= end;
    drawTime(); writeFragment();
  };

  // -- time ---------------------------------------------------------------------------------------
  let last = 0;
  const tick = (stamp) => {
    if (!view.play) return;
    const t = now() + (stamp - last) / 1e3 * view.play;
    last = stamp; goto(t);
    if (t >= end) play(0); else requestAnimationFrame(tick);
  };
  const play = (speed) => {
    view.play = speed;
    $("play").textContent = speed ? "Pause" : "Play";
    $("play").setAttribute("aria-pressed", String(!!speed));
    if (!speed) return;
    if (now() >= end) view.t = 0;
    view.follow = false; last = performance.now();
    requestAnimationFrame(tick);
  };
  const zoom = (factor) => {
    const [from, to] = window_(), middle = Math.min(Math.max(now(), from), to);
    const half = Math.min(end, (to - from) * factor) / 2;
    view.from = Math.max(0, middle - half); view.to = Math.min(end, middle + half);
    if (view.to - view.from >= end * 0.999) { view.from = 0; view.to = null; }
    drawSeries(); writeFragment();
  };
  const step = (by) => goto(now() + by * (window_()[1] - window_()[0]) / 200);
  const product = (by) => {
    view.product = Math.min(d.n - 1, Math.max(0, (view.product ?? -1) + by));
    drawHeat(); drawTime(); writeFragment();
  };
  const receiver = (by) => {
    const at = d.hosts.indexOf(view.hosts[0]);
    view.hosts = [d.hosts[(at + by + d.m) % d.m]];
    drawReceivers(); drawSeries(); writeFragment();
  };
  const KEYS = {
    ArrowLeft: (e) => step(e.shiftKey ? -10 : -1), ArrowRight: (e) => step(e.shiftKey ? 10 : 1),
    " ": () => $("play").click(), "+": () => zoom(0.5), "-": () => zoom(2),
    0: () => { view.from = 0; view.to = null; drawSeries(); writeFragment(); },
    "[": () => receiver(-1), "]": () => receiver(1), ",": () => product(-1), ".": () => product(1),
    "/": () => $("filter").focus(), "?": () => $("help").showModal(),
    Escape: () => { view.product = null; view.hosts = []; drawCell(); writeFragment(); },
  };
  document.addEventListener("keydown", (e) => {
    const tag = e.target.tagName, key = e.key in KEYS;
    if (!key || !d || e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
    if (tag === "INPUT" && e.target.type === "text" || tag === "SELECT") {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (e.key === " " && ["BUTTON", "SUMMARY", "A"].includes(tag)) return;
    if (e.key.startsWith("Arrow") && e.target.closest(".scroll")) return;
    e.preventDefault(); KEYS[e.key](e);
  });

  // -- controls -----------------------------------------------------------------------------------
  for (const [name, about] of Object.entries(D.SERIES))
    $("metric").append(D.el("option", { value: name }, about.label));
  $("metric").addEventListener("change", (e) => {
    view.metric = e.target.value; series = null; drawSeries(); writeFragment();
  });
  $("picker").addEventListener("change", (e) => choose(e.target.value));
  $("filter").addEventListener("input", drawReceivers);
  $("scrub").addEventListener("input", (e) => goto(+e.target.value));
  $("play").addEventListener("click", () => play(view.play ? 0 : +$("speed").value));
  $("layers").addEventListener("click", () => {
    view.layers = !view.layers; drawTime(); writeFragment();
  });
  $("asks").addEventListener("click", () => $("help").showModal());
  $("shut").addEventListener("click", () => $("help").close());
  $("heat").addEventListener("click", (e) => {
    const box = $("heat").getBoundingClientRect();
    view.product = Math.min(d.n - 1, Math.floor((e.clientX - box.left) / box.width * d.n));
    drawHeat(); drawTime(); writeFragment();
  });
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => { drawBeside(); if (d) drawSeries(); }, 150);
  });
  addEventListener("hashchange", async () => { readFragment(); await load(); drawCell(); });

  // -- live ---------------------------------------------------------------------------------------
  const RETRY_MS = 3000;
  let said = 0;
  const say = (text) => {
    if (performance.now() - said < 5000) return;
    said = performance.now(); $("said").textContent = text;
  };
  // A stream covers one cell; another cell, or the newest, needs another stream.
  let source = null, turn = Promise.resolve();
  const inTurn = (work) => { turn = turn.then(work).catch((e) => console.error(e)); };
  const listen = () => {
    source?.close();
    source = new EventSource(`v1/events?since=${version}`
      + (view.follow ? "" : `&cell=${encodeURIComponent(view.cell ?? "")}`));
    source.addEventListener("board", (e) => inTurn(async () => {
      board = JSON.parse(e.data);
      version = e.lastEventId;
      const known = board.cells.find((c) => c.name === view.cell), before = view.cell;
      if (!known || view.follow && board.newest)
        view.cell = board.newest ?? board.cells[0]?.name ?? null;
      if (view.cell !== before || !d) await load(); else cell = known;
      drawTop(); drawBeside(); drawSweep(); drawCell();
    }));
    source.addEventListener("deliveries", (e) => inTurn(async () => {
      const news = JSON.parse(e.data);
      version = e.lastEventId;
      if (news.cell !== view.cell) return;
      const chosen = d && view.product !== null ? d.idents[view.product] : undefined;
      await load(D.fromBase64(news.data), news.from);
      if (chosen !== undefined) { // its column moves when the oldest go
        const column = d.idents.indexOf(chosen);
        view.product = column < 0 ? null : column;
      }
      drawCell();
      if (d) say(`${d.n} products, ${D.clock(end)}`);
    }));
    const own = source;
    own.onerror = () => {
      $("state").textContent = "no connection; trying again";
      if (own.readyState === EventSource.CLOSED) // a refusal: the browser does not try again
        setTimeout(() => { if (own === source) listen(); }, RETRY_MS);
    };
    source.onopen = () => { $("state").textContent = "live"; };
  };

  readFragment();
  $("metric").value = view.metric;
  $("state").hidden = !live;
  await load(); drawAll();
  if (live) listen();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
