// Tiles ---------------------------------------------------------------------------------------
const series = {};
const TILES = [
  { id: "messages", name: "Entries appended", of: "entries_per_second", unit: "/s", show: rate,
    more: o => `messages ${rate(o.now.messages_in_per_second)}/s in · ${rate(o.now.messages_out_per_second)}/s out` },
  { id: "bytes", name: "Bytes on links", of: "bytes", unit: "/s", show: bytes,
    more: o => `${bytes(o.now.bytes_in_per_second)}/s in · ${bytes(o.now.bytes_out_per_second)}/s out` },
  { id: "open", name: "Open links", of: "links", unit: "", show: count,
    more: o => Object.keys(o.listeners).join(" · ") },
  { id: "undelivered", name: "Undelivered", of: "undelivered", unit: "", show: count,
    more: o => Object.entries(o.undelivered).map(([reason, n]) => `${reason.replaceAll("_", " ")} ${count(n)}`).join(" · ") || "nothing lost its way" },
];
const withBytes = point => ({ ...point, bytes: point.bytes_in_per_second + point.bytes_out_per_second });
const drawTiles = overview => {
  const box = $("tiles");
  if (!box.firstChild) {
    for (const tile of TILES) {
      const plot = svg("svg", { viewBox: "0 0 300 44", preserveAspectRatio: "none", role: "img" });
      plot.append(svg("path", { class: "area" }), svg("polyline", { class: "line" }));
      box.append(el("div", { class: "card tile", id: `tile-${tile.id}` }, el("div", { class: "name" }, tile.name),
        el("div", { class: "value" }), el("div", { class: "more" }), plot));
    }
    box.hidden = false;
  }
  const now = withBytes(overview.now);
  for (const tile of TILES) {
    const card = $(`tile-${tile.id}`), points = series[tile.of] || [];
    card.querySelector(".value").replaceChildren(tile.show(now[tile.of]), el("small", {}, tile.unit));
    const more = card.querySelector(".more");
    more.textContent = more.title = tile.more(overview);
    // The line begins as one minute and grows to five.
    const top = Math.max(...points, 1), wide = Math.max(points.length, 60), step = 300 / (wide - 1);
    const at = points.map((value, i) => `${((wide - points.length + i) * step).toFixed(1)},${(41 - value / top * 37).toFixed(1)}`);
    card.querySelector("polyline").setAttribute("points", at.join(" "));
    const first = at.length ? at[0].split(",")[0] : "300";
    card.querySelector("path").setAttribute("d", at.length ? `M${first},44 L${at.join(" L")} L300,44 Z` : "");
    card.querySelector("svg").setAttribute("aria-label", `${tile.name}, last ${points.length} seconds, highest ${tile.show(top)}`);
  }
};
const remember = point => {
  for (const [name, value] of Object.entries(point)) {
    (series[name] ||= []).push(value);
    if (series[name].length > 300) series[name].shift();
  }
};

// The simulated network -------------------------------------------------------------------------
function drawNetwork(d) {
  const body = card("network", "Network", "/v1/network");
  $("network-count").textContent = `${d.scenario}, seed ${d.seed}, ${d.running ? "running" : "over"}${d.more ? `, the first ${d.hosts.length} hosts` : ""}`;
  if (!body.firstChild) {
    const picture = svg("svg", { viewBox: "0 0 640 430", role: "img" });
    picture.addEventListener("click", event => { const host = event.target.closest(".host.node"); if (host) choose(host.dataset.name); });
    body.append(el("div", { class: "picture" }, picture, el("dl", {})));
  }
  const picture = body.querySelector("svg"), where = {};
  // Nodes on a ring, each with its clients outside.
  const ring = d.hosts.filter(host => host.kind === "node"), turn = 2 * Math.PI / Math.max(1, ring.length);
  ring.forEach((host, i) => {
    const around = d.hosts.filter(one => one.home === host.name);
    const put = (name, angle, far) => { where[name] = [320 + 1.45 * far * Math.sin(angle), 212 - far * Math.cos(angle)]; };
    put(host.name, i * turn, ring.length > 1 ? 105 : 0);
    around.forEach((one, k) => put(one.name, (i + (around.length > 1 ? (k + 0.5) / around.length - 0.5 : 0) * 0.9) * turn, 180));
  });
  const line = (kind, a, b) => svg("line", { class: kind, x1: where[a][0], y1: where[a][1], x2: where[b][0], y2: where[b][1] });
  const known = ([a, b]) => where[a] && where[b];
  const cut = d.cut.filter(known).filter(([a, b]) => ring.some(one => one.name === a) && ring.some(one => one.name === b));
  picture.replaceChildren(
    ...d.links.filter(known).map(([a, b]) => line("link", a, b)), ...cut.map(([a, b]) => line("cut", a, b)),
    ...d.hosts.filter(host => where[host.name]).map(host => {
      const [x, y] = where[host.name], radius = host.kind === "node" ? (ring.length > 40 ? 6 : 15) : 6;
      const down = host.state !== "up";
      const one = svg("g", { class: `host ${host.kind}${down ? " down" : host.group ? " apart" : ""}${host.name === node ? " chosen" : ""}`, "data-name": host.name });
      const title = svg("title", {}), text = svg("text", { x, y: y + radius + 13 });
      title.textContent = `${host.name}: ${host.state}${host.group ? ", cut off" : ""}`;
      text.textContent = d.hosts.length > 60 ? "" : down ? `${host.name} ${host.state}` : host.name;
      one.append(svg("circle", { cx: x, cy: y, r: radius }), title, text);
      return one;
    }));
  const down = d.hosts.filter(host => host.state !== "up").length, apart = d.hosts.filter(host => host.group).length;
  picture.setAttribute("aria-label", `${ring.length} nodes, ${d.links.length} connected pairs, ${down} hosts down, ${apart} cut off`);
  const facts = { "virtual time": seconds(d.at), "entries pushed": count(d.pushed), "rules broken": count(d.violations),
    faults: d.faults.map(fault => `${fault.kind.replaceAll("_", " ")} of ${fault.host}`).join(", ") || "none now",
    "hosts down": count(down), "cut off": count(apart), "trace hash": d.trace_hash.slice(0, 16) };
  body.querySelector("dl").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
