"""The hub's services against plain TCP peers: real sockets, u16 frames."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from channel_peer import LEVELS, ChannelPeer
from coroutines import handed_by, run_with
from nodes import node_config
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, encode_message, local
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.runtime import Node

SECONDS = 120.0

EVERY_SERVICE = ServicesTable()

Connect = Callable[[], Awaitable[OckamPeer]]


def with_peers(
    directory: Path,
    talk: Callable[[Node, Connect], Awaitable[None]],
    services: ServicesTable = EVERY_SERVICE,
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            config = node_config(directory).having(services)
            node = await stack.enter_async_context(Node(config))

            async def connect() -> OckamPeer:
                address = node.addresses()["ockam"]
                return await stack.enter_async_context(await OckamPeer.connect(address))

            await talk(node, connect)

    asyncio.run(run())


node = handed_by(with_peers)
connect = handed_by(with_peers, 1)


async def ask(peer: OckamPeer, onward: str | bytes, payload: bytes) -> WireMessage:
    peer.send(onward, payload)
    return await peer.receive(SECONDS)


async def until_gone(node: Node, peer: OckamPeer) -> None:
    """Close a peer's connection and wait until the node knows."""
    links = node.status()["listeners"]["ockam"]["links"]
    peer.writer.close()
    async with asyncio.timeout(SECONDS):
        while node.status()["listeners"]["ockam"]["links"] >= links:
            await asyncio.sleep(0.01)


async def test_echo_answers_as_a_node_of_2021_did(connect: Connect) -> None:
    """Byte for byte the recording in conformance/vectors/ockam.json, run basic, aug2021."""
    peer = await connect()
    sent = "0101000c6563686f5f73657276696365010010323239626265623237643865363233380470696e67"
    peer.send_frame(bytes.fromhex(sent))
    length = int.from_bytes(await peer.reader.readexactly(2), "big")
    assert (await peer.reader.readexactly(length)).hex() == (
        "010100103232396262656232376438653632333801000c6563686f5f736572766963650470696e67"
    )


async def test_both_names_of_a_service_answer_as_themselves(connect: Connect) -> None:
    peer = await connect()
    for name in ("echo", "echo_service", "uppercase", "uppercase_service"):
        answer = await ask(peer, name, b"\x02hi")
        assert answer.return_route == (local(name),)
        assert answer.payload in (b"\x02hi", b"\x02HI")


async def test_an_alias_forwards_between_two_connections(node: Node, connect: Connect) -> None:
    device, sender = await connect(), await connect()
    registered = await ask(device, "forwarding_service", b"register")
    assert registered.payload == b"register"
    (alias,) = registered.return_route
    assert alias.value.startswith(b"FWD_")
    assert len(alias.value) == 20

    sender.send((alias, local("inner"), local("most")), b"to the device", back="asker")
    message = await device.receive(SECONDS)
    assert message.onward_route == (local("me"), local("inner"), local("most"))
    assert message.payload == b"to the device"
    # The alias is not in the way of the answer, the sender's connection is.
    assert len(message.return_route) == 2
    device.send(message.return_route, b"from the device")
    answer = await sender.receive(SECONDS)
    assert answer.onward_route == (local("asker"),)
    assert answer.payload == b"from the device"

    await until_gone(node, device)
    sender.send((alias,), b"nobody is there")
    assert (await ask(sender, "echo", b"still here")).payload == b"still here"
    assert node.status()["undelivered"]["unknown_address"] == 1


async def test_a_static_alias_is_kept_over_a_reconnect_and_cannot_be_stolen(
    node: Node, connect: Connect
) -> None:
    device, stranger, sender = await connect(), await connect(), await connect()
    for _ in range(2):
        registered = await ask(device, "static_forwarding", b"\x06device")
        assert registered.payload == b"\x06device"
        assert registered.return_route == (local("forward_to_device"),)

    stranger.send("static_forwarding_service", b"\x06device")
    sender.send("forward_to_device", b"one")
    assert (await device.receive(SECONDS)).payload == b"one"
    assert (await ask(stranger, "echo", b"no answer before")).payload == b"no answer before"

    await until_gone(node, device)
    sender.send("forward_to_device", b"lost")
    assert (await ask(sender, "echo", b"in order")).payload == b"in order"
    again = await connect()
    await ask(again, "static_forwarding", b"\x06device")
    sender.send("forward_to_device", b"two")
    assert (await again.receive(SECONDS)).payload == b"two"


class Channel:
    """A peer behind a secure channel, over a connection of its own."""

    def __init__(self, peer: OckamPeer, private: bytes) -> None:
        self.peer = peer
        self.end = ChannelPeer(LEVELS[0], private)
        self.route: Route = ()

    async def open(self) -> "Channel":
        answer = await ask(self.peer, "SC_listener", self.end.message_1())
        self.route = answer.return_route
        self.peer.send(self.route, self.end.message_3(answer.payload, b"0123456789abcdef"))
        return self

    def send(self, onward: str, payload: bytes) -> None:
        inner = encode_message((local(onward),), (local("app"),), payload)
        self.peer.send(self.route, self.end.seal(inner))

    async def receive(self) -> WireMessage:
        return decode_message(self.end.open((await self.peer.receive(SECONDS)).payload))


