// One stream: figures, consumers, partitions, the last hour -----------------------------------------
const pathOf = name => `/v1/streams/${encodeURIComponent(name)}`;
const HOUR_SECONDS = 60;
const limits = r => [r.seconds && `${seconds(r.seconds)}`, r.entries_max && `${count(r.entries_max)} entries`, r.bytes_max && bytes(r.bytes_max)].filter(Boolean).join(", ") || "for ever";
function drawStream(d) {
  const body = card("stream", d.name, pathOf(d.name), el("a", { href: "#/streams" }, "all streams"));
  const facts = { "per second": rate(d.entries_per_second), entries: count(d.entries), kept: bytes(d.data_bytes), partitions: count(d.partitions),
    subscribers: count(d.subscribers), "group members": count(d.members), "worst lag": d.worst_lag == null ? "-" : `${count(d.worst_lag)}${d.worst_lag ? ` of ${principal(d.worst_consumer)}` : ""}${d.lag_growing ? ", growing" : ""}`,
    keeps: limits(d.retention), created: date(d.created_at), owner: whose(d.owner) };
  if (!$("facts-of")) {
    body.replaceChildren(el("dl", { class: "facts-list", id: "facts-of" }), el("div", { class: "charts", id: "charts" }));
    hour(d.name);
  }
  $("facts-of").replaceChildren(...Object.entries(facts).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  drawConsumers(d.positions, d.positions.length, d.name);
  drawGroups(d.groups, d.name);
  drawQueues(d.queues);
  drawPartitions(d);
  if (browser.name !== d.name || !$("entries").firstChild) openBrowser(d);
}
// Those of one stream, or of all with the stream's name.
const streamOf = one => el("a", { href: `#/streams/${encodeURIComponent(one.stream)}` }, one.stream);
function drawConsumers(given, total, stream) {
  const body = card("consumers", "Consumers", stream ? null : "/v1/consumers"), all = !stream;
  $("consumers-count").textContent = total > given.length ? `the ${given.length} furthest behind of ${count(total)}` : total || "";
  if (!given.length) return drawEmpty(body, all ? "No consumer has saved a position." : "No consumer has saved a position here.", `rillnode stream tail ${quoted(stream || "sensors")} --consumer NAME`);
  const positions = [...given].sort((a, b) => b.lag - a.lag);
  drawTable(body, [["consumer", p => whose(p.client_id), "name"], ...all ? [["stream", streamOf, "name"]] : [], ["partition", p => count(p.partition), "n"], ["position", p => group.format(p.index), "n"],
    ["lag", p => lagging(p.lag, p.growing), "n"], ...all ? [] : [["lag in time", p => p.lag_since == null ? p.lag ? "-" : quiet("0 s") : seconds(Math.max(0, (now() - p.lag_since) / 1000)), "n"]],
    ["state", p => p.growing ? chip("falls behind", "warn") : p.lag ? chip("behind") : chip("up to date", "good")],
    ["member", p => p.member || quiet("-"), "m"]], positions, p => `${p.stream} ${p.client_id} ${p.partition}`);
}
function drawGroups(groups, stream) {
  $("groups").hidden = !groups.length;
  if (!groups.length) return;
  const body = card("groups", "Groups", null);
  const members = groups.flatMap(g => g.members.map(m => ({ group: g.name, stream: g.stream, generation: g.generation, ...m })));
  $("groups-count").textContent = `${groups.length} with ${some(groups.reduce((sum, g) => sum + g.members_count, 0), "member")}`;
  drawTable(body, [["group", m => m.group, "name"], ...stream ? [] : [["stream", streamOf, "name"]], ["member", m => m.id, "m"], ["principal", m => whose(m.principal), "m wide"],
    ["partitions", m => m.partitions.join(", "), "n"], ["generation", m => count(m.generation), "n"]], members, m => `${m.stream} ${m.group} ${m.id}`);
}
function drawPartitions(d) {
  const body = card("partitions", "Partitions", null);
  $("partitions-count").textContent = count(d.partitions);
  drawTable(body, [["partition", p => String(p.partition)], ["first", p => group.format(p.first_index), "n"], ["next", p => group.format(p.next_index), "n"],
    ["entries", p => count(p.next_index - p.first_index), "n"], ["kept", p => bytes(p.data_bytes), "n"], ["subscribers", p => count(p.subscribers), "n"],
    ["route", p => p.route, "m wide"]], d.extents.slice(0, 256), p => String(p.partition));
}

async function hour(name) {
  try {
    const d = await (await ask(`${pathOf(name)}/history`)).json();
    if (page.stream !== name || !$("charts")) return;
    const some = d.partitions_counted < d.partitions ? ` of the first ${d.partitions_counted} partitions` : "";
    $("charts").replaceChildren(chart("entries", `Entries per second, last hour${some}`, d, d.entries, rate), chart("bytes", `Bytes per second, last hour${some}`, d, d.bytes, bytes));
  } catch (error) { if ($("charts")) drawEmpty($("charts"), error.message); }
  setTimeout(() => { if (page.stream === name) hour(name); }, HOUR_SECONDS * 1000);
}
// A round figure above the largest value, with a round half.
const rounded = value => {
  const power = 10 ** Math.floor(Math.log10(value));
  return value ? [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find(one => one * power >= value) * power : 1;
};
// Bars with both axes: a round figure above the largest rate and its half, and the time of day.
function chart(id, title, d, values, show) {
  const width = 560, height = 160, left = 72, bottom = 22, top = 16, rates = values.map(value => value / d.period_seconds);
  const most = rounded(Math.max(...rates)), wide = (width - left - 4) / rates.length, tall = height - bottom - top;
  const at = i => new Date(d.begin_at + i * d.period_seconds * 1000).toISOString().slice(11, 16);
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", id: `chart-${id}`, "aria-label": `${title}: at most ${show(Math.max(...rates))}, now ${show(rates.at(-1))}` });
  for (const part of [0, 0.5, 1]) {
    const y = top + tall * (1 - part);
    plot.append(svg("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }), svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, Math.max(...rates) ? show(most * part) : part ? "" : "0"));
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) plot.append(svg("text", { x: left + part * (width - left - 4), y: height - 5, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, at(part * rates.length)));
  const output = el("output", {}, `${show(rates.at(-1))}/s`);
  rates.forEach((value, i) => {
    const bar = svg("rect", { class: "bar-of", x: left + i * wide + 0.5, y: top + tall * (1 - value / most), width: Math.max(1, wide - 1), height: Math.max(value ? 1 : 0, tall * value / most) });
    const text = `${at(i)} to ${at(i + 1)} UTC: ${show(value)}/s, ${id === "bytes" ? bytes(values[i]) : count(values[i])}`;
    bar.append(svg("title", {}, text));
    bar.addEventListener("pointerenter", () => { output.textContent = text; });
    plot.append(bar);
  });
  return el("figure", { "aria-label": title }, el("figcaption", {}, el("span", {}, title), output), plot);
}

// Its entries: newest first, live or looked through ---------------------------------------------------
const ROWS_MAX = 100;
const browser = { name: "", partition: 0, partitions: 1, rows: [], view: "decoded", live: true, skipped: 0, stop: null, filter: {}, from: null, before: 0, reached: 0, first: 0, end: 0, looked: null, open: new Set() };
const hexDump = text => (text.match(/.{1,64}/g) || []).map(line => line.replace(/../g, "$& ").trim()).join("\n");
const parsed = row => { if (row.format !== "json" || row.cut) return undefined; try { return JSON.parse(row.text); } catch { return undefined; } };
// How entries of a kind are shown, by its name, as scripts of plug-ins say. All of it may be left out:
// `meant` names what a JSON value says, `line` is what of that stands in a line, `shown` is the whole entry.
const entryKinds = Object.create(null);
const meant = (row, value) => entryKinds[row.kind]?.meant?.(value) ?? value;
const TREE_ITEMS = 100;
const tree = (value, name, depth = 0) => {
  const key = name === undefined ? null : el("span", { class: "k" }, `${name}: `);
  if (value === null || typeof value !== "object") return el("div", {}, key, el("span", { class: typeof value === "string" ? "s" : "v" }, JSON.stringify(value)));
  const list = Array.isArray(value), items = Object.entries(value);
  const box = el("details", { open: depth < 2 }, el("summary", {}, key, `${list ? "[" : "{"}${items.length}${list ? "]" : "}"}`));
  const fill = () => { if (box.childElementCount === 1) box.append(...items.slice(0, TREE_ITEMS).map(([k, one]) => tree(one, k, depth + 1)), ...items.length > TREE_ITEMS ? [el("div", {}, `… ${items.length - TREE_ITEMS} more`)] : []); };
  if (depth < 2) fill(); else box.addEventListener("toggle", fill);
  return box;
};
// What stands beside the data: whose kind it is, the key, and headers by their names.
const beside = row => [...row.kind === "bytes" ? [] : [row.kind], ...((row.key ?? row.key_base64) === undefined ? [] : [`key ${row.key ?? row.key_base64}`]),
  ...Object.entries({ ...row.headers, ...row.headers_base64 }).map(([name, value]) => `${name}: ${value}`)];
const content = row => {
  if (browser.view === "hex") return el("pre", {}, hexDump(row.hex) + (row.cut ? " …" : ""));
  const kind = entryKinds[row.kind] || {};
  if (kind.shown && browser.view === "decoded") return kind.shown(row);
  if (row.format === "binary") return el("pre", {}, hexDump(row.hex) + (row.cut ? " …" : ""));
  const value = browser.view === "decoded" ? parsed(row) : undefined;
  if (value === undefined) return el("pre", {}, row.text + (row.cut ? " …" : ""));
  const line = JSON.stringify(kind.line?.(meant(row, value)) ?? value), name = `${row.partition}:${row.index}`;
  const box = el("details", { class: "tree", open: browser.open.has(name) }, el("summary", {}, line.length > 400 ? `${line.slice(0, 400)} …` : line));
  const fill = () => { if (box.childElementCount === 1) box.append(tree(meant(row, value))); };
  if (box.open) fill();
  box.addEventListener("toggle", () => { if (box.open) { fill(); browser.open.add(name); } else if (box.isConnected) browser.open.delete(name); });
  return box;
};
const shownEntry = row => {
  const lines = beside(row), shown = content(row);
  return lines.length ? el("div", {}, el("small", { class: "beside mono" }, lines.join(" · ")), shown) : shown;
};
const filterQuery = () => new URLSearchParams(Object.entries(browser.filter).filter(([, value]) => value));
const statusOfEntries = () => {
  if (browser.live) return browser.skipped ? `${count(browser.skipped)} passed by unseen: only the newest ${ROWS_MAX} are shown` : "live";
  const place = browser.rows.length ? `${group.format(browser.rows.at(-1).index)} to ${group.format(browser.rows[0].index)} of ${group.format(browser.end)}` : "none";
  return `${place}${browser.looked == null || !filterQuery().size ? "" : `, of ${count(browser.looked)} looked at`}`;
};
const drawEntries = () => {
  const body = $("entries-body");
  $("entries-count").textContent = statusOfEntries();
  $("older").disabled = !browser.live && browser.before <= browser.first;
  $("newer").disabled = browser.live || browser.reached >= browser.end;
  $("live").setAttribute("aria-pressed", String(browser.live));
  if (!browser.rows.length) {
    if (browser.live && !filterQuery().size) return drawEmpty(body, "Waiting for the next entry.", `echo hello | rillnode stream push ${quoted(browser.name)}`);
    return drawEmpty(body, browser.live ? "Nothing has matched yet; what comes is looked at." : filterQuery().size ? "Nothing here matches; older and newer look further." : "No entries are here.");
  }
  // What is shown of an entry does not change: it is made once, so that an open tree stays open.
  const table = body.querySelector(":scope > table"), have = new Set([...table ? table.tBodies[0].rows : []].map(row => row.dataset.key));
  const key = r => `${r.partition}:${r.index}:${browser.view}`;
  drawTable(body, [["index", r => `${r.partition}:${r.index}`, "m"], ["received", r => have.has(key(r)) ? stay(body, key(r), 1) : el("time", { title: date(r.received_at) }, clock(r.received_at)), "m"], ["bytes", r => count(r.bytes), "n m"],
    ["content", r => have.has(key(r)) ? stay(body, key(r), 3) : shownEntry(r), "content"]], browser.rows, key);
};
const stay = (body, key, at) => body.querySelector(`tr[data-key="${CSS.escape(key)}"]`).cells[at].firstChild;
const newestFirst = rows => rows.sort((a, b) => b.received_at - a.received_at || b.index - a.index);

function openBrowser(d) {
  closeBrowser();
  Object.assign(browser, { name: d.name, partitions: d.partitions, partition: Math.min(Number(page.query.partition) || 0, d.partitions - 1), view: "decoded", skipped: 0, open: new Set(),
    filter: Object.fromEntries(["where", "text", "key"].map(name => [name, page.query[name] || ""])), from: page.query.from || null, live: !page.query.from });
  const button = (id, text, onclick, more = {}) => el("button", { type: "button", class: "act", id, onclick, ...more }, text);
  const field = (name, label, hint) => el("label", {}, label, el("input", { name, value: browser.filter[name], placeholder: hint, spellcheck: "false", autocapitalize: "off", maxlength: "1024" }));
  const views = el("select", { id: "view", onchange: event => { browser.view = event.target.value; drawEntries(); } }, ...["decoded", "text", "hex"].map(one => el("option", { value: one }, one)));
  const form = el("form", { "aria-label": "Filter entries", onsubmit: event => { event.preventDefault(); browser.filter = Object.fromEntries(["where", "text", "key"].map(name => [name, form.elements[name].value.trim()])); remembered(); begin(); } },
    field("where", "where", "mag > 5 and not test"), field("text", "text", "any text"), field("key", "key", "a key"), el("button", { class: "act" }, "filter"));
  const jump = el("form", { "aria-label": "Where to look from", onsubmit: event => { event.preventDefault(); browser.from = jump.elements.from.value.trim() || null; browser.live = !browser.from; remembered(); begin(); } },
    el("label", {}, "from", el("input", { name: "from", id: "from", value: browser.from || "", placeholder: "index, 1h ago, or a time", spellcheck: "false", autocapitalize: "off", maxlength: "64" })), el("button", { class: "act" }, "go"));
  $("entries").replaceChildren(
    el("div", { class: "bar" }, el("h2", { id: "entries-title" }, "Entries", el("small", { id: "entries-count" }, "live")),
      el("a", { class: "source", href: of(`${pathOf(d.name)}/entries`) }, `${pathOf(d.name)}/entries`)),
    el("div", { class: "tools" },
      button("live", "live", () => { browser.live = !browser.live; browser.from = null; remembered(); if (browser.live) begin(); else { stopTail(); look({}); } }, { "aria-pressed": "true" }),
      button("older", "older", () => look({ before: browser.live && browser.rows.length ? Math.min(...browser.rows.filter(r => r.partition === browser.partition).map(r => r.index), Infinity) : browser.before })),
      button("newer", "newer", () => look({ index: browser.reached })),
      d.partitions > 1 ? el("label", {}, "partition", el("input", { id: "partition", type: "number", min: "0", max: String(d.partitions - 1), value: String(browser.partition), onchange: event => { browser.partition = Math.max(0, Math.min(d.partitions - 1, Number(event.target.value) || 0)); remembered(); begin(); } })) : null,
      el("label", {}, "view", views), button("copy", "copy as …", copyAs, { "aria-expanded": "false" }), button("download", "download", download), jump, form),
    el("div", { id: "copied", hidden: true }),
    el("div", { class: "scroll", id: "entries-body", tabindex: "0", role: "log", "aria-live": "off", "aria-labelledby": "entries-title" }));
  $("entries").hidden = false;
  begin();
}
// The address tells what is looked at, so that it can be sent to others.
const remembered = () => {
  const query = new URLSearchParams([...filterQuery(), ...browser.partition ? [["partition", browser.partition]] : [], ...browser.from ? [["from", browser.from]] : []]);
  page.query = Object.fromEntries(query);
  history.replaceState(null, "", `#/streams/${encodeURIComponent(browser.name)}${query.size ? `?${query}` : ""}`);
};
const stopTail = () => { if (browser.stop) browser.stop.abort(); browser.stop = null; };
function closeBrowser() {
  stopTail();
  Object.assign(browser, { name: "", rows: [], skipped: 0, looked: null });
  $("entries").hidden = true;
  $("entries").replaceChildren();
}
const begin = () => browser.live ? openTail() : look(/^\d{1,15}$/.test(browser.from) ? { index: browser.from } : { since: browser.from.replace(/\s+ago$/, "") });
const trouble = error => {
  if (error.name === "AbortError") return;
  if (error.status === 401) { token = ""; return askToken(); }
  browser.rows = [];
  drawEmpty($("entries-body"), error.message);
  $("entries-count").textContent = "";
};
const refuses = () => {
  if (entries === "closed") { drawEmpty($("entries-body"), "On an address other than loopback, entries need [http] token_file in node.toml."); return true; }
  if (entries === "token" && !token) { askToken(); return true; }
  return false;
};
// Look at one page of entries, from somewhere on or those before an index.
async function look(where) {
  stopTail();
  if (refuses()) return;
  if (where.before === Infinity) delete where.before;
  const stop = browser.stop = new AbortController();
  browser.live = false;
  const query = new URLSearchParams([["partition", browser.partition], ["limit", 50], ...Object.entries(where), ...filterQuery()]);
  try {
    const d = await (await ask(`${pathOf(browser.name)}/entries?${query}`, stop.signal)).json();
    Object.assign(browser, { rows: d.entries.reverse(), before: d.before, reached: d.reached, first: d.first_index, end: d.next_index, looked: d.looked });
    drawEntries();
    say(statusOfEntries());
  } catch (error) { trouble(error); }
}
// The newest entries of all partitions, and what comes.
async function openTail() {
  stopTail();
  if (refuses()) return;
  const stop = browser.stop = new AbortController(), path = pathOf(browser.name);
  Object.assign(browser, { rows: [], skipped: 0, live: true, looked: null });
  const take = rows => {
    const known = new Set(browser.rows.map(r => `${r.partition}:${r.index}`));
    const fresh = rows.filter(r => !known.has(`${r.partition}:${r.index}`));
    if (fresh.length) browser.rows = newestFirst([...fresh, ...browser.rows]).slice(0, ROWS_MAX);
    drawEntries();
  };
  try {
    for (let partition = 0; partition < Math.min(browser.partitions, 8); partition++) {
      const query = new URLSearchParams([["partition", partition], ["limit", 20], ...filterQuery()]);
      take((await (await ask(`${path}/entries?${query}`, stop.signal)).json()).entries);
    }
    const query = filterQuery();
    await events(`${path}/tail${query.size ? `?${query}` : ""}`, (kind, event) => {
      if (kind === "refused") throw new Error(event.text);
      browser.skipped += event.skipped;
      take(event.entries);
    }, stop.signal);
    throw new Error("The node ended the tail: press live to go on.");
  } catch (error) { if (!stop.signal.aborted) trouble(error); }
}
function askToken() {
  const input = el("input", { type: "password", "aria-label": "Token", placeholder: "token of [http] token_file", autocomplete: "off" });
  const form = el("form", { class: "bar", onsubmit: event => { event.preventDefault(); token = input.value.trim(); begin(); } }, input, el("button", { class: "act" }, "show entries"));
  $("entries-body").replaceChildren(form);
  input.focus();
}

// What is shown, as a program would ask for it ---------------------------------------------------------
const python = text => JSON.stringify(text);
function copyTexts() {
  const { name, partition, filter, from, live } = browser, index = from && /^\d{1,15}$/.test(from) ? from : null;
  const time = from && !index ? from.replace(/\s+ago$/, "") : null;
  const query = new URLSearchParams([["partition", partition], ...index ? [["index", index]] : [], ...time ? [["since", time]] : [], ...filterQuery()]);
  const url = live ? `${location.origin}${pathOf(name)}/tail${filterQuery().size ? `?${filterQuery()}` : ""}` : `${location.origin}${pathOf(name)}/entries?${query}`;
  const conditions = [filter.where && `(${filter.where})`, filter.key && `$key = ${python(filter.key)}`].filter(Boolean).join(" and ");
  const curl = ["curl -sN", ...entries === "token" ? ["-H \"Authorization: Bearer $(cat data/http.token)\""] : [], quoted(url)].join(" ");
  const cli = live ? ["rillnode stream tail", quoted(name), ...conditions ? ["--where", quoted(conditions)] : []]
    : ["rillnode stream pull", quoted(name), "--partition", partition, ...index ? ["--from", index] : time ? ["--since", quoted(time)] : ["--last", 50], ...conditions ? ["--where", quoted(conditions)] : []];
  const start = time ? time.match(/^(\d+)([smhd])$/) : null;
  const unit = { s: "seconds", m: "minutes", h: "hours", d: "days" };
  const args = [index ? `index=${index}` : time ? `start=${start ? `timedelta(${unit[start[2]]}=${start[1]})` : `datetime.fromisoformat(${python(time)})`}` : live ? "" : "index=-50", "limit=50", `partition=${partition}`, conditions ? `where=${python(conditions)}` : ""].filter(Boolean);
  return { curl, CLI: cli.join(" "), Python: pythonText({ time, start, name, live, conditions, args }) };
}
const pythonText = ({ time, start, name, live, conditions, args }) => ["import asyncio", ...time ? [start ? "from datetime import timedelta" : "from datetime import datetime"] : [], "", "import rillnode", "", "",
  "async def main() -> None:", "    async with await rillnode.connect() as client:", `        stream = await client.stream(${python(name)})`,
  ...live ? [`        async for entry in stream.tail(${conditions ? `where=${python(conditions)}` : ""}):`, "            print(entry.partition, entry.index, entry.data)"]
    : [`        for entry in await stream.pull(${args.join(", ")}):`, "            print(entry.index, entry.data)"], "", "", "asyncio.run(main())"].join("\n");
function copyAs() {
  const box = $("copied"), hidden = !box.hidden;
  box.hidden = hidden;
  $("copy").setAttribute("aria-expanded", String(!hidden));
  if (hidden) return;
  const texts = copyTexts();
  if (browser.filter.text) texts.note = "The text is looked for by curl only.";
  box.replaceChildren(...Object.entries(texts).flatMap(([name, text]) => {
    if (name === "note") return [el("p", {}, text)];
    const pre = el("pre", { tabindex: "0", "aria-label": `as ${name}` }, text);
    return [el("div", { class: "bar" }, el("b", {}, name), el("button", { type: "button", class: "act", onclick: () => copy(pre) }, "copy")), pre];
  }));
}
async function copy(pre) {
  try { await navigator.clipboard.writeText(pre.textContent); say("copied"); } catch {
    // Without a secure address there is no clipboard: it is selected, for the keyboard to copy.
    getSelection().selectAllChildren(pre);
    say("selected: copy it with the keyboard");
  }
}
async function download() {
  if (refuses()) return;
  const from = browser.live || !browser.rows.length ? [["index", Math.max(0, browser.rows.length ? Math.min(...browser.rows.filter(r => r.partition === browser.partition).map(r => r.index), browser.rows[0].index) : 0)]] : [["index", browser.rows.at(-1).index]];
  const query = new URLSearchParams([["partition", browser.partition], ...from, ...filterQuery()]);
  try {
    const blob = await (await ask(`${pathOf(browser.name)}/lines?${query}`)).blob();
    const link = el("a", { href: URL.createObjectURL(blob), download: `${browser.name.replaceAll("/", "-")}-${browser.partition}.jsonl` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say("downloaded");
  } catch (error) { say(error.message); trouble(error); }
}
