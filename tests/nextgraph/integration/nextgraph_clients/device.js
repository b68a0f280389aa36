// One device of a NextGraph user, told what to do in lines of JSON on standard input; it answers each
// with a line of JSON that begins with "=>".
//
//   {"do": "invitation", "text": "..."} -> {"invitation": ...}
//   {"do": "create", "port": 1440, "peer": "HEX", "code": null, "image": "PATH", "file": "PATH"}
//   {"do": "open", "file": "PATH", "words": [...], "pin": [...]}
//   {"do": "keys"} -> {"repo": ..., "key": ...}: of the private store, once a wallet was opened
//   {"do": "make"} -> {"document": "did:ng:..."}
//   {"do": "write", "document": ..., "text": ...}
//   {"do": "read", "document": ..., "predicate": "did:ng:z:text"} -> {"texts": [...]}
//   {"do": "upload", "path": ...} -> {"file": "did:ng:..."}
//   {"do": "download", "file": "did:ng:...", "path": ...} -> {"bytes": 1000}
//   {"do": "disconnect"}, {"do": "connect"}: what is written in between waits on the device
//
// usage: NODE_PATH=... node device.js
globalThis.WebSocket = require('ws');
const fs = require('fs');
const readline = require('readline');
const ng = require('nextgraph');

const PIN = [1, 2, 1, 3];
const PREDICATE = 'did:ng:z:text';
let session, user, site;

function userId(key) {
  return Buffer.concat([Buffer.from([0]), Buffer.from(key)]).reverse().toString('base64url');
}

async function connect() {
  const status = await ng.user_connect(ng.client_info(), userId(user.Ed25519PubKey), undefined);
  const [one] = Object.values(status);
  if (!one || one.error) throw new Error('not connected: ' + JSON.stringify(status));
}

const deeds = {
  async invitation({ text }) {
    return { invitation: await ng.decode_invitation(text) };
  },

  async create({ port, peer, code, image, file }) {
    const server = {
      server_type: { Localhost: port },
      can_verify: false,
      can_forward: true,
      peer_id: { Ed25519PubKey: Array.from(Buffer.from(peer, 'hex')) },
    };
    const wallet = await ng.wallet_create({
      security_img: new Uint8Array(fs.readFileSync(image)),
      security_txt: 'a phrase for tests',
      pin: PIN,
      pazzle_length: 0, // a key is derived of the words alone: each takes it seconds
      password: null,
      mnemonic: true,
      send_bootstrap: false,
      send_wallet: false,
      result_with_wallet_file: true,
      local_save: false,
      core_bootstrap: { servers: [server] },
      core_registration: code && Array.from(Buffer.from(code, 'hex')),
      additional_bootstrap: null,
      pdf: false,
      device_name: 'first',
    });
    fs.writeFileSync(file, Buffer.from(wallet.wallet_file));
    session = wallet.session_id;
    user = wallet.user;
    await connect();
    return { words: wallet.mnemonic_str, pin: PIN };
  },

  async open({ file, words, pin }) {
    const wallet = await ng.wallet_read_file(new Uint8Array(fs.readFileSync(file)));
    const opened = ng.wallet_open_with_mnemonic_words(wallet, words, pin);
    await ng.wallet_import(wallet, opened, true);
    user = opened.V0.personal_site;
    site = opened.V0.sites[opened.V0.personal_site_id];
    const started = await ng.session_in_memory_start(opened.V0.wallet_id, user);
    session = started.session_id;
    await connect();
    return {};
  },

  async keys() {
    const hex = (bytes) => Buffer.from(bytes).toString('hex');
    const key = site.site_type.Individual[1].key.ChaCha20Key;
    return { repo: hex(site.private.id.Ed25519PubKey), key: hex(key) };
  },

  async disconnect() {
    await ng.user_disconnect(userId(user.Ed25519PubKey));
    return {};
  },

  async connect() {
    await connect();
    return {};
  },

  async make() {
    const document = await ng.doc_create(session, 'Graph', 'data:graph', 'store', undefined, undefined);
    return { document };
  },

  async write({ document, text }) {
    await ng.sparql_update(session, `INSERT DATA { <> <${PREDICATE}> "${text}" }`, document);
    return {};
  },

  async upload({ path }) {
    return { file: await ng.file_put_to_private_store(session, path, 'application/octet-stream') };
  },

  async download({ file, path }) {
    const pieces = [];
    await new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error('the file does not end')), 60000);
      ng.file_get_from_private_store(session, file, async (response) => {
        const piece = response.V0.FileBinary;
        if (piece) pieces.push(Buffer.from(piece));
        if (response.V0 === 'EndOfStream') {
          clearTimeout(timer);
          done();
        }
      }).catch(failed);
    });
    fs.writeFileSync(path, Buffer.concat(pieces));
    return { bytes: fs.statSync(path).size };
  },

  async read({ document, predicate = PREDICATE }) {
    const query = `SELECT ?text WHERE { ?s <${predicate}> ?text }`;
    const found = await ng.sparql_query(session, query, undefined, document);
    return { texts: found.results.bindings.map((row) => row.text.value).sort() };
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    let answer;
    try {
      answer = await deeds[asked.do](asked);
    } catch (error) {
      answer = { error: String(error && error.message ? error.message : error) };
    }
    console.log('=> ' + JSON.stringify(answer));
  }
  process.exit(0);
})();
