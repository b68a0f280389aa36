// Documents: each is drawn into its card as it comes ------------------------------------------------
const recall = ({ series: past }) => {
  for (const name of Object.keys(series)) delete series[name];
  Object.assign(series, past, { bytes: past.bytes_in_per_second.map((value, i) => value + past.bytes_out_per_second[i]) });
};
let entries = "open", simulated = false;
const behind = log => Math.max(0, ...log.views.map(view => view.behind));
const drawChoice = ({ node: chosen, nodes }) => {
  node = chosen;
  if ($("node").length !== nodes.length) $("node").replaceChildren(...nodes.map(name => el("option", { selected: name === chosen }, name)));
  $("choice").hidden = false;
  for (const link of document.querySelectorAll("header nav a:not([href='/v1'])")) link.hidden = true;
  if (!simulated) { simulated = true; go(); }
};
const lagging = (lag, growing) => lag == null ? quiet("-") : growing || lag > 10000 ? chip(`${count(lag)}${growing ? " ↑" : ""}`, "warn") : count(lag);
// Bytes per second of each link, since it was told of last.
const speeds = new Map();
const speedOf = link => {
  const name = `${link.protocol} ${link.remote}`, at = Date.now(), total = link.bytes_in + link.bytes_out, last = speeds.get(name);
  const gone = last && total < last.total;  // another link of the same address
  if (!last || gone) speeds.set(name, { at, total, rate: 0 });
  else if (at - last.at > 500) speeds.set(name, { at, total, rate: (total - last.total) / (at - last.at) * 1000 });
  return speeds.get(name).rate;
};
const failures = { links: [], warnings: [] };
const drawFailures = () => {
  const body = card("warnings", "Recent failures", "/v1/warnings");
  const linked = page.name === "failures" ? failures.links : [];
  const rows = [...failures.warnings.map(w => ({ ...w, what: told(w) })),
    ...linked.map(l => ({ time: new Date(now() - l.seconds_ago * 1000).toISOString(), level: "link", event: "link_failed", code: l.code, advice: l.advice, what: `${l.protocol} ${l.remote}: ${l.text}` }))]
    .sort((a, b) => a.time < b.time ? 1 : -1);
  $("warnings-count").textContent = rows.length || "";
  if (!rows.length) return drawEmpty(body, "None since the start.");
  drawTable(body, [["what", w => w.event.replaceAll("_", " "), "name"], ["level", w => chip(w.level, w.level === "warning" ? "warn" : "bad")],
    ["time", w => w.time.slice(11, 19), "m"], ["code", w => w.code || "", "m"], ["about", w => w.what, "wrap"], ["what helps", w => w.advice || "", "wrap"]],
    rows.slice(0, 100), (() => { const seen = {}; return w => { const name = `${w.level} ${w.event} ${w.what} ${w.level === "link" ? "" : w.time}`; seen[name] = (seen[name] || 0) + 1; return `${name} ${seen[name]}`; }; })());
};
const told = w => Object.entries(w).filter(([k]) => !["time", "level", "logger", "event", "exception", "code", "advice"].includes(k)).map(([k, v]) => `${k}=${principal(String(v))}`).join(" ");
const typedTables = sink => Object.keys(sink.tables || {}).filter(name => /^(table|view)\//.test(name)).map(name => {
  const told = sink.report[name] || {};
  const [kind, ...called] = name.split("/");
  const facts = [`${count(told.rows || 0)} rows`];
  if (told.rejects != null) facts.push(`${count(told.rejects)} rejects`);
  if (told.schema_version) facts.push(`schema ${told.schema_version}`);
  if (told.rows_behind != null) facts.push(`${count(told.rows_behind)} behind`);
  if (told.files != null) facts.push(`${bytes(told.bytes)} in ${count(told.files)} files`, `committed ${ago(told.committed_at)}`);
  return `${called.join("/")} ${kind === "view" ? "(view) " : ""}${sink.tables[name].state}: ${facts.join(", ")}`;
}).join("; ");
// How plug-ins' tables show what stands in a column.
const toldOr = make => value => value == null ? "-" : make(value);
const forms = {
  text: toldOr(String), words: value => value == null ? "" : String(value), count, rate: rated, seconds, time: ago, bytes: toldOr(bytes),
  state: toldOr(value => chip(String(value), { ok: "good", open: "good", connected: "good", running: "good", ready: "good", failed: "bad", lost: "bad", parked: "bad" }[value] || "")),
};
const drawQueues = queues => {
  $("queues").hidden = !queues.length;
  if (!queues.length) return;
  const body = card("queues", "Work queues", "/v1/queues");
  $("queues-count").textContent = queues.length;
  drawTable(body, [["queue", q => q.queue, "name"], ["stream", streamOf, "name"], ["depth", q => count(q.depth), "n"],
    ["in flight", q => count(q.in_flight), "n"], ["waiting", q => count(q.waiting), "n"],
    ["oldest", q => q.oldest_at ? seconds(Math.max(0, now() - q.oldest_at) / 1000) : "", "n"],
    ["done", q => count(q.done), "n"], ["dead", q => q.dead ? chip(count(q.dead), "bad") : quiet("0"), "n"],
    ["workers", q => count(q.workers), "n"], ["held", q => q.held, "wrap"],
    ...admin.principal ? [["admin", q => q.dead ? press("give dead again", q.queue, { do: "retry", stream: q.stream, queue: q.queue }, d => `${count(d.taken)} are given again, ${count(d.gone)} are gone.`) : ""]] : []],
  queues, q => `${q.stream} ${q.queue}`);
};
const draw = {
  overview(o) {
    document.title = `${o.name} · rillnode`;
    $("name").textContent = o.name;
    const failing = o.checks.filter(check => !check.ok);
    $("state").textContent = failing.length && o.state === "ready" ? "not ready" : o.state;
    $("state").className = `chip ${failing.length ? "bad" : "good"}`;
    $("banner").textContent = failing.map(check => `${check.name}: ${check.reason}`).join("; ");
    $("banner").hidden = !failing.length || simulated;
    const fact = (name, value, title) => el("span", title ? { title } : {}, `${name} `, el("b", { class: name === "id" ? "mono" : null }, value));
    $("facts").replaceChildren(fact("id", o.identity.slice(0, 8), o.identity), fact("version", o.version), fact("up", seconds(o.uptime_seconds)),
      ...o.log ? [fact("log", `${count(o.log.shards)} shards${behind(o.log) ? `, ${count(behind(o.log))} behind` : ""}`, JSON.stringify(o.log, null, 1))] : []);
    entries = o.entries;
    if (o.simulation) drawChoice(o.simulation);
    else remember(withBytes(o.now));
    if (shows("tiles")) drawTiles(o);
  },
  queues: d => { drawQueues(d.queues); },
  streams(d) { drawStreams(d); },
  stream(d) { drawStream(d); },
  consumers(d) { drawConsumers(d.positions, d.total, null); drawGroups(d.groups, null); },
  links(d) {
    failures.links = d.failed;
    if (page.name === "failures") return drawFailures();
    const body = card("links", "Links", "/v1/links");
    $("links-count").textContent = `${count(d.count)} open${d.failed.length ? ` · ${d.failed.length} failed lately` : ""}`;
    const rows = [...d.links, ...d.failed.slice(0, 10).map(one => ({ ...one, state: "failed", peer: "" }))];
    if (!rows.length) return drawEmpty(body, "Nobody is connected. Listen to what is pushed from another terminal:", "rillnode stream tail sensors");
    const open = make => l => l.state === "failed" ? "" : make(l);
    drawTable(body, [
      ["address", l => l.remote, "m"], ["state", l => chip(l.state, { open: "good", failed: "bad", closing: "warn" }[l.state])],
      ["protocol", l => l.protocol], ["direction", l => l.direction || ""],
      ["principal", l => whose(l.peer), "m wide"], ["route", l => l.route || "", "m wide"], ["rate", open(l => { const speed = speedOf(l); return speed ? `${bytes(speed)}/s` : quiet("0 B/s"); }), "n"],
      ["in", open(l => bytes(l.bytes_in)), "n"], ["out", open(l => bytes(l.bytes_out)), "n"], ["round trip", open(l => seconds(l.round_trip_seconds)), "n"],
      ["since", l => l.state === "failed" ? `${seconds(l.seconds_ago)} ago` : seconds(l.seconds), "n"],
      ["last error", l => l.state === "failed" ? `${l.text} [${l.code}]${l.advice ? `: ${l.advice}` : ""}` : "", "wrap"],
    ], rows, (() => { let n = 0; return one => `${one.state === "failed"} ${one.protocol} ${one.remote} ${one.state === "failed" ? n++ : ""}`; })());
    linkRates = new Map(d.links.filter(l => l.direction === "out").map(l => [l.remote, speedOf(l)]));
  },
  peers(d) {
    const body = card("peers", "Peers", "/v1/peers");
    $("peers-count").textContent = d.peers.length || "";
    if (!d.peers.length) return drawEmpty(body, "This node sends to no other node. Name one in node.toml:", '[[peer]]\nname = "core"\nockam = "core.example.org:4000"');
    // A peer that was not reached is no idle one, though it is not tried again before something is sent.
    const state = p => p.unreached ? chip(p.state === "dialling" ? "failed, dialling" : "failed", "bad") : chip(p.state, { open: "good", connected: "good", failed: "bad" }[p.state] || "");
    const about = [["name", p => p.name, "name"], ["state", state], ["address", p => p.address, "m"], ["speaks", p => p.speaks], ["principal", p => whose(p.principal || "not proved"), "m wide"], ["route", p => p.route || "", "m wide"],
      ["rate", p => linkRates.has(p.address) ? `${bytes(linkRates.get(p.address))}/s` : quiet("-"), "n"], ["links", p => count(p.links), "n"], ["waiting", p => count(p.waiting), "n"], ["last error", p => p.last_error, "wrap"]];
    drawTable(body, about, d.peers, p => p.name);
  },
  sinks(d) {
    const body = card("sinks", "Sinks", "/v1/sinks");
    $("sinks-count").textContent = d.sinks.length || "";
    if (!d.sinks.length) return drawEmpty(body, "No stream goes into a table. Name a Spark sink in node.toml:", '[[sink.spark]]\nname = "bronze"\nstreams = ["sensors*"]\ntable_dir = "data/tables"');
    drawTable(body, [["name", s => s.name, "name"],
      ["state", s => chip(s.state, s.state === "running" ? "good" : ["parked", "failed", "waiting to start again"].includes(s.state) ? "bad" : "warn")],
      ["lag", s => s.rows_behind > 10000 ? chip(count(s.rows_behind), "warn") : count(s.rows_behind), "n"], ["lag in bytes", s => bytes(s.bytes_behind || 0), "n"],
      ["last commit", s => ago(s.committed_at), "n"], ["restarts", s => s.starts > 1 ? chip(count(s.starts - 1), "warn") : quiet("0"), "n"],
      ["batch", s => count(s.report.batch), "n"], ["rows/s", s => count(s.report.rows_per_second), "n"],
      ["took", s => seconds(s.report.seconds), "n"], ["last error", s => s.error || s.last_error, "wrap"], ["typed tables and views", typedTables, "wrap"],
      ...admin.principal ? [["admin", s => ["paused", "parked", "pausing"].includes(s.state) ? press("resume", s.name, { do: "run_sink", sink: s.name, run: true }, () => `${s.name} starts.`) : press("pause", s.name, { do: "run_sink", sink: s.name, run: false }, () => `${s.name} ends after its batch.`)]] : []],
    d.sinks, s => s.name);
  },
  tables(d) {
    const ids = d.tables.map(one => `of-${one.plug_in}-${one.name}`);
    for (const box of document.querySelectorAll("main section[data-plug-in]")) if (!ids.includes(box.id)) box.remove();
    d.tables.forEach((one, at) => {
      const id = ids[at];
      if (!$(id)) $("warnings").before(el("section", { class: "card", id, "data-plug-in": one.plug_in, "aria-labelledby": `${id}-title` }));
      const body = card(id, one.title, "/v1/tables");
      $(`${id}-count`).textContent = one.rows.length || "";
      if (!one.rows.length) return drawEmpty(body, one.empty);
      drawTable(body, one.columns.map(({ key, kind, heading }, nth) => [heading, row => forms[kind](row[key]), nth ? { words: "wrap", text: "", state: "" }[kind] ?? "n" : "name"]),
        one.rows, row => String(row[one.columns[0].key]));
    });
  },
  actors(d) {
    const body = card("actors", "Actors", "/v1/actors");
    $("actors-count").textContent = count(d.actors.reduce((sum, one) => sum + one.cells, 0));
    const own = a => a.module.startsWith("rillnode.") ? null : chip("own");
    drawTable(body, [
      ["class", a => el("span", { title: a.module }, `${"\u00a0\u00a0\u00a0".repeat(a.depth)}${a.depth ? "└ " : ""}${a.class} `, own(a))],
      ["actors", a => count(a.cells), "n"], ["mailbox", a => a.mailbox_depth > 1000 ? chip(count(a.mailbox_depth), "warn") : count(a.mailbox_depth), "n"],
      ["handled", a => count(a.handled), "n"], ["per second", a => rated(a.handled_per_second), "n"],
      ["failures", a => a.failures ? el("span", { class: "chip bad", title: a.last_failure }, count(a.failures)) : quiet("0"), "n"],
      ["restarts", a => a.restarts ? chip(count(a.restarts), "warn") : quiet("0"), "n"],
      ["slowest", a => seconds(a.slowest_handler_seconds), "n"],
      // The turns are counted by how long they took: the bounds from the seventh on are above 5 ms.
      ["over 5 ms", a => { const long = a.turns.slice(6).reduce((sum, one) => sum + one, 0); return long ? count(long) : quiet("0"); }, "n"],
    ], d.actors, a => `${a.module}.${a.class}`);
  },
  warnings(d) { failures.warnings = d.warnings; drawFailures(); },
  network: d => { drawNetwork(d); },
  history: recall,
  refused(d) { if (d.document === "stream") drawEmpty(card("stream", page.stream, null, el("a", { href: "#/streams" }, "all streams")), d.text); },
};
let linkRates = new Map();

