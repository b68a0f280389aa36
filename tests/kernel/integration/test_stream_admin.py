"""Removing, administering and growing streams of a running node, over sockets and restarts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest

from coroutines import handed_by
from nodes import CLIENT, connect_to, node_config
from ockam_peer import OckamPeer
from rillnode import BlockingStream, Stream, StreamRemoved, StreamUnknown, connect_blocking
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    ErrorResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    AdminResponse,
    Command,
    Delete,
    Describe,
    Limits,
    Retain,
    Trim,
    decode_response as decode_admin,
    encode_request as encode_admin,
)
from rillnode.node.config import Config, GrantTable, QuotaTable, StreamTable
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.proxy import Proxy


def run(config: Config, talk: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), Node(config) as node:
            await talk(node)

    asyncio.run(main())


node = handed_by(run, of=node_config)


async def administer(peer: OckamPeer, command: Command) -> AdminResponse:
    return decode_admin((await peer.ask("stream", encode_admin(AdminRequest(1, command)))).payload)


def test_a_removed_stream_stays_removed_and_a_later_one_is_another(tmp_path: Path) -> None:
    async def before(node: Node) -> None:
        async with await connect_to(node) as client, await connect_to(node) as reader:
            stream = await client.stream("s", partitions=2)
            await stream.push_many([bytes(1_000)] * 500, partition=1)
            await client.set_index("c", "s", 400, partition=1)
            followed = await reader.stream("s", partitions=2)
            async with aclosing(followed.tail(start="start")) as entries:
                for index in range(500):
                    assert (await anext(entries)).index == index
                await client.remove("s")
                with pytest.raises(RequestError) as caught:
                    await anext(entries)
            assert caught.value.code == "stream.removed"
            assert await client.streams() == []
            with pytest.raises(RequestError) as caught:
                await client.remove("s")
            assert caught.value.code == "stream.unknown"

    async def after(node: Node) -> None:
        async with await connect_to(node) as client:
            assert await client.streams() == []
            stream = await client.stream("s", partitions=2)
            assert await stream.pull(partition=1) == []
            assert await client.get_index("c", "s", partition=1) is None
            assert await stream.push(b"new", partition=1) == 0

    config = node_config(tmp_path)
    run(config, before)
    run(config, after)


@pytest.mark.parametrize("verb", ["remove", "trim"])
async def test_what_is_asked_again_is_not_done_to_a_later_stream(
    node: Node, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a link is lost before the answer has come, and another one makes the stream anew."""
    async with (
        Proxy(node.addresses()["noise"]) as proxy,
        await connect_to(node) as other,
        await connect_to(node, through=proxy.address) as client,
    ):
        await (await client.stream("s")).push_many([b"before"] * 5)
        session = client._session  # pyright: ignore[reportPrivateUsage]
        received, answered = session._received, asyncio.Event()  # pyright: ignore[reportPrivateUsage]

        def lost(response: native.Response, route: Route) -> None:
            if isinstance(response, native.DoneResponse | native.PositionResponse):
                answered.set()
            else:
                received(response, route)

        monkeypatch.setattr(session, "_received", lost)
        asked = client.remove("s") if verb == "remove" else client.trim("s", before=4)
        asking = asyncio.ensure_future(asked)
        await answered.wait()
        await proxy.take_away()
        if verb == "trim":
            await other.remove("s")
        later = await other.stream("s")
        await later.push_many([b"later"] * 5)
        monkeypatch.undo()
        await proxy.bring_back()
        if verb == "remove":
            await asking  # it is what was asked for
        else:
            with pytest.raises(StreamRemoved):
                await asking
        assert [entry.data for entry in await later.pull()] == [b"later"] * 5


async def test_a_consumer_of_a_removed_stream_saves_no_position(node: Node) -> None:
    """It would be taken for one in a later stream of the name."""
    stream = await node.stream("s")
    await stream.push_many([b"x"] * 5)
    async with await connect_to(node) as client:
        consumed = await client.stream("s")
        async with consumed.consumer("c", save_seconds=1_000.0) as entries:
            for index in range(5):
                assert (await anext(entries)).index == index
            await node.client.remove("s")
            with pytest.raises(RequestError) as caught:
                await anext(entries)
        assert caught.value.code == "stream.removed"
        assert await client.get_index("c", "s") is None
        again = await client.stream("s")
        await again.push(b"new")
        async with again.consumer("c") as entries:
            assert (await anext(entries)).data == b"new"


