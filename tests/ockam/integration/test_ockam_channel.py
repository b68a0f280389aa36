"""Secure channels of a real node: peers of every level over TCP, its own clients, the command line.

What the peers write is derived from the wire alone (channel_peer.py).
"""

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from channel_peer import LEVELS, ChannelPeer, Name, data
from command_line import call, lines
from coroutines import handed_by, run_with
from nodes import CLIENT, connect_to, node_config
from ockam_peer import OckamPeer
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import (
    ActorError,
    ConfigError,
    HandshakeError,
    RequestError,
    TransportError,
)
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, encode_message, local
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Response,
    Status,
    decode_response,
    encode_request,
)
from rillnode.node.config import Config, GrantTable
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel
from rillnode.node.ockam.config import ChannelTable, OckamListener
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until as until_within

ANSWER_SECONDS = 30.0
FRIEND = ChannelKey(b"a friend's key".ljust(32, b"."))
MAY: Any = ("create", "push", "pull")


def config_of(directory: Path, **channel: Any) -> Config:
    """Only the friend may use streams, and only the tests' client connects by Noise."""
    grants = (
        GrantTable(who=f"ockam:{FRIEND.public_hex}", streams="*", may=MAY),
        GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", may=("admin",)),
    )
    config = node_config(directory, *grants)
    listener = config.table(OckamListener)
    assert listener is not None
    table = ChannelTable(**channel)
    ockam = msgspec.structs.replace(listener, channel=table)
    return config.having(ockam)


def with_node(directory: Path, test: Callable[[Node], Awaitable[None]], **channel: Any) -> None:
    async def run() -> None:
        async with Node(config_of(directory, **channel)) as node:
            await test(node)

    asyncio.run(run())


node = handed_by(with_node)


async def until(condition: Callable[[], object]) -> None:
    await until_within(condition, seconds=ANSWER_SECONDS)


class Channel:
    """A channel over a TCP connection of its own, with frames of 2021."""

    def __init__(self, peer: OckamPeer, level: Name, private: bytes | None = None) -> None:
        self.peer = peer
        self.end = ChannelPeer(level, private)
        self.route: Route = ()

    async def open(self) -> "Channel":
        answer = await self.ask((local("SC_listener"),), self.end.message_1())
        self.route = answer.return_route
        self.peer.send(self.route, self.end.message_3(answer.payload, b"0123456789abcdef"))
        return self

    async def ask(self, route: Route, payload: bytes) -> WireMessage:
        self.peer.send(route, payload)
        return await self.peer.receive(ANSWER_SECONDS)

    async def talk(self, worker: str | bytes, request: bytes) -> tuple[bytes, Response]:
        """Ask a worker inside the channel; return who answered, and what."""
        inner = encode_message((local(worker),), (local("app"),), request)
        answer = await self.ask(self.route, self.end.seal(inner))
        assert answer.return_route == self.route
        message = decode_message(self.end.open(answer.payload), strict=True)
        assert message.onward_route == (local("app"),)
        return message.return_route[0].value, decode_response(message.payload)


@pytest.mark.parametrize("level", LEVELS)
async def test_a_peer_of_each_level_uses_streams_through_its_channel(
    node: Node, level: Name
) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        channel = await Channel(peer, level, FRIEND.private).open()
        stream, made = await channel.talk("stream", encode_request(CreateRequest("s")))
        assert made == CreateResponse("s")
        for index in range(3):
            request = encode_request(PushRequest(index, b"m%d" % index))
            confirm = (await channel.talk(stream, request))[1]
            assert confirm == PushConfirm(index, Status.OK, index)
        pulled = (await channel.talk(stream, encode_request(PullRequest(9, 0, 10))))[1]
        assert pulled == PullResponse(9, [(0, b"m0"), (1, b"m1"), (2, b"m2")])

        # The connection itself may nothing, nor may another key's channel.
        peer.send(stream, encode_request(PullRequest(9, 0, 10)))
        stranger = await Channel(peer, level).open()
        inner = encode_message((local(stream),), (local("app"),), b"")
        peer.send(stranger.route, stranger.end.seal(inner))
        refused = (await stranger.talk("stream", encode_request(CreateRequest("s"))))[1]
        assert isinstance(refused, ErrorResponse)
        assert node.status()["channels"]["open"] == 2
        await until(lambda: node.status()["undelivered"]["refused"] >= 2)


async def test_answers_fit_the_link_that_carries_the_channel(node: Node) -> None:
    """A pull is answered with as many entries as a sealed message of 2021 holds."""
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        channel = await Channel(peer, "elixir-2021", FRIEND.private).open()
        stream, _ = await channel.talk("stream", encode_request(CreateRequest("s")))
        for index in range(3):
            await channel.talk(stream, encode_request(PushRequest(index, bytes(30_000))))
        pulled = (await channel.talk(stream, encode_request(PullRequest(9, 0, 10))))[1]
        assert isinstance(pulled, PullResponse)
        assert [index for index, _ in pulled.messages] == [0, 1]


async def test_a_channel_ends_with_its_connection(node: Node) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        channel = await Channel(peer, "2022", FRIEND.private).open()
        await channel.talk("stream", encode_request(CreateRequest("s")))
        assert node.status()["channels"]["open"] == 1
    await until(lambda: not node.status()["channels"]["open"])


# The node's key and configuration ----------------------------------------------------------------