// All streams: searched, sorted and paged by the node ---------------------------------------------
const ROWS = 50;
let busiest = false;
const columnsOfStreams = [
  ["name", s => el("a", { href: `#/streams/${encodeURIComponent(s.name)}`, "data-stream": s.name }, s.name), "name", "name"],
  ["per second", s => rated(s.entries_per_second), "n", "rate"], ["entries", s => count(s.next_index), "n", "entries"],
  ["kept", s => bytes(s.data_bytes), "n", "bytes"], ["worst lag", s => lagging(s.worst_lag, s.lag_growing), "n", "lag"],
  ["of consumer", s => s.worst_lag ? clipped(s.worst_consumer || "") : quiet("-"), "m wide"],
  ["partitions", s => count(s.partitions), "n"], ["subscribers", s => count(s.subscribers), "n"], ["members", s => s.members ? count(s.members) : quiet("-"), "n"], ["age", s => seconds(Math.max(0, (now() - s.created_at) / 1000)), "n", "age"], ["owner", s => whose(s.owner), "m wide"],
];
function drawStreams(d) {
  const few = page.name === "overview";
  if (few !== busiest) { $("streams").replaceChildren(); busiest = few; }
  const search = few ? el("a", { href: "#/streams" }, "all streams") : el("form", { role: "search", onsubmit: event => event.preventDefault() },
    el("input", { type: "search", id: "search", "aria-label": "Search streams", placeholder: "search by name", value: page.query.search || "", maxlength: "256", spellcheck: "false", autocapitalize: "off", oninput: later(event => turn({ search: event.target.value, offset: "" })) }),
    // On a phone there are no headings to press.
    el("label", { class: "narrow" }, "by", el("select", { id: "sort", onchange: event => turn({ sort: event.target.value, offset: "", descending: String(event.target.value !== "name") }) },
      ...columnsOfStreams.filter(one => one[3]).map(([text, , , by]) => el("option", { value: by, selected: by === (page.query.sort || "name") }, text)))));
  const body = card("streams", few ? "Busiest streams" : "Streams", "/v1/streams", search);
  $("streams-count").textContent = d.total ? `${count(d.total)}${d.more ? "+" : ""}` : "";
  const from = Math.min(d.offset + 1, d.total), to = d.offset + d.streams.length;
  if (!few) {
    let pager = $("pager");
    if (!pager) {
      pager = el("div", { class: "pager", id: "pager" }, el("button", { type: "button", class: "act", id: "before", onclick: () => turn({ offset: Math.max(0, Number(page.query.offset || 0) - ROWS) || "" }) }, "previous"),
        el("span", { role: "status", id: "place" }), el("button", { type: "button", class: "act", id: "after", onclick: () => turn({ offset: Number(page.query.offset || 0) + ROWS }) }, "next"));
      $("streams").append(pager);
    }
    const place = `${count(from)} to ${count(to)} of ${count(d.total)}${d.more ? `, the first ${count(d.listed_max)} by name` : ""}`;
    if ($("place").textContent !== place) $("place").textContent = place;
    $("before").disabled = !d.offset;
    $("after").disabled = to >= d.total;
    pager.hidden = !d.total;
  }
  if (!d.total && page.query.search) return drawEmpty(body, "No stream has such a name.");
  if (!d.total) return drawEmpty(body, "No stream holds anything yet. Make one and push to it:", "echo hello | rillnode stream push sensors --create");
  const sorted = few ? null : { by: page.query.sort || "name", descending: page.query.descending === "true",
    // Names begin with a, figures with the largest.
    choose: by => turn({ sort: by, offset: "", descending: String(by === (page.query.sort || "name") ? page.query.descending !== "true" : by !== "name") }) };
  drawTable(body, few ? columnsOfStreams.slice(0, -2).map(one => one.slice(0, 3)) : columnsOfStreams, d.streams, s => s.name, sorted);
}
