"use strict";
const $ = id => document.getElementById(id);
const el = (tag, attributes = {}, ...children) => {
  const one = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) one.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) one.setAttribute(key, value === true ? "" : value);
  }
  one.append(...children.filter(child => child != null));
  return one;
};
const svg = (tag, attributes, ...children) => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.append(...children);
  return one;
};

// Numbers for people ------------------------------------------------------------------------
const group = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = value => value == null ? "-" : value < 100000 ? group.format(value) : short.format(value);
const some = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;
const rate = value => value == null ? "-" : value >= 100 ? count(value) : String(value < 1 ? Number(value.toPrecision(2)) : Math.round(value * 10) / 10);
const bytes = value => {
  let unit = 0;
  for (; value >= 1000 && unit < 5; unit++) value /= 1000;
  return `${unit ? value < 100 ? value.toFixed(1) : Math.round(value) : value < 1 ? Number(value.toPrecision(2)) : Math.round(value)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
};
const seconds = value => {
  if (value == null) return "-";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 2 : 1)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor(value % 3600 / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor(value % 86400 / 3600)} h`;
};
const ago = ms => ms == null ? "-" : now() - ms < 1000 ? "just now" : `${seconds(Math.round((now() - ms) / 1000))} ago`;
const principal = text => text.replace(/\b(0x)?([0-9a-f]{8})[0-9a-f]{24,}\b/gi, "$1$2…");
const clock = ms => new Date(ms).toISOString().slice(11, 23);
const date = ms => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
const chip = (text, kind = "") => el("span", { class: `chip ${kind}` }, text);
const quiet = text => el("span", { class: text === "-" ? "zero none" : "zero" }, text);
// A command may be pasted into a shell as it is.
const quoted = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
const rated = value => value ? rate(value) : quiet("0");
// What is long is shortened, and told whole to who points at it.
const whose = text => { const shown = principal(text || ""); return shown === text ? shown : el("span", { title: text }, shown); };
const clipped = text => el("span", { title: text }, principal(text));
const say = text => { $("said").textContent = text; };
let ahead = 0;  // of this browser's clock, the node's
const now = () => Date.now() + ahead;

// A simulation has many nodes; one is shown --------------------------------------------------
let node = new URLSearchParams(location.search).get("node");
const of = path => node ? `${path}${path.includes("?") ? "&" : "?"}node=${encodeURIComponent(node)}` : path;
const choose = name => { location.search = `?node=${encodeURIComponent(name)}`; };

// Requests ----------------------------------------------------------------------------------
let token = "";
const headers = () => token ? { Authorization: `Bearer ${token}` } : {};
async function ask(path, signal) {
  const answer = await fetch(of(path), { headers: headers(), signal, cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).text), { status: answer.status });
  ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
  if (Math.abs(ahead) < 2000) ahead = 0;
  return answer;
}
async function events(path, onEvent, signal, onOpen = () => {}) {
  const answer = await ask(path, signal);
  onOpen();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/s.exec(part) || [];
      if (name) onEvent(name, JSON.parse(data));
    }
  }
}

// Tables: a card is made once; only its rows change -------------------------------------------
const card = (id, title, source, ...tools) => {
  const box = $(id);
  if (!box.firstChild) {
    box.append(
      el("div", { class: "bar" }, el("h2", { id: `${id}-title` }, title, el("small", { id: `${id}-count` })), ...tools,
        source ? el("a", { class: "source", href: of(source) }, source) : null),
      el("div", { class: "scroll", id: `${id}-body`, tabindex: "0", role: "region", "aria-labelledby": `${id}-title` }));
  }
  box.hidden = false;
  return $(`${id}-body`);
};
// Columns are [heading, row => text or node, class, what it is sorted by]; `sorted` is how it is.
// A column of words (`wrap`) is there while a row has any; else what stands behind it might be pushed out of sight.
const drawTable = (body, given, rows, key, sorted) => {
  const columns = given.filter(([, make, kind]) => kind !== "wrap" || rows.some(make)), headings = columns.map(([text]) => text).join();
  let table = body.querySelector(":scope > table");
  if (!table || table.dataset.headings !== headings) {
    const heading = ([text, , , by]) => by ? el("button", { type: "button", onclick: () => sorted.choose(by) }, text) : text;
    const head = el("tr", {}, ...columns.map(one => el("th", { scope: "col", class: (one[2] || "")[0] === "n" && one[2] !== "name" ? "n" : null }, heading(one))));
    table = el("table", { class: "rows", "data-headings": headings, "aria-labelledby": body.getAttribute("aria-labelledby") }, el("thead", {}, head), el("tbody"));
    body.replaceChildren(table);
  }
  if (sorted) {
    columns.forEach(([, , , by], at) => {
      const cell = table.tHead.rows[0].cells[at], way = by && by === sorted.by ? (sorted.descending ? "descending" : "ascending") : null;
      if (way) cell.setAttribute("aria-sort", way); else cell.removeAttribute("aria-sort");
    });
  }
  const old = new Map([...table.tBodies[0].rows].map(row => [row.dataset.key, row]));
  const made = rows.map(one => {
    const name = key(one);
    const row = old.get(name) || el("tr", { "data-key": name }, ...columns.map(([heading, , kind]) => el("td", { class: kind || null, "data-heading": heading })));
    old.delete(name);
    columns.forEach(([, make], at) => {
      const cell = row.cells[at], value = make(one);
      if (value instanceof Node) {
        // What has the focus keeps it, and what is open stays so.
        if (!cell.firstChild || !cell.firstChild.isEqualNode(value)) cell.replaceChildren(value);
      } else if (cell.textContent !== value) cell.textContent = value;
    });
    return row;
  });
  for (const row of old.values()) row.remove();
  const focus = document.activeElement;
  made.forEach((row, at) => { if (table.tBodies[0].rows[at] !== row) table.tBodies[0].insertBefore(row, table.tBodies[0].rows[at] || null); });
  // A row that is moved would lose it.
  if (focus !== document.activeElement && body.contains(focus)) focus.focus({ preventScroll: true });
};
const drawEmpty = (body, text, command) => body.replaceChildren(
  el("div", { class: "empty" }, text, command ? el("br") : null, command ? el("code", {}, command) : null));
