"""Secrets stay where they are: in files of their owner, and in no log, page or answer."""

import asyncio
import json
import signal
import stat
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from forked import Forked, finished
from ockam_peer import OckamPeer
from rillnode import nextgraph, streamr
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.stream import CreateRequest, PushRequest, encode_request
from rillnode.node.client import connect

LIMIT_SECONDS = 300.0

API_KEY = "planted-api-key-BbcCddeEffgG"
PAGE_TOKEN = "planted-page-token-HhiIjjkKllMmnNooPpq"
GROUP_KEY = streamr.GroupKey("planted group key", bytes(range(200, 232)))
ETHEREUM_SECRET = bytes(range(100, 132))
NEXTGRAPH_SEED = bytes(range(60, 92))
READ_CAP_KEY = bytes(range(20, 52))
CONTENT = "planted-content-MmnNoopPqq"

CONFIGURATION = f"""
name = "edge"
data_dir = "data"
[log]
level = "debug"
trace = ["noise", "ockam", "streamr", "nextgraph"]
[http]
listen = "127.0.0.1:0"
token_file = "page.token"
[ockam]
listen = "127.0.0.1:0"
[nextgraph]
listen = "127.0.0.1:0"
registration = "open"
[streamr]
listen = "127.0.0.1:0"
[[streamr.apikey]]
name = "dashboard"
hash = "{hash_of(API_KEY)}"
[[grant]]
who = "anonymous"
streams = "open*"
may = ["create", "push", "pull", "subscribe"]
[[grant]]
who = "eth:*"
streams = "*"
may = ["create", "push", "pull", "subscribe"]
[[sink.files]]
name = "out"
streams = ["open*"]
directory = "outgoing"
trigger_seconds = 0.1
"""
GRANT_ALL = """
[[grant]]
who = "noise:{}"
streams = "*"
may = ["admin"]
"""
DOCUMENTS = ("status", "history", "config", "links", "actors", "sinks", "warnings", "streams")
PAGES = (
    *("/", "/metrics", "/livez", "/readyz", "/nothing", "/v1", "/v1/streams/closed"),
    *(f"/v1/{name}" for name in DOCUMENTS),
)
KEYS = ("identity", "admin", "nextgraph", "ockam", "ethereum", "sinks/out")


RUN_ALL = """
import json, os, sys
from rillnode.node.cli import main
os.umask(0)
codes = [main(argv) for argv in json.load(sys.stdin)]
print(json.dumps(codes))
"""


RUN = """
import os, sys
from rillnode.node.cli import main
os.umask(0)
sys.exit(main())
"""


