"""Ockam TCP with u16 frames and its routing, case by case, against released nodes.

Each test is one case of a survey of the nodes of 2021-08 and 2022-09. Where this node differs on
purpose the test says so with `here:`, and docs/protocols/ockam.md why.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coroutines import handed_by
from nodes import node_config
from ockam_peer import OckamPeer
from rillnode.codecs.limits import ROUTE_HOPS_MAX, U16_FRAME_BYTES_MAX, U16_MESSAGE_BYTES_MAX
from rillnode.codecs.routing.routes import (
    TCP,
    UDP,
    Address,
    WireMessage,
    encode_message,
    local,
)
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.node.runtime import Node

SECONDS = 120.0

STREAM = b"ST_S_0_s"
PUSH = encode_request(PushRequest(1, b"x"))

Talk = Callable[[Node, OckamPeer], Awaitable[None]]


def with_peer(directory: Path, talk: Talk, *, strict: bool = False) -> None:
    """Talk to a node that has the stream `s`, over a connection of a peer's own."""

    async def run() -> None:
        async with asyncio.timeout(2 * SECONDS):
            async with Node(node_config(directory, strict=strict)) as node:
                await node.stream("s")
                async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
                    await talk(node, peer)

    asyncio.run(run())


node = handed_by(with_peer)
peer = handed_by(with_peer, 1)


async def index_of_push(peer: OckamPeer) -> int:
    """Push an entry; return its index."""
    peer.send(STREAM, PUSH)
    confirm = decode_response((await peer.receive(SECONDS)).payload)
    assert isinstance(confirm, PushConfirm)
    assert confirm.status is Status.OK
    return confirm.index


async def closed(peer: OckamPeer) -> bool:
    """Whether the node ends the connection without a word."""
    async with asyncio.timeout(SECONDS):
        return await peer.reader.read() == b""


async def own_connection(node: Node, peer: OckamPeer) -> bytes:
    """The address of a peer's connection, which no peer is told."""
    await index_of_push(peer)
    table = node._router._table  # pyright: ignore[reportPrivateUsage]
    (address,) = [address for address in table if address.startswith(b"TCP_H_")]
    return address


# Frames ----------------------------------------------------------------------------------------


async def test_empty_frame(peer: OckamPeer) -> None:
    """Ignored, as since 2021-12; nodes before closed the connection."""
    assert await index_of_push(peer) == 0
    for _number in range(3):
        peer.send_frame(b"")
    assert await index_of_push(peer) == 1


async def test_garbage_frame(node: Node, peer: OckamPeer) -> None:
    await index_of_push(peer)
    for frame in (b"garbage", b"\xff" * 40, b"\x01\x01\x00", b"\x01", bytes(300)):
        async with await OckamPeer.connect(node.addresses()["ockam"]) as other:
            before = await index_of_push(other)
            other.send_frame(frame)
            if frame != bytes(300):
                assert await closed(other), frame
        assert await index_of_push(peer) == before + 1


async def test_split_and_joined_segments(peer: OckamPeer) -> None:
    frame = encode_message((local(STREAM),), (local("me"),), PUSH)
    framed = len(frame).to_bytes(2, "big") + frame
    peer.writer.write(framed * 3 + framed[:-1])
    for index in range(3):
        confirm = decode_response((await peer.receive(SECONDS)).payload)
        assert confirm == PushConfirm(1, Status.OK, index)
    for at in (*range(len(framed) - 1, len(framed)), *range(len(framed))):
        peer.writer.write(framed[at : at + 1])
        await peer.writer.drain()
        await asyncio.sleep(0)
    for index in (3, 4):
        confirm = decode_response((await peer.receive(SECONDS)).payload)
        assert confirm == PushConfirm(1, Status.OK, index)


async def test_message_over_65535_out(node: Node, peer: OckamPeer) -> None:
    """Here: an answer is cut to fit, where released nodes wrapped the length or closed."""
    await (await node.stream("s")).push_many([bytes(30_000)] * 3)
    peer.send(STREAM, encode_request(PullRequest(1, 0, 10)))
    answer = await peer.receive(SECONDS)
    assert len(encode_message(*answer)) <= U16_MESSAGE_BYTES_MAX
    pulled = decode_response(answer.payload)
    assert pulled == PullResponse(1, [(0, bytes(30_000)), (1, bytes(30_000))])
    assert await index_of_push(peer) == 3


async def test_message_of_65535_in(peer: OckamPeer) -> None:
    await index_of_push(peer)
    routes = ((local(STREAM),), (local("me"),))
    spare = len(encode_message(*routes, encode_request(PushRequest(1, bytes(60_000))))) - 60_000
    data = bytes(U16_FRAME_BYTES_MAX - spare)
    frame = encode_message(*routes, encode_request(PushRequest(1, data)))
    assert len(frame) == U16_FRAME_BYTES_MAX
    peer.send_frame(frame)
    confirm = decode_response((await peer.receive(SECONDS)).payload)
    assert confirm == PushConfirm(1, Status.OK, 1)


async def test_empty_onward_route(peer: OckamPeer) -> None:
    peer.send((), b"\x00")
    assert await peer.receive(SECONDS) == WireMessage((local("me"),), (), b"\x01")
    for payload in (b"", b"\x01", b"\x00\x00", PUSH):
        peer.send((), payload)
    assert await index_of_push(peer) == 0


