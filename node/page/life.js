// Route probe ---------------------------------------------------------------------------------------
function drawRoute() {
  if ($("route").firstChild) return;
  const body = card("route", "Route probe", "/v1/route");
  $("route").querySelector(".source").removeAttribute("href");
  const input = el("input", { id: "route-input", "aria-label": "Route", placeholder: "peer/core;echo", spellcheck: "false", autocapitalize: "off", maxlength: "512" });
  const answer = el("div", { role: "status", id: "route-answer" });
  drawEmpty(answer, "Type a route: each hop is tried, nearest first.", "echo");
  const form = el("form", { class: "bar", "aria-labelledby": "route-title", onsubmit: async event => {
    event.preventDefault();
    drawEmpty(answer, "trying …");
    try {
      const reply = await fetch("/v1/route", { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify({ route: input.value }) });
      const document = await reply.json();
      if (!reply.ok) throw new Error(document.text);
      answer.replaceChildren();
      drawTable(answer, [["hop", h => h.address, "m"], ["state", h => chip(h.state === "worker" ? "worker: not asked" : h.state, { answers: "good", failed: "bad" }[h.state] || "")],
        ["round trip", h => h.milliseconds == null ? "-" : seconds(h.milliseconds / 1000), "n"], ["reason", h => h.reason, "wrap"]],
        document.hops, h => `${document.hops.indexOf(h)} ${h.address}`);
    } catch (error) { drawEmpty(answer, error.message); }
  } }, input, el("button", { class: "act" }, "try"));
  body.replaceChildren(form, answer);
}

// Pages: what each shows, and what is followed for it ---------------------------------------------------
const PAGES = {
  overview: { text: "Overview", cards: ["tiles", "streams", "queues", "peers", "sinks", "warnings"], show: ["streams", "queues", "peers", "sinks", "tables", "warnings"] },
  streams: { text: "Streams", cards: ["streams"], show: ["streams"] },
  consumers: { text: "Consumers", cards: ["consumers", "groups", "queues"], show: ["consumers", "queues"] },
  links: { text: "Links", cards: ["links", "peers", "route"], show: ["links", "peers"] },
  sinks: { text: "Sinks", cards: ["sinks"], show: ["sinks"] },
  actors: { text: "Actors", cards: ["actors"], show: ["actors"] },
  failures: { text: "Failures", cards: ["warnings"], show: ["links", "warnings"] },
  stream: { cards: ["stream", "consumers", "groups", "queues", "entries", "partitions"], show: [] },
};
const page = { name: "overview", stream: null, query: {} };
const shows = id => PAGES[page.name].cards.includes(id) || simulated && id === "network" && page.name === "overview";
const read = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?"), [name, ...rest] = path.split("/");
  let stream = null;
  try { stream = name === "streams" && rest.length ? decodeURIComponent(rest.join("/")) : null; } catch { }
  return { name: stream !== null ? "stream" : PAGES[name] && name !== "stream" ? name : "overview", stream, query: Object.fromEntries(new URLSearchParams(query)) };
};
const asked = () => {
  const show = ["overview", ...PAGES[page.name].show, ...simulated && page.name === "overview" ? ["network", "history"] : []];
  const query = new URLSearchParams([["show", show.join(",")]]);
  if (page.name === "overview") for (const [name, value] of [["sort", "rate"], ["descending", "true"], ["limit", "8"]]) query.set(name, value);
  if (page.name === "streams") for (const [name, value] of [["search", ""], ["sort", "name"], ["descending", "false"], ["offset", "0"], ["limit", ROWS]]) query.set(name, page.query[name] || value);
  if (page.stream !== null) query.set("stream", page.stream);
  return `/v1/events?${query}`;
};
let following = new AbortController();
// Go where the address leads: other cards are shown, other documents followed.
function go(anew) {
  admit();
  const next = read(), other = anew === true || next.name !== page.name || next.stream !== page.stream;
  Object.assign(page, next);
  if (other || !$("tabs").firstChild) {
    $("tabs").replaceChildren(...Object.entries(PAGES).filter(([, one]) => one.text).map(([name, one]) =>
      el("a", { href: `#/${name === "overview" ? "" : name}`, "aria-current": name === page.name || name === "streams" && page.name === "stream" ? "page" : null }, one.text)));
    closeBrowser();
    for (const box of document.querySelectorAll("main section")) {
      if (box.id !== "route" && box.id !== "tiles" && box.id !== "network") box.replaceChildren();
      box.hidden = true;
    }
    $("tabs").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    if (shows("route") && !simulated) { drawRoute(); $("route").hidden = false; }
    if (shows("tiles") && $("tiles").firstChild) $("tiles").hidden = false;
    drawDeeds();
    document.body.dataset.page = page.name;
    if (anew !== true) scrollTo(0, 0);
    if (page.stream !== null) say(`stream ${page.stream}`); else say(PAGES[page.name].text);
  } else if (page.stream !== null) closeBrowser();  // another place in the same stream
  following.abort();
}
// Change what the address says of the page that is open.
function turn(changes) {
  const query = new URLSearchParams(Object.entries({ ...page.query, ...changes }).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#/${page.name === "stream" ? `streams/${encodeURIComponent(page.stream)}` : page.name}${query.size ? `?${query}` : ""}`);
  go();
}
function later(act) {
  let timer = 0;
  return event => { clearTimeout(timer); timer = setTimeout(() => act(event), 200); };
}
addEventListener("hashchange", go);
document.addEventListener("keydown", event => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) && $("search")) { event.preventDefault(); $("search").focus(); }
  if (event.key !== "Escape" || page.stream === null || document.activeElement.closest(".deed")) return;
  const name = page.stream;
  location.hash = "#/streams";
  // The name that was chosen has the focus again, once it is there.
  const back = setInterval(() => { const link = document.querySelector(`[data-stream="${CSS.escape(name)}"]`); if (link) { link.focus(); clearInterval(back); } }, 50);
  setTimeout(() => clearInterval(back), 5000);
});
$("node").addEventListener("change", event => choose(event.target.value));
async function follow() {
  go();
  let recalled = 0;
  for (;;) {
    const stop = following = new AbortController();
    try {
      if (Date.now() - recalled > 5000) { recall(await (await ask("/v1/history", stop.signal)).json()); recalled = Date.now(); }
      await events(asked(), (name, document) => {
        if (stop.signal.aborted) return;
        recalled = Date.now();
        if (draw[name]) draw[name](document);
      }, stop.signal, () => { $("banner").hidden = true; });
    } catch (error) {
      if (stop.signal.aborted) continue;
      $("banner").textContent = error.status ? error.message : "The node does not answer. Is it running? This page tries again every two seconds.";
      $("banner").hidden = false;
      $("state").textContent = "not reached";
      $("state").className = "chip bad";
    }
    await new Promise(resolve => { const timer = setTimeout(resolve, 2000); stop.signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }); });
  }
}
if (admin.token) askAgain();
follow();