def rillnode(home: Path, *commands: Sequence[str | Path], fine: int) -> bytes:
    """Run commands under the umask that protects nothing; return what they printed.

    The first ones, so many as are `fine`, must end well.
    """
    asked = json.dumps([[*map(str, argv)] for argv in commands]).encode()
    done = finished("-c", RUN_ALL, stdin=asked, cwd=home, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr.decode()
    codes = json.loads(done.stdout.splitlines()[-1])
    assert codes[:fine] == [0] * fine, done.stderr.decode()
    return done.stdout + done.stderr


class RunningNode:
    """A node with everything that has secrets, and all that was seen of it."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "edge"
        self.config = self.home / "node.toml"
        self.tokens: list[str] = []
        self.seen: list[bytes] = [rillnode(directory, ("init", self.home), fine=1)]
        admin = Identity.from_hex(self.key("admin.key")).public_hex
        self.config.write_text(f"{CONFIGURATION}{GRANT_ALL.format(admin)}")
        (self.home / "page.token").write_text(PAGE_TOKEN + "\n")
        (self.home / "page.token").chmod(0o600)
        self.log = directory / "node.log"
        self._ports = directory / "ports.json"
        self._start()

    def _start(self) -> None:
        argv: list[str | Path] = ["run", "-v", "-c", self.config, "--ports-file", self._ports]
        argv += ["--set", "noise.listen=127.0.0.1:0"]
        with self.log.open("wb") as output:
            self.process = Forked("-c", RUN, *argv, stdout=output, stderr=output)
        self.wait_for(self._ports)
        self.ports: dict[str, str] = json.loads(self._ports.read_text())

    def wait_for(self, path: Path) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not path.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, f"no {path}"
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_SECONDS) == 0, self.log.read_text()

    def key(self, name: str) -> str:
        return (self.home / "data" / name).read_text().strip()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> RunningNode:
    """A node to which everything was said, and that has ended."""
    directory = tmp_path_factory.mktemp("secrets")
    node = RunningNode(directory)
    try:
        node.wait_for(node.home / "data" / "sinks" / "out.key")
        node.tokens = asyncio.run(speak_everything(node))
        options = ("-c", node.config, "--node", f"noise://{node.ports['noise']}")
        commands: list[tuple[str | Path, ...]] = [
            ("backup", directory / "copies" / "copy", *options),
            ("key", "new", directory / "other" / "new.key"),
            ("status", *options, "-v"),
            ("stream", "ls", "-c", node.config, "--node", "noise://127.0.0.1:1", "-v"),
            ("config", "check", "-c", node.config),
            ("doctor", "-c", node.config, "--json"),
            ("key", "show", node.home / "data" / "identity.key"),
            ("key", "show", node.home / "page.token"),
        ]
        node.seen.append(rillnode(node.home, *commands, fine=2))
        node.stop()
    finally:
        node.process.kill()
        node.process.wait()
    return node


def test_nobody_else_may_read_keys_or_data_and_nobody_may_change_anything(
    node: RunningNode,
) -> None:
    directory = node.home.parent
    keys = {path for path in directory.rglob("*") if path.suffix in (".key", ".token")}
    names = {path.relative_to(directory).as_posix() for path in keys}
    assert names >= {f"edge/data/{name}.key" for name in KEYS} | {"other/new.key"}
    assert any(name.startswith("copies/") for name in names)
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in keys} == dict.fromkeys(keys, 0o600)
    ours = [path for path in directory.rglob("*") if path.name not in ("node.log", "ports.json")]
    assert [path for path in ours if path.stat().st_mode & 0o022] == []
    for private in ("edge/data", "edge/data/sinks", "edge/data/store", "copies/copy"):
        assert stat.S_IMODE((directory / private).stat().st_mode) & 0o077 == 0, private


def test_no_secret_is_in_any_log_page_or_answer(node: RunningNode) -> None:
    seen = [*node.seen, node.log.read_bytes()]
    jobs = node.home / "data" / "sinks"
    for pattern in ("*.log", "job.json"):
        seen += [path.read_bytes() for path in jobs.rglob(pattern)]
    seen.append((node.home / "data" / "store" / "LOG").read_bytes())

    everything = b"\n".join(seen)
    public = bytes.fromhex(node.ports["identity"])
    assert any(form in everything for form in forms(public)), "what is no secret is found"
    for protocol in ("noise", "ockam", "streamr", "nextgraph"):
        assert b"rillnode.trace.%s" % protocol.encode() in everything
    for name, secret in secrets(node, node.tokens).items():
        for form in forms(secret):
            at = everything.find(form)
            assert at < 0, f"{name}: {everything[max(0, at - 300) : at + 100]!r}"


def secrets(node: RunningNode, tokens: list[str]) -> dict[str, bytes | str]:
    """What must not be seen; what is hexadecimal in its file is looked for in bytes as well."""
    return {
        **{name: bytes.fromhex(node.key(f"{name}.key")) for name in KEYS},
        **{f"token {number}": token for number, token in enumerate(tokens)},
        "API key": API_KEY,
        "page's token": PAGE_TOKEN,
        "group key": GROUP_KEY.secret,
        "Ethereum key": ETHEREUM_SECRET,
        "NextGraph's user": NEXTGRAPH_SEED,
        "read cap": READ_CAP_KEY,
        "content": CONTENT,
    }


def forms(secret: bytes | str) -> Iterator[bytes]:
    """How a secret may be written."""
    raw = secret if isinstance(secret, bytes) else secret.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield b64encode(raw).rstrip(b"=")
    yield urlsafe_b64encode(raw).rstrip(b"=")
    yield repr(raw)[2:-1].encode()
    yield ", ".join(map(str, raw)).encode()
    yield ",".join(map(str, raw)).encode()


async def speak_everything(node: RunningNode) -> list[str]:
    """Use each listener, right and wrong; return the session tokens that were given out."""
    async with asyncio.timeout(LIMIT_SECONDS), aiohttp.ClientSession() as http:
        await speak_noise(node)
        await speak_ockam(node)
        await speak_nextgraph(node)
        tokens = await speak_streamr(node, http)
        await read_pages(node, http)
        return tokens


async def speak_noise(node: RunningNode) -> None:
    url = f"noise://{node.ports['noise']}"
    admin = Identity.from_hex(node.key("admin.key"))
    async with await connect(url, identity=admin, node_identity=node.ports["identity"]) as client:
        for name in ("open", "closed"):
            await (await client.stream(name)).push(CONTENT.encode())
        node.seen.append(json.dumps(await client.status(), default=str).encode())


async def speak_ockam(node: RunningNode) -> None:
    """Push, and then break off a message that holds a key."""
    async with await OckamPeer.connect(node.ports["ockam"]) as peer:
        await peer.ask("stream", encode_request(CreateRequest("open")))
        answer = await peer.ask("ST_S_0_open", encode_request(PushRequest(1, CONTENT.encode())))
        refused = await peer.ask("stream", encode_request(CreateRequest("closed")))
        node.seen += [answer.payload, refused.payload]
        peer.send("stream", b"\x0bstream_push" + bytes.fromhex(node.key("identity.key")))
        peer.send_frame(b"\xff" + bytes.fromhex(node.key("admin.key")))
        node.seen.append(await peer.reader.read())


async def speak_nextgraph(node: RunningNode) -> None:
    url, broker = f"ws://{node.ports['nextgraph']}", bytes.fromhex(node.ports["nextgraph_peer_id"])
    user = nextgraph.Identity.from_seed(NEXTGRAPH_SEED)
    store = b"s" * 32
    inner = nextgraph.inner_overlay(store, READ_CAP_KEY)
    access = nextgraph.ReadWriteAccess(inner, nextgraph.outer_overlay(store))
    repo = nextgraph.repo_hash(b"p" * 32)
    async with await nextgraph.connect(url, user=user, broker=broker) as client:
        await client.pin(repo, access, publish=[user])
        node.seen.append(repr(await client.pin_status(inner, repo)).encode())


async def speak_streamr(node: RunningNode, http: aiohttp.ClientSession) -> list[str]:
    """Log in both ways, publish encrypted, and do each wrong once."""
    base = f"http://{node.ports['streamr']}/api/v1"
    tokens: list[str] = []

    async def ask(method: str, path: str, token: str = "", **body: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with http.request(method, base + path, headers=headers, **body) as answer:
            content = await answer.read()
            if content.startswith(b'{"token":'):
                tokens.append(json.loads(content)["token"])  # this answer is there to show it
            else:
                node.seen.append(repr(answer.headers).encode() + content)

    client = await streamr.connect(
        f"ws://{node.ports['streamr']}", private_key=streamr.EthereumKey(ETHEREUM_SECRET)
    )
    async with client:
        await client.get_or_create_stream("sealed")
        await client.encrypt("sealed", GROUP_KEY)
        await client.publish("sealed", {"said": CONTENT})
        await client.flush()

    await ask("POST", "/login/apikey", json={"apiKey": API_KEY})
    (token,) = tokens
    await ask("GET", "/users/me", token)
    await ask("GET", "/users/me", token[:-1])
    await ask("GET", f"/streams/closed?token={token}", token)
    await ask("GET", "/streams/sealed/data/partitions/0/last?count=x", token)
    await ask("POST", "/streams", token, data=f'{{"id": "{token}')
    await ask("POST", "/login/apikey", json={"apiKey": API_KEY + "x"})
    await ask("POST", "/login/apikey", data=f'{{"apiKey": "{API_KEY}"')
    await ask("POST", "/login/apikey", json={"apiKey": [API_KEY]})
    await ask("POST", "/login/response", json={"challenge": {"id": token}, "signature": API_KEY})
    for version, text in [
        (2, [2, 9, "r", "closed", 0, token]),
        (2, [2, 9, "r", "closed", "x", token]),
        (2, [2, 8, "r", [32, "no", token], token]),
        (1, [1, 9, "closed", 0, token]),
    ]:
        path = f"/ws?controlLayerVersion={version}&messageLayerVersion=32"
        async with http.ws_connect(base + path) as socket:
            await socket.send_str(json.dumps(text))
            node.seen.append(repr(await socket.receive(LIMIT_SECONDS)).encode())
    return tokens


async def read_pages(node: RunningNode, http: aiohttp.ClientSession) -> None:
    """Every page, without a token, with a wrong one and with the right one."""
    base = f"http://{node.ports['http']}"
    for token in ("", PAGE_TOKEN[:-1], PAGE_TOKEN):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for page in PAGES:
            async with http.get(base + page, headers=headers) as answer:
                node.seen.append(repr(answer.headers).encode() + await answer.read())
        async with http.post(base + "/v1/route", headers=headers, json=[token]) as answer:
            node.seen.append(await answer.read())