async def test_unknown_local_address_unknown_type(peer: OckamPeer) -> None:
    for index, onward in enumerate(
        (
            local("no_such_worker"),
            local(b""),
            local(b"\xff\x00"),
            local(b"ST_S_0_missing"),
            local(b"ST_S_1_s"),
            Address(99, b"stream"),
            Address(2**63, STREAM),
            Address(UDP, b"127.0.0.1:4000"),
        )
    ):
        peer.send((onward,), PUSH)
        # The next thing that comes answers what was sent next.
        assert await index_of_push(peer) == index, onward


@pytest.mark.parametrize(("strict", "taken"), [(False, True), (True, False)])
@pytest.mark.parametrize("change", ["version 3", "trailing bytes", "padded length"])
def test_strict_decode(tmp_path: Path, change: str, strict: bool, taken: bool) -> None:
    """Read as in 2021, or refused as in 2022 with `strict`."""

    async def talk(_: Node, peer: OckamPeer) -> None:
        await index_of_push(peer)
        frame = encode_message((local(STREAM),), (local("me"),), PUSH)
        peer.send_frame(
            {
                "version 3": b"\x03" + frame[1:],
                "trailing bytes": frame + b"!",
                "padded length": b"\x01\x81\x00" + frame[2:],
            }[change]
        )
        if taken:
            confirm = decode_response((await peer.receive(SECONDS)).payload)
            assert confirm == PushConfirm(1, Status.OK, 1)
        else:
            assert await closed(peer)

    with_peer(tmp_path, talk, strict=strict)


# Routes ----------------------------------------------------------------------------------------


async def test_routes_of_an_answer(peer: OckamPeer) -> None:
    """Onward is the request's return route, return the worker that answers."""
    back = (local("a"), Address(TCP, b"10.0.0.1:4000"), local(b"\xff"))
    create = encode_request(CreateRequest("s"))
    peer.send_frame(encode_message((local("stream"),), back, create))
    answer = await peer.receive(SECONDS)
    assert (answer.onward_route, answer.return_route) == (back, (local(STREAM),))


async def test_extra_hops_are_ignored_by_workers(peer: OckamPeer) -> None:
    create = encode_request(CreateRequest("s"))
    for onward in ((local("stream"), local("x")), (local("stream"), local("stream"))):
        answer = await peer.ask(onward, create)
        assert decode_response(answer.payload) == CreateResponse("s")
    answer = await peer.ask((local(STREAM), local("y")), PUSH)
    assert decode_response(answer.payload) == PushConfirm(1, Status.OK, 0)


async def test_a_request_with_an_empty_return_route(peer: OckamPeer) -> None:
    peer.send_frame(encode_message((local(STREAM),), (), PUSH))
    answer = await peer.receive(SECONDS)
    assert (answer.onward_route, answer.return_route) == ((), (local(STREAM),))


@pytest.mark.parametrize("hops", [1, 2, ROUTE_HOPS_MAX])
async def test_a_route_through_its_own_connection_ends(
    node: Node, peer: OckamPeer, hops: int
) -> None:
    """Each hop takes its address off: what goes round comes out as often as the route says."""
    address = local(await own_connection(node, peer))
    for number in range(hops):
        rest = (address,) * (hops - 1 - number)
        peer.send((address, *rest), b"round")
        message = await peer.receive(SECONDS)
        assert (message.onward_route, message.payload) == (rest, b"round")
    assert await index_of_push(peer) == 1


@pytest.mark.parametrize("way", ["onward", "return"])
async def test_routes_over_the_limit_close_the_connection(
    node: Node, peer: OckamPeer, way: str
) -> None:
    await index_of_push(peer)
    long = (local(STREAM),) * (ROUTE_HOPS_MAX + 1)
    async with await OckamPeer.connect(node.addresses()["ockam"]) as other:
        await index_of_push(other)
        # Written by hand, since the encoder refuses it.
        hop = b"\x00" + bytes([len(STREAM)]) + STREAM
        route = bytes([len(long)]) + hop * len(long)
        one = b"\x01" + hop
        routes = route + one if way == "onward" else one + route
        other.send_frame(b"\x01" + routes + bytes([len(PUSH)]) + PUSH)
        assert await closed(other)
    assert await index_of_push(peer) == 2


async def test_the_longest_return_route_is_answered(peer: OckamPeer) -> None:
    back = tuple(local(b"hop %d" % number) for number in range(ROUTE_HOPS_MAX))
    peer.send_frame(encode_message((local(STREAM),), back, PUSH))
    answer = await peer.receive(SECONDS)
    assert answer.onward_route == back
    assert decode_response(answer.payload) == PushConfirm(1, Status.OK, 0)


async def test_answers_to_a_node_itself_are_lost_and_do_not_go_round(
    node: Node, peer: OckamPeer
) -> None:
    """A return route that leads back into the node ends at the connection that it came over."""
    peer.send("stream", b"garbage", back="stream")
    answer = await peer.receive(SECONDS)
    assert answer.onward_route == (local("stream"),)
    # Sent on as a careless peer would, it is not answered again.
    peer.send_frame(encode_message(answer.onward_route, answer.return_route, answer.payload))
    assert await index_of_push(peer) == 0
