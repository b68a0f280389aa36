"""A node with NextGraph's listener: recorded clients again, sockets, restarts, the command line."""

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from msgspec.structs import replace

from command_line import begun
from forked import Forked
from nextgraph_broker import INNER, TOPIC_A, identity, pin
from nextgraph_support import BROKER as PEER_KEY, CONVERGENCE_KEY, INFO, make_commit
from rillnode.actors.nextgraph.context import Registration as RegistrationMode
from rillnode.actors.nextgraph.names import PREFIX, topic_stream
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.bootstrap import parse_invitation
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.commits import CommitHeader
from rillnode.codecs.nextgraph.events import EVENT, Event, EventContent, sign_event
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.objects import split_object
from rillnode.codecs.nextgraph.requests import (
    BlocksGet,
    BlocksPut,
    ClientRequest,
    RepoPinStatusReq,
    RequestContent,
    TopicSyncReq,
)
from rillnode.codecs.nextgraph.results import ProtocolCode, ResultCode
from rillnode.codecs.nextgraph.start import AuthResult, Registration
from rillnode.codecs.nextgraph.types import ForwardedPeer
from rillnode.node.cli import main
from rillnode.node.config.tables import Config, GrantTable, HttpListener, NoiseListener
from rillnode.node.keys.files import write_key
from rillnode.node.nextgraph import broker as nextgraph_module
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.runtime import Node
from rillnode.transports.web import accept_websocket

SECONDS: Final = 120.0
VECTORS: Final = Path(__file__).parents[1] / "conformance" / "vectors"
WIRE: Final[list[dict[str, Any]]] = json.loads((VECTORS / "nextgraph_wire.json").read_text())
KEYS: Final = {r["name"]: bytes.fromhex(r["hex"]) for r in WIRE if r["direction"] == "-"}
BROKER: Final = Identity.from_seed(KEYS["broker_static_ed25519_seed"])


def config(directory: Path, registration: RegistrationMode = "open") -> Config:
    return Config(
        name="broker",
        data_dir=directory,
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        tables=[NextgraphListener(listen="127.0.0.1:0", registration=registration)],
    )


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await test()

    asyncio.run(bounded())


class Client:
    """A client on a real WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, key: Identity) -> None:
        self.socket = socket
        self.key = key
        self._ids = 0

    async def come_in(self, broker: bytes, user: str, code: bytes | None = None) -> int:
        login = ClientLogin(
            user=identity(user),
            client=identity("client"),
            info=INFO,
            registration=Registration(code),
        )
        self.dialogue = ClientDialogue(self.key, broker, login)
        while True:
            for frame in self.dialogue.take_output():
                await self.socket.send_bytes(frame)
            said = await self.hear()
            if isinstance(said, AuthResult):
                return int(said.result)

    async def hear(self) -> Any:
        message = await self.socket.receive(SECONDS)
        assert message.type is WSMsgType.BINARY, message
        return self.dialogue.receive(message.data)

    async def send(self, content: RequestContent) -> None:
        self._ids += 1
        message = ClientMessage(INNER, ClientRequest(self._ids, content))
        await self.socket.send_bytes(self.dialogue.seal(encode_message(message)))

    async def ask(self, content: RequestContent) -> list[tuple[int, Any]]:
        await self.send(content)
        answers: list[tuple[int, Any]] = []
        while not answers or answers[-1][0] == ResultCode.PARTIAL_CONTENT:
            said = await self.hear()
            answers.append((said.content.result, said.content.content))
        return answers

    def event(self, body: bytes, after: list[bytes]) -> tuple[Event, bytes]:
        commit, blocks = make_commit(body, CommitHeader(acks=after))
        publisher = ForwardedPeer(self.key.public_key)
        content = EventContent(TOPIC_A.public_key, publisher, 1, blocks, [], b"k" * 32)
        return sign_event(content, TOPIC_A, self.key), commit.reference.id


@asynccontextmanager
async def client(
    node: Node | str,
    user: str = "alice",
    *,
    name: str = "",
    code: bytes | None = None,
    result: int = 0,
) -> AsyncGenerator[Client]:
    """A client of a node's, or of what listens at an address: come in, or refused with a result."""
    url = f"ws://{node if isinstance(node, str) else node.addresses()['nextgraph']}/"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=NEXTGRAPH_MESSAGE_BYTES_MAX) as socket,
    ):
        one = Client(socket, identity(f"peer {name or user}"))
        assert await one.come_in(PEER_KEY.public_key, user, code) == result
        yield one


# Recorded clients --------------------------------------------------------------------------------


def frames(run: str) -> list[tuple[bool, bytes]]:
    mark = re.compile(f"det_node_{run}_raw_[0-9]+")
    return [
        (record["direction"] == "client->broker", bytes.fromhex(record["hex"]))
        for record in WIRE
        if mark.fullmatch(record["name"])
    ]


