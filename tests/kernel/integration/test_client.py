"""The client over the encrypted link, against a running node."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coroutines import handed_by, run_with
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.core.links.connection import ConnectionActor
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import HandshakeError, RequestError, RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import (
    ENTRY_BYTES_MAX,
    FRAME_BYTES_MAX,
    LINK_BUFFER_HIGH_BYTES,
    OPENS_MAX,
)
from rillnode.node.client import (
    Client,
    Consumer,
    WorkQueue,
    connect,
    connect_blocking,
    stream as client_stream,
)
from rillnode.node.client.stream import Stream
from rillnode.node.config import GrantTable
from rillnode.node.iteration import Iteration
from rillnode.node.runtime import Node
from rillnode.node.simulation.leftovers import subscriptions
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.proxy import Proxy
from rillnode.transports.tcp_link import TcpLink

Talk = Callable[[Node, Client], Awaitable[None]]


def with_client(directory: Path, talk: Talk, *grants: GrantTable) -> None:
    async def run() -> None:
        async with Node(node_config(directory, *grants)) as node, await connect_to(node) as client:
            await talk(node, client)

    asyncio.run(run())


node = handed_by(with_client)
client = handed_by(with_client, 1)


NO_TEXT = "\ud800"
"""Part of a character: it has no form in bytes."""


async def first(iteration: Iteration[Any]) -> None:
    async with iteration:
        await anext(iteration)


async def enter(consumer: Consumer[Entry] | WorkQueue) -> None:
    async with consumer:
        pass


NAMED: dict[str, Callable[[Client, Stream], Awaitable[object]]] = {
    "stream": lambda client, _: client.stream(NO_TEXT),
    "open_streams": lambda client, _: client.open_streams([NO_TEXT]),
    "describe": lambda client, _: client.describe(NO_TEXT),
    "streams": lambda client, _: client.streams(NO_TEXT),
    "trim": lambda client, _: client.trim(NO_TEXT, before=1),
    "remove": lambda client, _: client.remove(NO_TEXT),
    "queues": lambda client, _: client.queues(NO_TEXT),
    "queue": lambda client, _: client.queue("s", NO_TEXT),
    "queue of": lambda client, _: client.queue(NO_TEXT, "q"),
    "take_back": lambda client, _: client.take_back("s", NO_TEXT),
    "get_index": lambda client, _: client.get_index(NO_TEXT, "s"),
    "set_index": lambda client, _: client.set_index("c", NO_TEXT, 1),
    "indexes": lambda client, _: client.indexes(NO_TEXT),
    "groups": lambda client, _: client.groups(NO_TEXT),
    "follow": lambda client, _: first(client.follow(NO_TEXT)),
    "ask": lambda client, _: client.ask(NO_TEXT, b""),
    "about": lambda client, _: client.about(NO_TEXT),
    "routes": lambda client, _: first(client.routes(NO_TEXT)),
    "ping": lambda client, _: client.ping(NO_TEXT),
    "run_sink": lambda client, _: client.run_sink(NO_TEXT, run=True),
    "consumer": lambda _, stream: enter(stream.consumer(NO_TEXT)),
    "group": lambda _, stream: enter(stream.consumer(NO_TEXT, group=True)),
    "work": lambda _, stream: enter(stream.work(NO_TEXT)),
    "producer": lambda _, stream: stream.producer(NO_TEXT),
    "key": lambda _, stream: stream.push(b"", key=NO_TEXT),
    "header": lambda _, stream: stream.push(b"", headers={NO_TEXT: b""}),
    "condition": lambda _, stream: stream.pull(where=f'a = "{NO_TEXT}"'),
}


async def test_a_name_that_is_no_text_is_refused_wherever_there_is_one(
    node: Node, client: Client
) -> None:
    for one in (client, node.client):
        stream = await one.stream("s")
        for what, ask in NAMED.items():
            with pytest.raises(RillnodeError) as refused:
                await ask(one, stream)
            assert refused.value.code.startswith(("client.argument", "entries.")), what


async def take(stream: Stream, client_id: str, count: int) -> list[Entry]:
    """Consume so many entries and process them all."""
    taken: list[Entry] = []
    async with stream.consumer(client_id) as entries:
        async for entry in entries:
            taken.append(entry)
            if len(taken) > count:
                break
    return taken[:count]


def following(node: Node) -> bool:
    """Whether somebody follows a stream."""
    return any(name.endswith(".SubscriptionActor") for name in node.status()["actors"])


def data_of(entries: list[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]


async def test_push_gives_the_index_and_pull_the_bytes(client: Client) -> None:
    stream = await client.stream("s")
    assert [await stream.push(b"%d" % number) for number in range(3)] == [0, 1, 2]
    entries = await stream.pull(1, 10)
    assert [(entry.index, entry.data) for entry in entries] == [(1, b"1"), (2, b"2")]
    assert entries[0].received_at > 1_700_000_000_000
    assert await stream.pull(3, 10) == []
    assert data_of(await stream.pull(0, 2)) == [b"0", b"1"]


async def test_what_is_pushed_in_one_turn_keeps_its_order(client: Client) -> None:
    stream = await client.stream("s")
    items = [b"%d" % number for number in range(10_000)]
    futures = [stream.push_nowait(item) for item in items]
    assert await asyncio.gather(*futures) == list(range(10_000))
    assert data_of(await stream.pull(0, 20_000)) == items


async def test_what_is_no_bytes_is_refused_at_once_and_costs_nothing_else(client: Client) -> None:
    streams = [await client.stream(name) for name in ("a", "b")]
    futures = [streams[0].push_nowait(b"first")]
    with pytest.raises(TypeError, match="an entry is bytes, not str: encode it"):
        streams[0].push_nowait("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await streams[0].push_many([b"fine", "text"])  # type: ignore[list-item]
    futures += [stream.push_nowait(b"bytes") for stream in streams]
    async with asyncio.timeout(30.0):
        assert await asyncio.gather(*futures) == [0, 1, 0]


async def test_what_is_changed_after_the_push_is_stored_as_it_was(client: Client) -> None:
    stream = await client.stream("s")
    buffer = bytearray(b"before")
    future = stream.push_nowait(buffer)
    buffer[:] = b"behind"
    await future
    assert data_of(await stream.pull(0, 1)) == [b"before"]


async def test_push_many_splits_into_blocks_and_returns_the_end(client: Client) -> None:
    stream = await client.stream("s")
    items = [bytes([number % 251]) * (number * 97 % 5_000) for number in range(9_000)]
    assert await stream.push_many(iter(items)) == 9_000
    assert await stream.push_many([]) == 0
    assert data_of(await stream.pull(0, 9_000)) == items


async def test_largest_entry_travels_and_a_larger_one_is_refused(client: Client) -> None:
    stream = await client.stream("s")
    data = bytes(ENTRY_BYTES_MAX)
    assert await stream.push(data) == 0
    assert data_of(await stream.pull()) == [data]
    with pytest.raises(RequestError) as caught:
        await stream.push(bytes(ENTRY_BYTES_MAX + 1))
    assert caught.value.code == "entries.size"
    assert await stream.push(b"after") == 1
    with pytest.raises(RequestError) as caught:
        await stream.push_many([bytes(ENTRY_BYTES_MAX + 1), b"behind"])
    assert caught.value.code == "entries.size"
    assert await stream.push(b"at last") == 2


async def test_partitions_are_separate_logs(client: Client) -> None:
    stream = await client.stream("s", partitions=3)
    for partition in range(3):
        assert await stream.push(b"p%d" % partition, partition=partition) == 0
    assert data_of(await stream.pull(partition=2)) == [b"p2"]
    with pytest.raises(RequestError) as caught:
        await stream.push(b"x", partition=3)
    assert caught.value.code == "stream.partition"
    assert (await client.stream("s")).partitions == 3
    assert (await client.stream("s", partitions=5)).partitions == 5


async def test_consume_goes_on_where_it_stopped(node: Node, client: Client) -> None:
    stream = await client.stream("s")
    await stream.push_many(b"%d" % number for number in range(100))
    assert data_of(await take(stream, "c", 40)) == [b"%d" % n for n in range(40)]
    assert await client.get_index("c", "s") == 40
    async with await connect_to(node) as other:
        again = await take(await other.stream("s"), "c", 59)
        assert data_of(again) == [b"%d" % n for n in range(40, 99)]
        assert data_of(await take(await other.stream("s"), "d", 1)) == [b"0"]


async def test_consume_follows_all_partitions(client: Client) -> None:
    stream = await client.stream("s", partitions=4)
    for number in range(40):
        await stream.push(b"%d" % number, partition=number % 4)
    entries = await take(stream, "c", 39)
    for partition in range(4):
        own = [entry for entry in entries if entry.partition == partition]
        assert [entry.index for entry in own] == list(range(len(own)))


async def test_tail_gets_what_comes_from_now_on(node: Node, client: Client) -> None:
    stream = await client.stream("s")
    await stream.push_many([b"old"] * 10)
    async with aclosing(stream.tail()) as entries:
        first = asyncio.ensure_future(anext(entries))
        await until(lambda: subscriptions(node.observed) == 1)
        for number in range(5):
            await stream.push(b"new %d" % number)
        assert (await first).data == b"new 0"
        assert [(await anext(entries)).data for _ in range(4)] == [
            b"new %d" % number for number in range(1, 5)
        ]


async def test_no_gap_and_no_repeat_between_old_and_new_entries(node: Node, client: Client) -> None:
    """A subscriber that starts in the middle of heavy pushing sees every index once, in order."""
    stream = await client.stream("s")

    async def push() -> None:
        for start in range(0, 20_000, 500):
            await stream.push_many(b"%d" % n for n in range(start, start + 500))

    async with await connect_to(node) as reader:
        pushing = asyncio.ensure_future(push())
        follower = await reader.stream("s")
        seen: list[int] = []
        async with aclosing(follower.batches(start="start")) as batches:
            async for batch in batches:
                seen += [entry.index for entry in batch]
                assert data_of(batch) == [b"%d" % entry.index for entry in batch]
                if len(seen) >= 20_000:
                    break
        await pushing
    assert seen == list(range(20_000))


async def test_a_subscription_that_has_brought_nothing_ends_with_its_reader(
    node: Node, client: Client
) -> None:
    stream = await client.stream("s")
    async with aclosing(stream.tail(start="start")) as entries:
        waiting = asyncio.ensure_future(anext(entries))
        await until(lambda: subscriptions(node.observed) == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
    await until(lambda: subscriptions(node.observed) == 0)


async def test_pushes_to_many_streams_keep_each_ones_order_over_cut_links(
    node: Node, client: Client
) -> None:
    """Some go together and some alone, as it comes; whichever way, nothing overtakes."""
    chance, names = Random(4), [f"s{number}" for number in range(40)]
    pushed: dict[str, list[asyncio.Future[int]]] = {name: [] for name in names}
    async with Proxy(node.addresses()["noise"]) as proxy:
        pusher = await connect_to(node, through=proxy.address)
        streams = await pusher.open_streams(names)
        for turn in range(400):
            for stream in chance.sample(streams, chance.choice((1, 2, 3, 20, 40))):
                futures = pushed[stream.name]
                futures.append(stream.push_nowait(b"%d" % len(futures)))
            await asyncio.sleep(0 if turn % 4 else 0.002)
            if turn % 100 == 50:
                proxy.cut()
        async with asyncio.timeout(60):
            confirmed = {name: await asyncio.gather(*pushed[name]) for name in names}
        await pusher.close()
    for stream in await client.open_streams(names):
        count = len(pushed[stream.name])
        assert data_of(await stream.pull(0, 100_000)) == [b"%d" % n for n in range(count)]
        assert confirmed[stream.name] == list(range(count))


async def test_many_streams_are_opened_at_once(client: Client) -> None:
    names = [f"s{number}" for number in range(2 * OPENS_MAX + 1)]
    streams = await client.open_streams([*names, "s0"], partitions=2)
    assert [stream.name for stream in streams] == [*names, "s0"]
    assert streams[-1] is streams[0]
    assert {stream.partitions for stream in streams} == {2}
    assert await asyncio.gather(*(stream.push(b"x", partition=1) for stream in streams)) == [
        0
    ] * len(names) + [1]
    assert await client.open_streams([]) == []
    with pytest.raises(RequestError) as caught:
        await client.open_streams(["new", "x" * 513])
    assert caught.value.code == "stream.invalid"
    assert (await client.describe("new")).name == "new"


async def test_saved_index_is_durable_when_answered_and_never_moves_back(client: Client) -> None:
    assert await client.get_index("c", "s") is None
    assert await client.set_index("c", "s", 7) == 7
    assert await client.set_index("c", "s", 3) == 7
    assert await client.set_index("c", "s", 1, partition=2) == 1
    rows = [(saved.stream, saved.partition, saved.index) for saved in await client.indexes()]
    assert rows == [("s", 0, 7), ("s", 2, 1)]


async def test_streams_are_listed_described_and_trimmed(client: Client) -> None:
    for name in ("b", "a1", "a2"):
        await (await client.stream(name)).push_many([b"x"] * 10)
    assert [info.name for info in await client.streams()] == ["a1", "a2", "b"]
    assert [info.name for info in await client.streams("a")] == ["a1", "a2"]
    info = await client.describe("b")
    assert info.partitions[0].next_index == 10
    assert info.owner == f"noise:{CLIENT.public_hex}"
    assert await client.trim("b", before=4) == 4
    stream = await client.stream("b")
    assert [entry.index for entry in await stream.pull(0, 100)] == list(range(4, 10))
    with pytest.raises(RequestError) as caught:
        await client.describe("missing")
    assert caught.value.code == "stream.unknown"


async def test_a_made_up_name_is_a_stream_like_any(client: Client) -> None:
    stream = await client.stream()
    assert stream.name.startswith("generated_")
    assert await stream.push(b"x") == 0


async def test_names_may_hold_any_characters(client: Client) -> None:
    for name in ("a b;c=>d#e", "größe/ß", "0x1f/app:news?", "\x00\n", "x" * 512):
        stream = await client.stream(name, partitions=2)
        assert await stream.push(name.encode(), partition=1) == 0
        assert data_of(await stream.pull(partition=1)) == [name.encode()]
    with pytest.raises(RequestError) as caught:
        await client.stream("x" * 513)
    assert caught.value.code == "stream.invalid"


def test_without_a_grant_a_stream_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    async def talk(node: Node, client: Client) -> None:
        await (await node.stream("other")).push(b"x")
        codes: list[str] = []
        for name in ("other", "missing"):
            with pytest.raises(RequestError) as caught:
                await client.stream(name)
            codes.append(caught.value.code)
            with pytest.raises(RequestError) as caught:
                await client.describe(name)
            codes.append(caught.value.code)
        assert set(codes) == {"stream.unknown"}
        mine = await client.stream("mine")
        await mine.push(b"x")
        with pytest.raises(RequestError) as caught:
            await mine.pull()
        assert caught.value.code == "stream.unknown"
        assert [info.name for info in await client.streams()] == ["mine"]
        with pytest.raises(RequestError):
            await client.status()
        with pytest.raises(RequestError):
            await client.trim("mine", before=1)
        with pytest.raises(RequestError) as caught:
            await client.run_sink("missing", run=True)
        assert caught.value.code == "sink.unknown"

    grant = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="mine", may=("create", "push"))
    with_client(tmp_path, talk, grant)


async def test_an_unknown_identity_is_told_what_to_do(node: Node) -> None:
    stranger = Identity.from_seed(bytes(32))
    with pytest.raises(HandshakeError) as caught:
        await connect_to(node, stranger)
    assert caught.value.code == "noise.unknown_identity"
    assert f'[[grant]] with who = "noise:{stranger.public_hex}"' in caught.value.text


@run_with(GrantTable(who="*", streams="*", may=("create", "push", "pull")))
async def test_a_client_without_a_key_has_one_of_its_own(node: Node) -> None:
    url = f"noise://{node.addresses()['noise']}"
    owners: set[str] = set()
    for number in range(2):
        async with await connect(url, node_identity=node.identity) as client:
            await (await client.stream(f"s{number}")).push(b"x")
            owners.add((await client.describe(f"s{number}")).owner)

    def block() -> str:
        with connect_blocking(url, node_identity=node.identity) as client:
            client.stream("s2").push(b"x")
            return client.describe("s2").owner

    owners.add(await asyncio.to_thread(block))
    assert len(owners) == 3
    assert all(re.fullmatch("noise:[0-9a-f]{64}", owner) for owner in owners)


async def test_a_client_without_a_key_is_told_which_grant_would_let_one_in(node: Node) -> None:
    url = f"noise://{node.addresses()['noise']}"
    with pytest.raises(HandshakeError) as caught:
        await connect(url, node_identity=node.identity)
    assert caught.value.code == "noise.unknown_identity"
    assert re.search(r'\[\[grant\]\] with who = "noise:[0-9a-f]{64}"', caught.value.text)
    assert "rillnode key new" in caught.value.text


async def test_another_node_is_not_talked_to(node: Node) -> None:
    url = f"noise://{node.addresses()['noise']}"
    with pytest.raises(HandshakeError) as caught:
        await connect(url, identity=CLIENT, node_identity="00" * 32)
    assert caught.value.code == "noise.wrong_node"


async def test_chacha_on_request(node: Node) -> None:
    url = f"noise://{node.addresses()['noise']}"
    async with await connect(
        url, identity=CLIENT, node_identity=node.identity, chacha=True
    ) as client:
        assert await (await client.stream("s")).push(b"x") == 0


async def test_the_embedded_client_needs_no_socket(node: Node, client: Client) -> None:
    embedded = await node.stream("s", partitions=2)
    await embedded.push_many([b"a", b"b"], partition=1)
    over_the_link = await client.stream("s")
    assert data_of(await over_the_link.pull(partition=1)) == [b"a", b"b"]
    assert (await node.client.status())["state"] == "ready"


def test_many_subscriptions_of_one_link_wait_for_it_as_one_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partitions, size, each = 40, 65_536, 8  # 20 MiB, more than may be buffered for a link

    async def talk(node: Node, client: Client) -> None:
        wide = await node.stream("wide", partitions=partitions)
        for partition in range(partitions):
            await wide.push_many([bytes(size)] * each, partition=partition)
        actors = [cell.instance for cell in node._peers.open]  # pyright: ignore[reportPrivateUsage]
        origins = [actor.origin for actor in actors if isinstance(actor, ConnectionActor)]
        found: Counter[tuple[int, int]] = Counter()
        most = 0
        async with (await client.stream("wide")).tail(start="start") as entries:
            async for entry in entries:
                found[entry.partition, entry.index] += 1
                links = [origin.link for origin in origins if origin.link is not None]
                most = max(most, *(link.buffered_bytes for link in links))
                if len(found) == partitions * each:
                    break
        assert set(found.values()) == {1}
        assert 0 < most < 8 * LINK_BUFFER_HIGH_BYTES
        rooms = [room for origin in origins if (room := origin.own_room) is not None]
        assert [(room.reading_bytes, room.read_bytes) for room in rooms] == [(0, 0)]

    with caplog.at_level(logging.INFO, "rillnode"):
        with_client(tmp_path, talk)
    assert not [record for record in caplog.records if record.msg == "link_lost"]


def test_reads_of_many_partitions_at_once_wait_for_their_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_stream, "READ_BYTES", FRAME_BYTES_MAX)
    partitions, size, each = 20, 65_536, 20  # 25 MiB, more than may be buffered for a link
    most = 0
    links: list[object] = []
    send = TcpLink.send

    def measured(link: TcpLink, messages: Sequence[bytes]) -> None:
        nonlocal most
        send(link, messages)
        if link in links:
            most = max(most, link.buffered_bytes)

    async def talk(node: Node, client: Client) -> None:
        wide = await node.stream("wide", partitions=partitions)
        for partition in range(partitions):
            await wide.push_many([bytes(size)] * each, partition=partition)
        stream = await client.stream("wide")
        connections = [cell.instance for cell in node._peers.open]  # pyright: ignore[reportPrivateUsage]
        links.extend(one.origin.link for one in connections if isinstance(one, ConnectionActor))
        pulls = [stream.pull(0, each, partition=number) for number in range(partitions)]
        assert [len(pulled) for pulled in await asyncio.gather(*pulls)] == [each] * partitions

    monkeypatch.setattr(TcpLink, "send", measured)
    with caplog.at_level(logging.INFO, "rillnode"):
        with_client(tmp_path, talk)
    assert not [record for record in caplog.records if record.msg == "link_lost"]
    assert 0 < most < LINK_BUFFER_HIGH_BYTES + 3 * FRAME_BYTES_MAX


async def test_reading_begins_at_a_time(node: Node, client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    for number in range(4):
        await stream.push(b"%d" % number)
        await asyncio.sleep(0.02)
    entries = await stream.pull()
    time = datetime.fromtimestamp(entries[2].received_at / 1_000, UTC)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert await stream.index_at(time) == 2
    assert await stream.index_at(timedelta(hours=1)) == 0
    assert await stream.index_at(later) == 4
    assert await stream.index_at(later, partition=1) == 0
    assert data_of(await stream.pull(start=time)) == [b"2", b"3"]
    assert data_of(await stream.pull(3, start=time)) == [b"3"]
    assert data_of(await stream.pull(start=timedelta(days=1), limit=1)) == [b"0"]
    assert await stream.pull(start=later) == []
    async with aclosing(stream.tail(start=time)) as tail:
        assert [(await anext(tail)).data for _ in range(2)] == [b"2", b"3"]
        await stream.push(b"other", partition=1)
        assert (await anext(tail)).data == b"other"
    await until(lambda: subscriptions(node.observed) == 0)
    async with aclosing(stream.tail(start=later, partitions=[0])) as tail:
        waiting = asyncio.ensure_future(anext(tail))
        await until(lambda: subscriptions(node.observed) == 1)
        await stream.push(b"earlier than asked for")
        assert (await waiting).index == 4


async def test_nothing_beyond_the_end_of_a_range_is_read_where_its_begin_was_trimmed(
    client: Client,
) -> None:
    stream = await client.stream("s")
    await stream.push_many([b"%d" % number for number in range(20)])
    await client.trim("s", before=5)
    for where in ("", "not nothing"):
        assert [one.index for one in await stream.pull(until=8, where=where)] == [5, 6, 7]
        assert await stream.pull(until=3, where=where) == []


async def test_a_new_consumer_begins_at_a_time_and_keeps_to_it(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    await stream.push_many([b"old", b"older"])
    end = datetime.now(UTC) + timedelta(hours=1)
    async with stream.consumer("late", start=end, partitions=[0]) as consumer:
        with pytest.raises(TimeoutError):
            await consumer.next(timeout=0.05)
    await stream.push(b"new")
    # Saved already, so what it is told now says nothing for this partition.
    async with stream.consumer("late", start=timedelta(hours=1)) as consumer:
        assert (await consumer.next(timeout=10)).data == b"new"
        await stream.push(b"other", partition=1)
        assert (await consumer.next(timeout=10)).data == b"other"
    async with stream.consumer("last", start=-1) as consumer:
        entries = [await consumer.next(timeout=10) for _ in range(2)]
        assert {entry.data for entry in entries} == {b"new", b"other"}


async def test_the_node_looks_for_what_meets_a_condition(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    items = [b'{"n": %d, "text": "%d"}' % (number, number % 7) for number in range(5_000)]
    await stream.push_many(items)
    await stream.push(b"no json", key="m7", headers={"type": "x"})
    wanted = [item for item in items if b'"text": "3"' in item]
    assert data_of(await stream.pull(limit=9_999, where="text = '3'")) == wanted
    assert data_of(await stream.pull(limit=5, where="text = '3'")) == wanted[:5]
    some = await stream.pull(10, 99, where="n > 4000 or n < 12", until=4_003)
    assert [entry.index for entry in some] == [10, 11, 4_001, 4_002]
    assert data_of(await stream.pull(-2, where="n = 4999")) == items[-1:]
    assert await stream.pull(until=timedelta(hours=1), where="n") == []
    keyed = await stream.pull(partition=stream.partition_of("m7"), where="$key = 'm7'")
    assert (data_of(keyed), keyed[0].headers) == ([b"no json"], {"type": b"x"})
    async with aclosing(stream.tail(start=0, partitions=[0], where="n >= 4998")) as tail:
        assert [(await anext(tail)).index for _ in range(2)] == [4_998, 4_999]
        await stream.push_many([b'{"n": 1}', b'{"n": 6000}'])
        assert (await anext(tail)).data == b'{"n": 6000}'
    with pytest.raises(RequestError, match="character 4: expected a number"):
        await stream.pull(where="n >")
    with pytest.raises(RequestError, match="character 4: expected a number"):
        stream.batches(where="n >")


async def test_times_without_a_zone_are_refused_at_once(client: Client) -> None:
    stream = await client.stream("s")
    naive = datetime(2026, 1, 1)
    with pytest.raises(RequestError, match="has no zone"):
        stream.tail(start=naive)
    with pytest.raises(RequestError, match="has no zone"):
        stream.batches(start=naive)
    with pytest.raises(RequestError, match="has no zone"):
        stream.consumer("c", start=naive)
    with pytest.raises(RequestError, match="has no zone"):
        await stream.pull(start=naive)


async def test_a_blocking_client_reads_from_a_time(node: Node) -> None:
    def blocking() -> None:
        url = f"noise://{node.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=node.identity) as client:
            stream = client.stream("s")
            stream.push_many([b"a", b"b"])
            hour = timedelta(hours=1)
            assert stream.index_at(hour) == 0
            assert data_of(stream.pull(start=hour)) == [b"a", b"b"]
            with stream.tail(start=hour) as tail:
                assert next(tail).data == b"a"

    await asyncio.to_thread(blocking)