async def test_a_stream_is_administered_over_plain_ockam(node: Node) -> None:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        await peer.ask("stream", encode_request(CreateRequest("s")))
        for number in range(4):
            push = encode_request(PushRequest(1, b"%d" % number))
            await peer.ask(b"ST_S_0_s", push)
        trimmed = await administer(peer, Trim("s", 0, 3))
        assert trimmed.stream is not None
        assert trimmed.stream.partitions[0].first_index == 3
        kept = await administer(peer, Retain("s", Limits(milliseconds=1_500)))
        assert kept.stream is not None
        assert kept.stream.limits == Limits(milliseconds=1_500)
        described = await administer(peer, Describe("s"))
        assert described.stream is not None
        assert described.stream.owner == "anonymous"
        assert await administer(peer, Delete("s")) == AdminResponse(1, Status.OK)
        assert (await administer(peer, Describe("s"))).reason == "stream.unknown"


def test_without_admin_the_answer_is_that_of_an_unknown_stream(tmp_path: Path) -> None:
    async def talk(node: Node) -> None:
        await (await node.stream("s")).push(b"x")
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            for command in (Describe, Delete):
                frames = [
                    await peer.ask("stream", encode_admin(AdminRequest(1, command(name))))
                    for name in ("s", "missing")
                ]
                assert frames[0] == frames[1]
        assert node.status()["undelivered"]["refused"] == 4
        assert len(await (await node.stream("s")).pull()) == 1

    grant = GrantTable(who="anonymous", streams="*", may=("create", "push", "pull"))
    run(node_config(tmp_path, grant), talk)


def test_partitions_grow_over_restarts(tmp_path: Path) -> None:
    async def grow(partitions: int, node: Node) -> None:
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            peer.send("stream", encode_request(CreatePartitionedRequest("s", partitions)))
            answers = [await peer.receive(30.0) for _ in range(partitions)]
            for partition, answer in enumerate(answers):
                created = CreatePartitionedResponse("s", partition)
                assert decode_response(answer.payload) == created
                push = encode_request(PushRequest(1, b"%d" % partitions))
                peer.send(answer.return_route, push, back=f"push-{partition}")
                confirm = decode_response((await peer.receive(30.0)).payload)
                assert isinstance(confirm, PushConfirm)
                assert confirm.status is Status.OK
        stream = await node.client.stream("s")
        assert stream.partitions == partitions

    config = node_config(tmp_path)
    for partitions in (1, 2, 4):
        run(config, partial(grow, partitions))

    async def check(node: Node) -> None:
        info = await node.client.describe("s")
        assert [part.next_index for part in info.partitions] == [3, 2, 1, 1]
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            pull = encode_request(PullRequest(1, 0, 9))
            answer = decode_response((await peer.ask(b"ST_S_1_s", pull)).payload)
            assert answer == PullResponse(1, [(0, b"2"), (1, b"4")])

    run(config, check)


def test_patterns_and_quotas_of_the_configuration_take_effect(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        node_config(tmp_path),
        streams=(StreamTable(name="logs/*", retain_entries_max=5, partitions_max=2),),
        quotas=(QuotaTable(who="anonymous", streams_max=1, bytes_max=10),),
    )

    async def talk(node: Node) -> None:
        assert await node.client.streams() == []
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            await peer.ask("stream", encode_request(CreateRequest("logs/a")))
            for size, status in ((8, Status.OK), (3, Status.ERROR), (2, Status.OK)):
                push = encode_request(PushRequest(1, bytes(size)))
                confirm = decode_response((await peer.ask(b"ST_S_0_logs/a", push)).payload)
                assert isinstance(confirm, PushConfirm)
                assert confirm.status is status
            refused = await peer.ask("stream", encode_request(CreateRequest("logs/b")))
            assert decode_response(refused.payload) == ErrorResponse("Invalid request")
        info = await node.client.describe("logs/a")
        assert (info.retention.entries_max, info.owner) == (5, "anonymous")
        with pytest.raises(RequestError, match="at most 2 partitions"):
            await node.stream("logs/c", partitions=3)

    run(config, talk)
    run(config, kept_bytes_count)


async def kept_bytes_count(node: Node) -> None:
    """What was kept before a restart counts after it."""
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        status = Status.OK
        while status is Status.OK:
            # The node counts what it finds just after its start.
            push = encode_request(PushRequest(1, b"x"))
            confirm = decode_response((await peer.ask(b"ST_S_0_logs/a", push)).payload)
            assert isinstance(confirm, PushConfirm)
            status = confirm.status