def test_a_recorded_client_that_makes_a_wallet_gets_every_recorded_answer(tmp_path: Path) -> None:
    write_key(tmp_path / "nextgraph.key", BROKER)
    fixed = [KEYS["broker_hello_nonce"], KEYS["broker_noise_ephemeral"]]

    def entropy(count: int) -> bytes:
        return fixed.pop(0) if connecting and fixed else os.urandom(count)

    connecting = False

    async def test() -> None:
        nonlocal connecting
        async with (
            Node(config(tmp_path), entropy=entropy) as node,
            aiohttp.ClientSession() as session,
        ):
            connecting = True
            url = f"ws://{node.addresses()['nextgraph']}/"
            async with session.ws_connect(url) as socket:
                for sent, frame in frames("create"):
                    if sent:
                        await socket.send_bytes(frame)
                    else:
                        # The answers are the recorded ones, down to the last sealed byte.
                        assert (await socket.receive(SECONDS)).data == frame
            streams = await node.client.streams(PREFIX)
            assert len(streams) == 10

    run(test)


# A node and its log ------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory whose broker has the key of the tests."""
    write_key(tmp_path / "nextgraph.key", PEER_KEY)
    return tmp_path


async def test_what_a_client_publishes_is_on_the_common_log_and_outlives_the_node(
    directory: Path,
) -> None:
    made: list[Event] = []
    commits: list[bytes] = []
    for start in (0, 3):
        async with Node(config(directory)) as node, client(node) as writer:
            if not start:
                await writer.ask(pin(TOPIC_A))
            for number in range(start, start + 3):
                event, commit = writer.event(b"%d" % number, commits[-1:])
                ((result, _),) = await writer.ask(event)
                assert result == ResultCode.OK
                made.append(event)
                commits.append(commit)
            stream = await node.stream(topic_stream(INNER.id, TOPIC_A.public_key))
            entries = await stream.pull(index=0, limit=100)
            assert [entry.data for entry in entries] == [EVENT.encode(one) for one in made]
            async with client(node, name="phone") as device:
                answers = await device.ask(TopicSyncReq(TOPIC_A.public_key, [], [], None))
                assert [content.item for _, content in answers[:-1]] == made


async def test_who_follows_the_stream_sees_events_as_they_are_published(directory: Path) -> None:
    async with Node(config(directory)) as node, client(node) as writer:
        await writer.ask(pin(TOPIC_A))
        stream = await node.stream(topic_stream(INNER.id, TOPIC_A.public_key))
        async with aclosing(stream.tail(start="start")) as entries:
            for number in range(3):
                event, _ = writer.event(b"%d" % number, [])
                await writer.ask(event)
                entry = await anext(entries)
                assert (entry.index, entry.data) == (number, EVENT.encode(event))


def test_what_was_acknowledged_is_there_after_a_kill_and_what_was_not_may_be_sent_again(
    directory: Path,
) -> None:
    ports = directory / "ports.json"

    @asynccontextmanager
    async def process() -> AsyncGenerator[tuple[Forked, str]]:
        ports.unlink(missing_ok=True)
        options = ["--data-dir", str(directory), "--ports-file", str(ports), "--quiet"]
        for listener in ("noise", "http", "nextgraph"):
            options += ["--set", f"{listener}.listen=127.0.0.1:0"]
        running = begun("run", "--dev", *options)
        try:
            while not ports.exists():
                assert running.poll() is None
                await asyncio.sleep(0.02)
            yield running, json.loads(ports.read_text())["nextgraph"]
        finally:
            running.kill()
            running.wait()

    async def test() -> None:
        made: list[Event] = []
        commits: list[bytes] = []
        async with process() as (running, address), client(address) as writer:
            await writer.ask(pin(TOPIC_A))
            for number in range(25):
                event, commit = writer.event(b"%d" % number, commits[-1:])
                made.append(event)
                commits.append(commit)
                if number < 20:
                    ((result, _),) = await writer.ask(event)
                    assert result == ResultCode.OK
            # The rest is under way when the node is killed, and nobody knows how far it came.
            for event in made[20:]:
                await writer.send(event)
            running.kill()
            running.wait()
        async with process() as (_, address), client(address) as writer:
            sync = TopicSyncReq(TOPIC_A.public_key, [], [], None)
            answers = await writer.ask(sync)
            kept = [content.item for _, content in answers[:-1]]
            assert len(kept) >= 20
            assert kept == made[: len(kept)]
            for event in made:
                ((result, _),) = await writer.ask(event)
                assert result == ResultCode.OK
            answers = await writer.ask(sync)
            assert [content.item for _, content in answers[:-1]] == made

    run(test)


async def test_a_file_of_megabytes_goes_in_and_comes_out_again(directory: Path) -> None:
    content = os.urandom(2_500_000)
    made = split_object(content, CONVERGENCE_KEY, block_bytes=1_048_576)
    async with Node(config(directory)) as node:
        async with client(node) as writer:
            await writer.ask(pin(TOPIC_A))
            for block in made.blocks:
                ((result, _),) = await writer.ask(BlocksPut([block]))
                assert result == ResultCode.OK
        async with client(node, "bob") as reader:
            await reader.ask(pin(reads=[TOPIC_A]))
            answers = await reader.ask(BlocksGet([made.reference.id], True, None))
            assert [block for _, block in answers[:-1]] == made.blocks