def test_the_node_makes_a_key_and_keeps_it(tmp_path: Path) -> None:
    keys: list[str] = []

    async def test(node: Node) -> None:
        keys.append(node.status()["channels"]["key"])
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            keys.append((await Channel(peer, "2022").open()).end.remote_key)

    for _ in range(2):
        with_node(tmp_path, test)
    file = tmp_path / "ockam.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(keys) == {ChannelKey.from_hex(file.read_text()).public_hex}


def test_a_configured_key_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Node(config_of(tmp_path, key_file=tmp_path / "none.key"))
    assert caught.value.code == "key.file"


def test_channels_can_be_switched_off(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        assert node.status()["channels"] is None
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            peer.send("SC_listener", ChannelPeer("2022").message_1())
            await until(lambda: node.status()["undelivered"])

    with_node(tmp_path, test, enabled=False)
    assert not (tmp_path / "ockam.key").exists()


@run_with(allow=(FRIEND.public_hex,))
async def test_keys_that_are_not_allowed_are_refused_and_counted(node: Node) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        await Channel(peer, "2022").open()
        peer.send("SC_listener", data(bytes(range(32))))
        await until(lambda: len(node.status()["channels"]["counters"]) == 2)
        counters = node.status()["channels"]["counters"]
        assert counters == {"channel.not_allowed": 1, "channel.identities": 1}
        await until(lambda: not node.status()["channels"]["open"])
        friend = await Channel(peer, "2022", FRIEND.private).open()
        await friend.talk("stream", encode_request(CreateRequest("s")))


# rillnode's own client ---------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
async def test_a_client_opens_a_channel_of_each_level(node: Node, level: ChannelLevel) -> None:
    async with (
        await connect_to(node) as client,
        await SecureChannel.open(client, "SC_listener", level=level, key=FRIEND) as channel,
    ):
        assert channel.remote_key == node.status()["channels"]["key"]
        made = await channel.ask("stream", encode_request(CreateRequest("s")))
        assert decode_response(made.payload) == CreateResponse("s")
        push = encode_request(PushRequest(1, b"text"))
        confirms = await asyncio.gather(*(channel.ask(made.return_route, push) for _ in range(50)))
        answers = [decode_response(confirm.payload) for confirm in confirms]
        assert {a.index for a in answers if isinstance(a, PushConfirm)} == set(range(50))


async def test_a_client_talks_to_the_expected_key_only(node: Node) -> None:
    async with await connect_to(node) as client:
        key = node.status()["channels"]["key"]
        await SecureChannel.open(client, "SC_listener", remote_key=key)
        with pytest.raises(HandshakeError) as caught:
            await SecureChannel.open(client, "SC_listener", remote_key=FRIEND.public_hex)
        assert caught.value.code == "channel.wrong_key"
        with pytest.raises(ConfigError):
            await SecureChannel.open(client, "SC_listener", remote_key="key")


@run_with(idle_seconds=0.05)
async def test_the_client_learns_that_its_node_has_closed_a_channel(node: Node) -> None:
    async with await connect_to(node) as client:
        channel = await SecureChannel.open(client, "SC_listener", key=FRIEND)
        await until(lambda: node.status()["channels"]["counters"].get("channel.idle"))
        for _ in range(2):
            with pytest.raises(RequestError) as caught:
                await channel.ask("stream", encode_request(CreateRequest("s")))
            assert caught.value.code == "address.unknown"


async def test_a_closed_channel_says_so(node: Node) -> None:
    async with await connect_to(node) as client:
        channel = await SecureChannel.open(client, "SC_listener", key=FRIEND)
        with pytest.raises(ActorError):
            await channel.ask("nobody", b"x", timeout_seconds=0.01)
        await channel.close()
        with pytest.raises(TransportError) as caught:
            await channel.ask("stream", b"x")
        assert caught.value.code == "channel.closed"


async def test_a_channel_goes_through_another_node(tmp_path: Path) -> None:
    """End to end: the node in between carries sealed messages, and has no part in the keys."""
    async with Node(config_of(tmp_path / "far")) as far:
        near_config = config_of(tmp_path / "near")
        async with Node(near_config) as near, await connect_to(near) as client:
            route = f"1#{far.addresses()['ockam']};api"
            for level in LEVELS:
                channel = await SecureChannel.open(
                    client,
                    route,
                    level=level,
                    key=FRIEND,
                    remote_key=far.status()["channels"]["key"],
                )
                made = await channel.ask("stream", encode_request(CreateRequest(level)))
                assert decode_response(made.payload) == CreateResponse(level)
            assert near.status()["channels"]["open"] == 0
            assert far.status()["channels"]["open"] == len(LEVELS)


def test_the_command_line_sends_through_a_channel(tmp_path: Path) -> None:
    key = tmp_path / "friend.key"
    key.write_text(FRIEND.private_hex)
    key.chmod(0o600)
    secret = tmp_path / "client.key"
    secret.write_text(CLIENT.seed_hex)
    secret.chmod(0o600)

    async def test(node: Node) -> None:
        argv = [
            "route", "ask", "stream", "--channel", "SC_listener",
            "--channel-key", key, "--channel-remote-key", node.status()["channels"]["key"],
            "--payload-hex", encode_request(CreateRequest("s")).hex(),
            "--node", f"noise://{node.addresses()['noise']}", "--key", secret,
            "--node-identity", node.identity,
        ]  # fmt: skip
        (answer,) = lines(await asyncio.to_thread(call, *argv))
        assert decode_response(bytes.fromhex(answer["payload"])) == CreateResponse("s")

    with_node(tmp_path / "node", test)