_ASKS: Final[Mapping[str, Callable[[Stream], Awaitable[object]]]] = {
    "push": lambda stream: stream.push(b"x"),
    "push with a key": lambda stream: stream.push(b"x", key="k"),
    "push_nowait": lambda stream: stream.push_nowait(b"x"),
    "push_many": lambda stream: stream.push_many([b"x", b"y"]),
    "push_many with keys": lambda stream: stream.push_many([b"x", b"y"], keys=["a", "b"]),
    "pusher": lambda stream: _push_by_pusher(stream),
    "producer": lambda stream: stream.producer("p"),
    "pull": lambda stream: stream.pull(),
    "pull from the end": lambda stream: stream.pull(-1),
    "pull where": lambda stream: stream.pull(where="n > 1"),
    "index_at": lambda stream: stream.index_at(timedelta(0)),
    "tail": lambda stream: anext(stream.tail()),
    "tail from the start": lambda stream: anext(stream.tail(start="start")),
    "tail from a time": lambda stream: anext(stream.tail(start=timedelta(0))),
    "batches": lambda stream: anext(stream.batches()),
    "batches where": lambda stream: anext(stream.batches(where="n > 1")),
    "consumer": lambda stream: anext(stream.consumer("c")),
    "consumer in a group": lambda stream: anext(stream.consumer("g", group=True)),
    "work": lambda stream: stream.work("q").next(),
}
"""All that a stream can be asked for."""


async def _push_by_pusher(stream: Stream) -> None:
    async with stream.pusher() as pusher:
        await pusher.push(b"x")


async def _codes_of(asked: Mapping[str, Awaitable[object]]) -> dict[str, tuple[type, str]]:
    """What was raised by each, one after the other."""
    found: dict[str, tuple[type, str]] = {}
    for what, awaited in asked.items():
        with pytest.raises(StreamUnknown) as caught:
            async with asyncio.timeout(10):
                await awaited
        found[what] = type(caught.value), caught.value.code
    return found


@pytest.mark.parametrize("is_used", [False, True])
async def test_what_is_asked_of_a_removed_stream_says_that_there_is_none(
    node: Node, is_used: bool
) -> None:
    """By a handle of before, over a link and within the process."""
    async with await connect_to(node) as client:
        for opener in (client, node.client):
            stream = await opener.stream("s", partitions=2)
            producer = await stream.producer("named")
            others = await opener.open_streams([f"other-{number}" for number in range(5)])
            if is_used:
                await producer.push(b"x")
                await asyncio.gather(*(one.push(b"x") for one in (stream, *others)))
            await client.remove("s")
            asked = {what: ask(stream) for what, ask in _ASKS.items()}
            asked["push of a named producer"] = producer.push(b"x")
            asked["push_nowait of one"] = producer.push_nowait(b"x")
            found = await _codes_of(asked)
            assert set(found.values()) == {(StreamUnknown, "stream.unknown")}, found
            # With others' in one request, which are stored.
            mixed = [one.push_nowait(b"y") for one in (*others, stream)]
            *stored, refused = await asyncio.gather(*mixed, return_exceptions=True)
            assert stored == [int(is_used)] * 5
            assert isinstance(refused, StreamUnknown)
            for one in others:
                await client.remove(one.name)


async def test_a_removed_stream_is_unknown_to_blocking_clients(node: Node, tmp_path: Path) -> None:
    key_file = tmp_path / "client.key"
    write_key(key_file, CLIENT)

    def ask() -> dict[str, str]:
        url = f"noise://{node.addresses()['noise']}"
        with connect_blocking(url, key_file=key_file, node_identity=node.identity) as client:
            stream = client.stream("s")
            producer = stream.producer("named")
            client.remove("s")
            asks: Mapping[str, Callable[[], object]] = {
                "push": lambda: stream.push(b"x"),
                "push_many": lambda: stream.push_many([b"x"]),
                "pusher": lambda: _push_blocking(stream),
                "producer": lambda: stream.producer("p"),
                "push of a producer": lambda: producer.push(b"x"),
                "pull": lambda: stream.pull(),
                "index_at": lambda: stream.index_at(timedelta(0)),
                "tail": lambda: next(stream.tail()),
                "consumer": lambda: next(stream.consumer("c")),
                "work": lambda: stream.work("q").next(),
            }
            codes: dict[str, str] = {}
            for what, asked in asks.items():
                with pytest.raises(StreamUnknown) as caught:
                    asked()
                codes[what] = caught.value.code
            return codes

    found = await asyncio.to_thread(ask)
    assert set(found.values()) == {"stream.unknown"}, found


def _push_blocking(stream: BlockingStream) -> None:
    with stream.pusher() as pusher:
        pusher.push(b"x").result()