def test_a_silent_client_is_probed_by_the_system_and_not_pinged(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Released clients close when they get a ping.
    probed: list[tuple[float | None, int]] = []

    async def accept(request: web.Request, *arguments: Any, **options: Any) -> web.StreamResponse:
        assert request.transport is not None
        link = request.transport.get_extra_info("socket")
        probes = link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probed.append((options["ping_seconds"], probes))
        return await accept_websocket(request, *arguments, **options)

    monkeypatch.setattr(nextgraph_module, "accept_websocket", accept)

    async def test() -> None:
        async with Node(config(directory)) as node, client(node):
            ((ping_seconds, probes),) = probed
            assert ping_seconds is None
            assert probes

    run(test)


async def test_what_is_no_binary_message_or_too_large_closes_the_connection(
    directory: Path,
) -> None:
    async with Node(config(directory)) as node, client(node) as bystander:
        async with client(node, "bob") as one:
            await one.socket.send_str("hello")
            message = await one.socket.receive(SECONDS)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1_003)
        async with client(node, "carol") as one:
            # All of it is taken, and what the client sends after it.
            for _ in range(3):
                await one.socket.send_bytes(bytes(NEXTGRAPH_MESSAGE_BYTES_MAX + 1))
            message = await one.socket.receive(SECONDS)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1_009)
        assert (await bystander.ask(RepoPinStatusReq(b"?" * 32)))[0][0] == ResultCode.FALSE


async def test_the_bootstrap_document_leads_to_the_broker_and_nothing_else_is_there(
    directory: Path,
) -> None:
    async with Node(config(directory)) as node, aiohttp.ClientSession() as session:
        address = node.addresses()["nextgraph"]
        url = f"http://{address}/.ng_bootstrap"
        async with session.get(url, headers={"Origin": "http://localhost:3000"}) as response:
            assert response.status == 200
            assert response.content_type == "text/json"
            assert response.headers["Cache-Control"] == "max-age=0"
            allowed = response.headers["Access-Control-Allow-Origin"]
            assert allowed == "http://localhost:3000"
            document = json.loads(await response.read())
        (server,) = document["V0"]["bootstrap"]["servers"]
        assert server["server_type"] == {"Localhost": int(address.rpartition(":")[2])}
        assert bytes(server["peer_id"]["Ed25519PubKey"]).hex() == node.facts["nextgraph_peer_id"]
        evil = {"Origin": "https://evil.example"}
        for status, method, path, headers in (
            (403, "GET", "/.ng_bootstrap", evil),
            (403, "GET", "/.ng_bootstrap", {"Host": "evil.example"}),
            (403, "GET", "/.ng_bootstrap", {"X-Forwarded-For": "8.8.8.8"}),
            (403, "GET", "/.ng_bootstrap", {"X-Real-IP": "8.8.8.8"}),
            (403, "GET", "/.ng_bootstrap", {"Via": "1.1 proxy"}),
            (403, "GET", "/.ng_bootstrap", {"Forwarded": "for=8.8.8.8"}),
            (403, "GET", "/.ng_bootstrap", {"X-Forwarded-Host": "localhost"}),
            (403, "GET", "/", {}),
            (403, "GET", "/other", {}),
            (405, "POST", "/.ng_bootstrap", {}),
            (405, "HEAD", "/", {}),
        ):
            async with session.request(
                method, f"http://{address}{path}", headers=headers
            ) as response:
                assert response.status == status, path
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"ws://{address}/", headers=evil)
        assert refused.value.status == 403


async def test_invitations_are_made_on_the_command_line(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_key(directory / "admin.key", identity("admin"))
    write_key(directory / "identity.key", identity("node"))
    grant = GrantTable(who=f"noise:{identity('admin').public_hex}", streams="*", may=("admin",))

    async def invite(node: Node, *options: str) -> dict[str, Any]:
        target = ["--node", f"noise://{node.addresses()['noise']}", "--json"]
        target += ["--node-identity", node.identity, "--key", str(directory / "admin.key")]
        argv = ["nextgraph", "invite", *options, *target]
        assert await asyncio.to_thread(main, argv) == 0
        return dict(json.loads(capsys.readouterr().out))

    invited = replace(config(directory, "invitation"), grants=(grant,))
    async with Node(invited) as node:
        made = await invite(node, "--origin", "http://localhost:1440", "--days", "1")
        link = made["link"]
        assert link.startswith("http://localhost:1440/#/i/")
        invitation = parse_invitation(link)
        code = bytes.fromhex(made["code"])
        assert invitation.code == code
        assert invitation.bootstrap.servers[0].peer_id == PEER_KEY.public_key
        async with client(node, "stranger", result=ProtocolCode.INVITATION_REQUIRED):
            pass
        async with client(node, "alice", code=code):
            pass
        async with client(node, "bob", code=code, result=ProtocolCode.INVITATION_REQUIRED):
            pass
        assert node.status()["nextgraph"]["counters"] == {"refused.invitation_required": 2}
