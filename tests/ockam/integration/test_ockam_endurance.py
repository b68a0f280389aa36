"""The `ockam` listener under much of the same: hostile bytes in both dialects, idle connections."""

import asyncio
import contextlib
import resource
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest

from nodes import connect_to, node_config
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from rillnode.codecs.routing import stream_admin
from rillnode.codecs.routing.dialects import Dialect, dialling_codec
from rillnode.codecs.routing.routes import TCP, Address, Route, WireMessage, local
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    GetIndexRequest,
    PullRequest,
    PushRequest,
    SaveIndexRequest,
    encode_request,
)
from rillnode.codecs.routing.wire import wire_codec
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until

SECONDS = 60.0
ROUNDS = 150
IDLE = 5_000

ADMIN = stream_admin.encode_request(stream_admin.AdminRequest(1, stream_admin.Describe("s")))
TALK: tuple[tuple[Route, bytes], ...] = (
    ((local("stream"),), encode_request(CreateRequest("s"))),
    ((local("ST_S_0_s"),), encode_request(PushRequest(1, b"x" * 300))),
    ((local("ST_S_0_s"),), encode_request(PullRequest(1, 0, 10))),
    ((local("stream_index"),), encode_request(GetIndexRequest("c", "s"))),
    ((local("stream_index"),), encode_request(SaveIndexRequest("c", "s", 1))),
    ((local("stream"),), ADMIN),
    ((local("stream_subscribe"),), encode_request(BidirectionalRequest("s", ""))),
    ((local("stream_subscribe"),), encode_request(BidirectionalPublisherRequest("s", "t", ""))),
    ((local("static_forwarding"),), b"\x05alias"),
    ((local("forward_to_alias"), local("echo")), b"hello"),
    ((local("pub_sub"),), b"\x06me:top"),
    ((local("pub_sub_t_top"),), b"news"),
    ((local("forwarding"),), b"register"),
    ((local("tracing"),), b"trace"),
    ((local("uppercase"),), b"\x02hi"),
    ((local("discovery"),), b"\x00\x00"),
    ((local("SC_listener"),), bytes(32)),
    ((Address(TCP, b"127.0.0.1:1"), local("echo")), b"dial"),
    ((), b"\x00"),
)


def damaged(random: Random, dialect: Dialect) -> bytes:
    """What a peer of a dialect sends in one breath, with some bytes wrong, gone or too many."""
    codec, wire = dialling_codec(dialect), wire_codec("bare" if dialect == "u16" else "cbor")
    messages = [WireMessage(onward, (local("me"),), payload) for onward, payload in TALK]
    random.shuffle(messages)
    data = bytearray(codec.start() + codec.encode([wire.encode(one) for one in messages]))
    for _ in range(random.randrange(4)):
        at = random.randrange(len(data))
        data[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(data)


async def send_damaged(address: str, random: Random, data: bytes) -> None:
    """Send it in pieces, read a little of what comes back, and leave."""
    peer = await OckamPeer.connect(address)
    cut = random.randrange(len(data))
    with contextlib.suppress(OSError, TimeoutError):
        for piece in (data[:cut], data[cut:]):
            peer.writer.write(piece)
            await peer.writer.drain()
            async with asyncio.timeout(0.02):
                await peer.reader.read(random.randrange(1, 4_096))
    peer.writer.transport.abort()


async def test_damaged_messages_of_either_dialect_make_nothing_fail(tmp_path: Path) -> None:
    random = Random(2024)
    async with Node(node_config(tmp_path)) as node:
        address = node.addresses()["ockam"]
        for number in range(ROUNDS):
            data = damaged(random, "u16" if number % 2 else "2024")
            await send_damaged(address, random, data)
        for kind in (OckamPeer, Ockam2024Peer):
            async with await kind.connect(address) as peer:
                assert (await peer.ask("echo", b"well?")).payload == b"well?"
        await until(lambda: not node.status()["listeners"]["ockam"]["links"], seconds=SECONDS)
        failed = {
            name: kind["last_failure"]
            for name, kind in node.status()["actors"].items()
            if kind["failures"]
        }
        assert failed == {}
        assert all(check.ok for check in node.checks())


@pytest.mark.long
async def test_five_thousand_idle_connections_disturb_nobody(tmp_path: Path) -> None:
    needed = 2 * IDLE + 1_000  # both ends are in this process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} open files, {hard} are allowed")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    async with Node(node_config(tmp_path)) as node:
        address = node.addresses()["ockam"]
        peers = list[OckamPeer]()
        for number in range(IDLE):
            kind = Ockam2024Peer if number % 2 else OckamPeer
            peers.append(await kind.connect(address))
            if number % 10 < 2:  # some have said something before they fell silent
                assert (await peers[-1].ask("echo", b"here")).payload == b"here"

        def links() -> int:
            count: int = node.status()["listeners"]["ockam"]["links"]
            return count

        await until(lambda: links() == IDLE, seconds=SECONDS)
        async with await connect_to(node) as client:
            stream = await client.stream("s")
            async with aclosing(stream.tail(start="start")) as entries:
                for index in range(100):
                    assert await stream.push(b"%d" % index) == index
                    assert (await anext(entries)).index == index
        for peer in peers[:: IDLE // 100]:
            assert (await peer.ask("echo", b"still")).payload == b"still"
        for peer in peers:
            peer.writer.transport.abort()
        await until(lambda: links() == 0, seconds=SECONDS)
