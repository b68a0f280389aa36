// The admin session: what is done in it is done as who has asked the node for the link -----------------
const kept = { // by this tab and port alone, while the cookie is the host's
  get: () => { try { return sessionStorage.getItem("rillnode-console") || ""; } catch { return ""; } },
  set: value => { try { sessionStorage.setItem("rillnode-console", value); } catch { } },
};
const admin = { token: kept.get(), principal: "", timer: 0, telling: 0 };
const tell = (text, bad) => {
  $("told").textContent = text; $("told").className = bad ? "bad" : ""; $("told").hidden = !text;
  clearTimeout(admin.telling);
  if (text) admin.telling = setTimeout(tell, bad ? 30000 : 10000, "");
};
async function command(path, method, body) {
  const answer = await fetch(path, { method, headers: { "Content-Type": "application/json", "Rillnode-Console": admin.token }, body: body && JSON.stringify(body) });
  const document = await answer.json();
  if (answer.ok) return document;
  if (answer.status === 401) left();
  throw Object.assign(new Error(`${document.text} [${document.code}]${document.next ? `: ${document.next}` : ""}`), { status: answer.status });
}
async function act(body, told) {
  tell("…");
  try { tell(told(await command("/v1/console", "POST", body))); return true; } catch (error) { tell(error.message, true); return false; }
}
function entered(session) {
  clearTimeout(admin.timer);
  admin.timer = setTimeout(askAgain, Math.max(1, Math.min(30, session.seconds)) * 1000);
  if (admin.principal === session.principal) return;
  admin.principal = session.principal;
  $("admin").replaceChildren("admin: ", whose(session.principal), " ", el("button", { type: "button", class: "act", id: "leave", onclick: async () => {
    try { await command("/v1/session", "DELETE"); tell("The session is over."); left(); } catch (error) { tell(error.message, true); }
  } }, "end the session"));
  $("admin").hidden = false;
  go(true);
}
function left() {
  clearTimeout(admin.timer);
  Object.assign(admin, { token: "", principal: "" });
  kept.set("");
  $("admin").hidden = true;
  go(true);
}
async function askAgain() {
  try { entered(await command("/v1/session", "GET")); } catch (error) {
    // A node that does not answer may come back; one that knows of no session does not.
    if (!error.status) admin.timer = setTimeout(askAgain, 5000);
    else { tell(error.message, true); if (admin.token) left(); }
  }
}
// Take the ticket out of the address, so that no history, picture or copy of it has it.
async function admit() {
  const [, ticket] = /^#\/console\/([\w-]+)$/.exec(location.hash) || [];
  if (!ticket) return;
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  try {
    const session = await command("/v1/session", "POST", { ticket });
    kept.set(admin.token = session.token);
    admin.principal = "";
    entered(session);
    tell("You are in an admin session.");
  } catch (error) { tell(error.status === 404 ? "The node's page has no admin session: set console = true in [http]." : error.message, true); }
}

const input = (label, name, more = {}) => el("label", {}, label, el(more.rows ? "textarea" : "input", { name, autocomplete: "off", spellcheck: "false", autocapitalize: "off", ...more }));
const whole = (label, name, more) => input(label, name, { type: "number", min: "0", required: true, ...more });
const deed = (title, verb, fields, make, told) => el("form", { class: "deed", "aria-label": title, onsubmit: async event => {
  event.preventDefault();
  const form = event.target;
  if (await act(make(form.elements), told)) for (const one of form.querySelectorAll(".once")) one.value = "";
} }, el("b", {}, title), ...fields, el("button", { class: "act" }, verb));
const press = (text, of, body, told) => el("button", { type: "button", class: "act", "aria-label": `${text}: ${of}`, onclick: () => act(body, told) }, text);
const headersIn = text => Object.fromEntries(text.split("\n").filter(line => line.trim()).map(line => { const at = line.indexOf(":"); return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()]; }));

function drawDeeds() {
  const stream = page.stream, box = $("deeds");
  box.hidden = !admin.principal || !["streams", "stream"].includes(page.name);
  if (box.hidden || box.firstChild) return;
  const body = card("deeds", stream === null ? "Make a stream" : "Act on the stream", null);
  if (stream === null) {
    body.append(deed("stream", "create", [input("name", "name", { required: true, maxlength: "512", class: "once" }), whole("partitions", "partitions", { min: "1", value: "1" })],
      f => ({ do: "create", stream: f.name.value, partitions: Number(f.partitions.value) }), d => `There is the stream, with ${some(d.partitions, "partition")}.`));
    return;
  }
  const remove = deed("remove the stream", "remove for ever", [input("its name, to confirm", "typed", { required: true })],
    f => ({ do: "remove", stream, typed: f.typed.value }), () => { location.hash = "#/streams"; return `${stream} is removed.`; });
  const sure = remove.querySelector("button"), check = () => { sure.disabled = remove.elements.typed.value !== stream; };
  remove.addEventListener("input", check);
  check();
  body.append(
    deed("push an entry", "push", [input("content", "text", { rows: "3", class: "once" }), el("label", {}, el("input", { type: "checkbox", name: "json" }), "it is JSON"), input("key", "key", { maxlength: "1024" }),
      input("headers", "headers", { rows: "1", placeholder: "name: value" }), whole("partition", "partition", { required: false, placeholder: "by key" })],
      f => ({ do: "push", stream, text: f.text.value, json: f.json.checked, key: f.key.value || null, headers: headersIn(f.headers.value), partition: f.partition.value === "" ? null : Number(f.partition.value) }),
      d => `It is entry ${group.format(d.index)} of partition ${d.partition}.`),
    deed("set a consumer's position", "set", [input("consumer", "consumer", { required: true, maxlength: "512" }), whole("partition", "partition", { value: "0" }), whole("index", "index")],
      f => ({ do: "set_index", stream, consumer: f.consumer.value, partition: Number(f.partition.value), index: Number(f.index.value) }), d => `It goes on at ${group.format(d.index)}.`),
    deed("drop old entries", "trim", [whole("partition", "partition", { value: "0" }), whole("before index", "before")],
      f => ({ do: "trim", stream, partition: Number(f.partition.value), before: Number(f.before.value) }), d => `The first entry kept is ${group.format(d.first_index)}.`), remove);
}
