"""The `ockam` listener speaks to peers of 2021 and of 2024 on one port, each in its dialect."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from coroutines import handed_by, run_with
from nodes import connect_to, node_config
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from rillnode.codecs.errors import TransportError
from rillnode.codecs.limits import LINK_BUFFER_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.routing.dialects import Dialect, dialling_codec
from rillnode.codecs.routing.routes import WireMessage, encode_message, local
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Status,
    decode_response,
    encode_request,
)
from rillnode.codecs.routing.wire import wire_codec
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import OCKAM_LIMITS
from rillnode.transports.tcp import dial

RECORDS: list[dict[str, Any]] = [
    record
    for record in json.loads(
        (Path(__file__).parents[1] / "conformance/vectors/ockam.json").read_text()
    )
    if record["level"] == "head" and record["name"] not in ("version byte", "plain payload")
]
STREAM = b"ST_S_0_s"
SECONDS = 120.0

Talk = Callable[[Node, Ockam2024Peer], Awaitable[None]]


def with_peer(directory: Path, talk: Talk, *, strict: bool = False) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node(node_config(directory, strict=strict)))
            peer = await Ockam2024Peer.connect(node.addresses()["ockam"])
            await talk(node, await stack.enter_async_context(peer))

    asyncio.run(run())


node = handed_by(with_peer)
peer = handed_by(with_peer, 1)


async def ask(peer: OckamPeer, onward: str | bytes, request: Request) -> Any:
    peer.send(onward, encode_request(request))
    return decode_response((await peer.receive(SECONDS)).payload)


async def test_a_recorded_client_gets_the_recorded_bytes(peer: Ockam2024Peer) -> None:
    """All requests of the protocol, as a client of 2024 sent them; streams have other addresses."""
    addresses: dict[bytes, bytes] = {}
    for record in RECORDS:
        recorded = bytes.fromhex(record["hex"])[4:]
        (then,) = peer.wire.decode([recorded])
        if record["direction"] == "client>service":
            to = then.onward_route[0].value
            now = then._replace(onward_route=(local(addresses.get(to, to)),))
            peer.send_frame(peer.wire.encode(now))
            continue
        frame = await peer.receive_frame()
        (answer,) = peer.wire.decode([frame])
        was, own = then.return_route[0].value, answer.return_route[0].value
        if was.startswith(b"ST_S_"):
            assert addresses.setdefault(was, own) == own
        expected = then._replace(return_route=(local(addresses.get(was, was)),))
        if b"generated_" in then.payload:
            expected = expected._replace(payload=then.payload[:-8] + answer.payload[-8:])
        elif record is RECORDS[-1]:
            # The released service had one index for all partitions; here this one has none.
            assert then.payload.endswith(b"\x02\x01\x05")
            body = then.payload[25] - 1
            payload = then.payload[:25] + bytes((body,)) + then.payload[26:-2] + b"\x00"
            expected = expected._replace(payload=payload)
        assert frame == peer.wire.encode(expected)
        if expected == then:
            assert frame == recorded


async def test_create_push_pull(peer: Ockam2024Peer) -> None:
    answer = await peer.ask("stream", encode_request(CreateRequest("s")))
    assert decode_response(answer.payload) == CreateResponse("s")
    assert answer.return_route == (local(STREAM),)
    for index in range(3):
        confirm = await ask(peer, STREAM, PushRequest(1, b"m%d" % index))
        assert confirm == PushConfirm(1, Status.OK, index)
    pulled = await ask(peer, STREAM, PullRequest(9, 1, 10))
    assert pulled == PullResponse(9, [(1, b"m1"), (2, b"m2")])


async def test_a_peer_that_waits_for_the_greeting_gets_it(node: Node) -> None:
    async with await Ockam2024Peer.connect_and_wait(node.addresses()["ockam"]) as peer:
        assert await ask(peer, "stream", CreateRequest("s")) == CreateResponse("s")
        assert await peer.silent()


async def test_both_dialects_meet_on_one_stream(node: Node, peer: Ockam2024Peer) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as old:
        assert await ask(old, "stream", CreateRequest("s")) == CreateResponse("s")
        assert await ask(old, STREAM, PushRequest(1, b"old")) == PushConfirm(1, Status.OK, 0)
        large = bytes(2_000_000)
        assert await ask(peer, STREAM, PushRequest(2, large)) == PushConfirm(2, Status.OK, 1)
        both = PullResponse(3, [(0, b"old"), (1, large)])
        assert await ask(peer, STREAM, PullRequest(3, 0, 9)) == both
        assert await ask(old, STREAM, PullRequest(4, 1, 9)) == PullResponse(4, [])
        assert await ask(old, STREAM, PushRequest(5, b"on")) == PushConfirm(5, Status.OK, 2)
        assert await ask(old, STREAM, PullRequest(6, 1, 9)) == PullResponse(6, [(2, b"on")])
        assert node.status()["undelivered"] == {"entry_skipped": 1}


async def test_a_message_that_no_u16_frame_holds_is_dropped_and_counted(
    node: Node, peer: Ockam2024Peer
) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as old:
        alias = (await old.ask("static_forwarding", b"\x03old")).return_route
        for payload in (bytes(70_000), b"fits"):
            peer.send(alias, payload)
        assert (await old.receive(SECONDS)).payload == b"fits"
        assert node.status()["undelivered"] == {"too_large": 1}


@pytest.mark.parametrize("size", [255, 256, 257, 300, 511, 512])
async def test_first_frames_of_2021_that_begin_with_01_are_not_mistaken(
    node: Node, size: int
) -> None:
    await node.stream("s")
    async with await OckamPeer.connect(node.addresses()["ockam"]) as old:
        push = encode_request(PushRequest(1, b""))
        room = size - len(encode_message((local(STREAM),), (local("r" * 128),), push))
        frame = encode_message((local(STREAM),), (local("r" * (128 + room)),), push)
        assert len(frame) == size
        old.writer.write(size.to_bytes(2, "big")[:1])
        await asyncio.sleep(0.005)  # so that it may travel alone
        old.writer.write(size.to_bytes(2, "big")[1:] + frame)
        answer = await old.receive(SECONDS)
        while not answer.onward_route:  # made of an answered 01, where the rest came late
            answer = await old.receive(SECONDS)
        assert decode_response(answer.payload) == PushConfirm(1, Status.OK, 0)


async def test_heartbeats_are_ignored_and_pings_answered(peer: Ockam2024Peer) -> None:
    peer.send_frame(b"")
    peer.send_frame(peer.wire.encode(WireMessage((), (), b"")))
    peer.send((), b"anything else")
    peer.send((), b"\x00")
    assert await peer.receive() == ((local("me"),), (), b"\x01")
    assert await peer.silent()


@run_with(strict=True)
async def test_strict_is_of_the_u16_dialect_only(node: Node, peer: Ockam2024Peer) -> None:
    create = encode_request(CreateRequest("s"))
    header = b"\x9f\x81\x82\x18\x00\x46stream\x80"
    peer.send_frame(header + b"\x58" + bytes((len(create),)) + create + b"\xff")
    assert decode_response((await peer.receive()).payload) == CreateResponse("s")
    async with await OckamPeer.connect(node.addresses()["ockam"]) as old:
        old.send_frame(encode_message((local("stream"),), (), create) + b"more")
        assert await asyncio.wait_for(old.reader.read(), SECONDS) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x01\xff",
        b"\x00\x00\x00\x05\x84\x80\x80\x40\x00",
        b"\x00\x00\x00\x06\x84\x80\x80\x40\xf6\x00",
        b"\x00\x00\x80\x01" + b"\x84" + b"\x81" * 32_768,
        b"\x00\x00\x80\x04" + b"\x84\x80\x80\x5f" + b"\x40" * 32_768,
        (U32_MESSAGE_BYTES_MAX + 1).to_bytes(4) + b"\x84",
        b"\xff\xff\xff\xff",
    ],
    ids=["no array", "no tracing", "trailing", "nested", "chunks", "too long", "far too long"],
)
async def test_bad_frames_close_their_own_connection_only(
    node: Node, peer: Ockam2024Peer, data: bytes
) -> None:
    assert await ask(peer, "stream", CreateRequest("s")) == CreateResponse("s")
    async with await Ockam2024Peer.connect_and_wait(node.addresses()["ockam"]) as other:
        other.send_frame(other.wire.encode(WireMessage((), (), b"")))
        other.writer.write(data)
        assert await asyncio.wait_for(other.reader.read(), SECONDS) == b""
    assert await ask(peer, STREAM, PushRequest(1, b"on")) == PushConfirm(1, Status.OK, 0)


async def test_many_requests_in_one_read_are_answered_in_order(peer: Ockam2024Peer) -> None:
    await ask(peer, "stream", CreateRequest("s"))
    for number in range(1_000):
        peer.send(STREAM, encode_request(PushRequest(number, b"%d" % number)))
    for number in range(1_000):
        confirm = decode_response((await peer.receive()).payload)
        assert confirm == PushConfirm(number, Status.OK, number)


async def test_requests_for_more_than_a_link_may_buffer_are_all_answered(
    node: Node, peer: Ockam2024Peer
) -> None:
    await (await node.stream("s")).push_many([bytes(100_000)] * 42)
    pulls = LINK_BUFFER_BYTES_MAX // U32_MESSAGE_BYTES_MAX + 4
    for _ in range(pulls):
        peer.send(STREAM, encode_request(PullRequest(1, 0, 2**64 - 1)))
    async with await connect_to(node) as other:  # the node serves others meanwhile
        assert len(await (await other.stream("s")).pull(0, 1)) == 1
    for _ in range(pulls):
        assert len((await peer.receive()).payload) > U32_MESSAGE_BYTES_MAX - 200_000


@pytest.mark.parametrize("dialect", ["u16", "2024"])
async def test_either_dialect_can_be_dialled(node: Node, dialect: Dialect) -> None:
    events = Recorder()
    link = await dial(
        "127.0.0.1",
        int(node.addresses()["ockam"].rpartition(":")[2]),
        codec=dialling_codec(dialect),
        events=events,
        transport_name="ockam",
        clock=SystemClock(asyncio.get_running_loop()),
        limits=OCKAM_LIMITS,
    )
    wire = wire_codec(link.info.wire_format)
    create = encode_request(CreateRequest("s"))
    link.send([wire.encode(WireMessage((local("stream"),), (local("me"),), create))])
    await until(lambda: events.messages, seconds=SECONDS)
    (answer,) = wire.decode(events.messages)
    assert answer.return_route == (local(STREAM),)
    link.close("done")
    await until(lambda: events.reason, seconds=SECONDS)


async def test_dialling_a_peer_of_the_other_dialect_says_so(tmp_path: Path) -> None:
    async def speak_u16(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x04\x01\x00\x00\x00")

    async with await asyncio.start_server(speak_u16, "127.0.0.1", 0) as server:
        with pytest.raises(TransportError) as caught:
            await dial(
                "127.0.0.1",
                server.sockets[0].getsockname()[1],
                codec=dialling_codec("2024"),
                events=Recorder(),
                transport_name="ockam",
                clock=SystemClock(asyncio.get_running_loop()),
            )
        assert caught.value.code == "ockam.greeting"