async def test_an_alias_belongs_to_the_key_of_a_secure_channel(connect: Connect) -> None:
    """So it can be taken along although the old connection has not ended."""
    key, other_key = (ChannelKey(text.ljust(32, b".")).private for text in (b"one", b"other"))
    for _number in range(2):
        device = await Channel(await connect(), key).open()
        device.send("static_forwarding", b"\x06device")
        registered = await device.receive()
        assert registered.return_route == (local("forward_to_device"),)
        sender = await connect()
        sender.send((local("forward_to_device"), local("inner")), b"sealed on its way")
        message = await device.receive()
        assert message.onward_route == (local("app"), local("inner"))
        assert message.payload == b"sealed on its way"
    thief = await Channel(await connect(), other_key).open()
    thief.send("static_forwarding", b"\x06device")
    thief.send("echo", b"no answer before")
    assert (await thief.receive()).payload == b"no answer before"


async def test_what_is_published_reaches_every_subscriber(node: Node, connect: Connect) -> None:
    peers = [await connect() for _ in range(3)]
    for number, peer in enumerate(peers):
        text = b"n%d:weather" % number
        answer = await ask(peer, "pub_sub", bytes((len(text),)) + text)
        assert answer.return_route == (local("pub_sub_t_weather"),)
        assert answer.payload[1:] == text
    publisher = await connect()
    for count in (3, 2):
        publisher.send((local("pub_sub_t_weather"), local("inner")), b"sun")
        for peer in peers[3 - count :]:
            message = await peer.receive(SECONDS)
            assert message.onward_route == (local("me"), local("inner"))
            assert message.payload == b"sun"
        if count == 3:
            await until_gone(node, peers[0])


async def test_a_watcher_sees_both_directions(connect: Connect) -> None:
    watching, asking = await connect(), await connect()
    registered = await ask(watching, "tracing_service", b"register")
    assert registered.payload == b"register"
    (watcher,) = registered.return_route
    asking.send((watcher, local("uppercase")), b"\x02hi")
    answer = await asking.receive(SECONDS)
    assert answer.payload == b"\x02HI"
    assert answer.return_route == (watcher, local("uppercase"))
    copies = [await watching.receive(SECONDS) for _ in range(2)]
    assert [copy.payload for copy in copies] == [b"\x02hi", b"\x02HI"]
    assert {copy.return_route for copy in copies} == {(watcher,)}


async def test_discovery_lists_what_is_there(connect: Connect) -> None:
    peer = await connect()
    listed = (await ask(peer, "discovery", b"\x00\x00")).payload
    assert listed[:2] == b"\x00\x0a"
    for name in (b"stream", b"echo", b"stream_subscribe"):
        assert bytes((len(name),)) + name + b"\x01\x00" + bytes((len(name),)) + name in listed
    one = await ask(peer, "discovery", b"\x00\x01\x04echo")
    assert one.payload == b"\x00\x04echo\x01\x00\x04echo\x00"


LIST_OF_2022 = bytes.fromhex("09a401070260030004f4")
LIST_OF_2024 = bytes.fromhex("09a401070260030004f5")


async def test_each_generation_reads_the_ids_that_it_is_told(node: Node, connect: Connect) -> None:
    """Clients since 2022-12 read `64 6563686f`, the ones before `44 6563686f`."""
    peer = await connect()
    assert b"\x01\x44echo" in (await ask(peer, "discovery", LIST_OF_2022)).payload
    assert b"\x01\x64echo" in (await ask(peer, "discovery", LIST_OF_2024)).payload
    async with await Ockam2024Peer.connect(node.addresses()["ockam"]) as later:
        for request in (LIST_OF_2022, LIST_OF_2024):
            assert b"\x01\x64echo" in (await later.ask("discovery", request)).payload


@run_with(ServicesTable(enabled=("uppercase",)))
async def test_a_service_that_is_off_is_an_unknown_address(node: Node, connect: Connect) -> None:
    peer = await connect()
    for name in ("echo_service", "forwarding", "stream_subscribe", "discovery"):
        peer.send(name, b"\x00\x00")
    assert (await ask(peer, "uppercase", b"\x02hi")).payload == b"\x02HI"
    assert node.status()["undelivered"]["unknown_address"] == 4


async def test_malformed_requests_have_no_answer_and_harm_nothing(
    node: Node, connect: Connect
) -> None:
    peer = await connect()
    for name in ("uppercase", "static_forwarding", "pub_sub", "discovery", "stream_subscribe"):
        for payload in (b"", b"\xff" * 9, b"\x05\xff\xff\xff\xff\xff", b"\x7fshort"):
            peer.send(name, payload)
    # An upper-cased text is the one answer.
    assert (await ask(peer, "uppercase", b"plain text")).payload == b""
    assert (await peer.receive(SECONDS)).payload == b"\x7fSHORT"
    assert (await peer.receive(SECONDS)).payload == b"PLAIN TEXT"
    assert await peer.silent()
    assert node.status()["undelivered"]["refused"] == 12
