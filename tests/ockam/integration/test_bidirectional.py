"""Requests through one stream and answers through another, between plain TCP peers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from coroutines import handed_by, run_with
from nodes import node_config
from ockam_peer import OckamPeer
from rillnode.codecs.ockam.stream_item import STREAM_ITEM, decode_entry, encode_entry
from rillnode.codecs.routing.routes import Address, WireMessage, encode_message, local
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushRequest,
    decode_response,
    encode_request,
)
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node

SECONDS = 120.0
SERVICE = "stream_subscribe"

Connect = Callable[[], Awaitable[OckamPeer]]


def with_peers(
    directory: Path, talk: Callable[[Node, Connect], Awaitable[None]], *grants: GrantTable
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node(node_config(directory, *grants)))

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


async def create(peer: OckamPeer, name: str) -> bytes:
    answer = await ask(peer, "stream", encode_request(CreateRequest(name)))
    return answer.return_route[0].value


async def pull(peer: OckamPeer, stream: bytes, count: int) -> list[bytes]:
    """Pull until so many entries are there."""
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await ask(peer, stream, encode_request(PullRequest(1, 0, 100)))
            pulled = decode_response(answer.payload)
            assert isinstance(pulled, PullResponse)
            if len(pulled.messages) >= count:
                return [data for _, data in pulled.messages]
            await asyncio.sleep(0.02)


async def saved_index(peer: OckamPeer, client_id: str, stream: str, index: int) -> None:
    """Wait until an index is saved."""
    async with asyncio.timeout(SECONDS):
        while True:
            payload = encode_request(GetIndexRequest(client_id, stream))
            answer = decode_response((await ask(peer, "stream_index", payload)).payload)
            if answer == IndexResponse(client_id, stream, index):
                return
            await asyncio.sleep(0.02)


def subscribe(peer: OckamPeer, stream: str, subscription_id: str = "foo") -> None:
    peer.send(SERVICE, encode_request(BidirectionalRequest(stream, subscription_id)))


async def publisher(peer: OckamPeer, to: str, back: str) -> Address:
    request = BidirectionalPublisherRequest(to, back, "foo")
    answer = await ask(peer, SERVICE, encode_request(request))
    assert answer.payload == b"irrelevant"
    (address,) = answer.return_route
    return address


async def test_ping_and_pong_through_two_streams(connect: Connect) -> None:
    """As the released example does it: an alias for pong, both subscribed, one publisher."""
    ping, pong = await connect(), await connect()
    (alias,) = (await ask(pong, "forwarding_service", b"register")).return_route
    subscribe(pong, "pong_topic")
    subscribe(ping, "ping_topic")
    to_pong = await publisher(ping, "pong_topic", "ping_topic")
    assert to_pong == await publisher(ping, "pong_topic", "ping_topic")

    ping.send((to_pong, alias), b"0", back="ping")
    message = await pong.receive(SECONDS)
    assert message.onward_route == (local("me"),)
    assert message.payload == b"0"
    for number in (b"1", b"2"):
        pong.send(message.return_route, number, back="pong")
        answer = await ping.receive(SECONDS)
        assert answer.onward_route == (local("ping"),)
        assert answer.payload == number
        ping.send(answer.return_route, number + b"!", back="ping")
        message = await pong.receive(SECONDS)
        assert message.onward_route == (local("pong"),)
        assert message.payload == number + b"!"


async def test_items_are_what_elixir_nodes_write(connect: Connect) -> None:
    peer = await connect()
    stream = await create(peer, "there")
    address = await publisher(peer, "there", "back")
    peer.send((address, local("pong")), b"0", back="ping")
    (item,) = await pull(peer, stream, 1)
    decoded = STREAM_ITEM.decode(item)
    assert decoded.return_stream == "back"
    return_stream, message = decode_entry(item)
    assert return_stream == "back"
    assert message.onward_route == (local("pong"),)
    assert message.return_route[1:] == (local("ping"),)
    assert message.payload == b"0"


def test_request_and_answer_wait_for_who_is_away_and_outlive_the_node(tmp_path: Path) -> None:
    """Nobody is there at the same time: not the two sides, and the node is restarted thrice."""

    async def ask_and_leave(_: Node, connect: Connect) -> None:
        asking = await connect()
        stream = await create(asking, "requests")
        await create(asking, "answers")
        to_requests = await publisher(asking, "requests", "answers")
        asking.send((to_requests, local("forward_to_device"), local("inner")), b"how much?")
        await pull(asking, stream, 1)

    async def answer_and_leave(_: Node, connect: Connect) -> None:
        device = await connect()
        # The item waits for the alias, so the order of the two does not matter.
        subscribe(device, "requests")
        await ask(device, "static_forwarding", b"\x06device")
        request = await device.receive(SECONDS)
        assert request.onward_route == (local("me"), local("inner"))
        assert request.payload == b"how much?"
        device.send(request.return_route, b"so much", back="device")
        await saved_index(device, "foo", "requests", 1)
        await pull(device, b"ST_S_0_answers", 1)

    async def take_the_answer(_: Node, connect: Connect) -> None:
        asking = await connect()
        subscribe(asking, "answers")
        # It was sent to a connection that ended with another life of the node.
        answer = await asking.receive(SECONDS)
        assert answer.onward_route == (local("me"),)
        assert answer.payload == b"so much"
        await saved_index(asking, "foo", "answers", 1)

    async def nothing_comes_twice(_: Node, connect: Connect) -> None:
        peer = await connect()
        await ask(peer, "static_forwarding", b"\x06device")
        subscribe(peer, "requests")
        subscribe(peer, "answers")
        assert await peer.silent()

    with_peers(tmp_path, ask_and_leave)
    with_peers(tmp_path, answer_and_leave)
    with_peers(tmp_path, take_the_answer)
    with_peers(tmp_path, nothing_comes_twice)


async def test_a_subscription_goes_on_while_its_subscriber_is_away(connect: Connect) -> None:
    """Released nodes ask through a connection of its own, which may end at once."""
    briefly = await connect()
    subscribe(briefly, "requests")
    await create(briefly, "requests")
    briefly.writer.close()
    peer = await connect()
    subscribe(peer, "answers")
    to_requests = await publisher(peer, "requests", "answers")
    peer.send((to_requests, local("echo")), b"still served")
    assert (await peer.receive(SECONDS)).payload == b"still served"


async def test_bare_wire_messages_of_rust_nodes_are_routed_too(connect: Connect) -> None:
    peer = await connect()
    (alias,) = (await ask(peer, "forwarding", b"me")).return_route
    stream = await create(peer, "s")
    item = encode_message((alias,), (local("sender"),), b"from Rust")
    peer.send(stream, encode_request(PushRequest(1, item)), back="pushes")
    await peer.receive(SECONDS)
    subscribe(peer, "s")
    message = await peer.receive(SECONDS)
    assert message.payload == b"from Rust"
    # There is no stream that an answer could go to.
    assert message.return_route[1:] == (local("sender"),)
    peer.send(message.return_route, b"nobody takes it")
    assert await peer.silent()


async def test_what_is_no_item_is_passed_over(node: Node, connect: Connect) -> None:
    peer = await connect()
    (alias,) = (await ask(peer, "forwarding", b"me")).return_route
    stream = await create(peer, "s")
    good = encode_entry("back", WireMessage((alias,), (), b"good"))
    nobody = encode_entry("back", WireMessage((local("no_such_worker"),), (), b""))
    for data in (b"", b"garbage", b"\xff" * 40, nobody, b"\x04back\x02\x01\x01", good):
        await ask(peer, stream, encode_request(PushRequest(1, data)))
    subscribe(peer, "s")
    assert (await peer.receive(SECONDS)).payload == b"good"
    await saved_index(peer, "foo", "s", 6)
    assert node.status()["undelivered"]["bad_item"] == 4


@run_with(
    GrantTable(who="anonymous", streams="pull-*", may=("pull",)),
    GrantTable(who="anonymous", streams="push-*", may=("push", "create")),
)
async def test_a_peer_consumes_and_publishes_only_what_it_may(node: Node, connect: Connect) -> None:
    await (await node.stream("secret")).push(
        encode_entry("x", WireMessage((local("forward_to_me"),), (), b"secret"))
    )
    await node.stream("pull-1")
    peer = await connect()
    await ask(peer, "static_forwarding", b"\x02me")
    subscribe(peer, "secret")
    subscribe(peer, "push-1")
    for stream in ("secret", "pull-1"):
        request = BidirectionalPublisherRequest(stream, "pull-1", "foo")
        peer.send(SERVICE, encode_request(request))
    assert (await ask(peer, "echo", b"no answer before")).payload == b"no answer before"
    assert await peer.silent()
    assert node.status()["undelivered"]["refused"] == 4


@run_with(
    GrantTable(who="anonymous", streams="consumed", may=("pull",)),
    GrantTable(who="anonymous", streams="stolen", may=("push",)),
)
async def test_an_item_acts_with_nobodys_rights(node: Node, connect: Connect) -> None:
    """Who may push to a stream cannot read another one through its consumer."""
    await (await node.stream("secret")).push(b"for the consumer's eyes")
    consumed = await node.stream("consumed")
    stolen = await node.stream("stolen")
    # The node's own client consumes: it may do everything, what it consumes may nothing.
    request = encode_request(PullRequest(1, 0, 9))
    theft = WireMessage((local("ST_S_0_secret"),), (), request)
    harmless = WireMessage((local("echo"),), (), b"echoed")
    await consumed.push_many([encode_entry("stolen", one) for one in (theft, harmless)])
    peer = await connect()
    subscribe(peer, "consumed")
    async with asyncio.timeout(SECONDS):
        while not (entries := await stolen.pull(0)):
            await asyncio.sleep(0.02)
    assert [decode_entry(entry.data).message.payload for entry in entries] == [b"echoed"]
