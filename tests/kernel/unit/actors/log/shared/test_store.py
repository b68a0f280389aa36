"""A store of several nodes: what it writes, reads and refuses, and how it ends."""

import asyncio
from typing import Any

import pytest

from coroutines import handed_by
from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListStreams,
    LoadIndex,
    PutRecord,
    PutRecords,
    PutStream,
    Read,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    WatchRecords,
)
from rillnode.actors.log.shared import applying
from rillnode.actors.log.shared.frames import decode_frame
from rillnode.actors.log.shared.memory_log import ENDS_SECONDS, MemoryLog
from rillnode.codecs.entries import pack_body
from shared_nodes import (
    OPTIONS,
    Cluster,
    Node,
    code,
    name_in,
    refused,
    unanswered,
    until,
    with_cluster,
    with_disks,
)

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


def not_heard(*_: object) -> None:
    """Stands for news that are lost."""


@pytest.mark.parametrize(("bytes_min", "frames"), [(2**20, 2), (1, 5)])
async def test_little_writes_wait_for_each_other_where_many_frames_are_under_way(
    cluster: Cluster, bytes_min: int, frames: int
) -> None:
    servers = cluster.servers
    node = cluster.node(frames_free=0, frame_bytes_min=bytes_min)
    log = await node.stream(name_in(1))
    before = servers.shards[1].last
    node.faults.seconds = lambda: 0.1
    append = [Append(log=log, count=1, body=pack_body([b"%d" % n])) for n in range(8)]
    pushed: list[asyncio.Task[Append]] = []
    for one in append:
        pushed.append(node.begin(one))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*pushed)
    assert servers.shards[1].last - before == frames
    assert await node.texts(log) == [b"%d" % n for n in range(8)]


async def test_what_cannot_be_written_is_refused_and_the_rest_of_its_frame_is_not(
    cluster: Cluster,
) -> None:
    node = cluster.node()
    log = await node.stream(name_in(1))
    large = Append(log=log, count=1, body=pack_body([b"x" * 1_200_000]))
    key = SavedIndexKey(name_in(1), 0, "\ud800")
    tasks = [
        node.begin(Append(log=log, count=1, body=pack_body([b"1"]))),
        node.begin(large),
        node.begin(Append(log=log, count=1, body=pack_body([b"2"]))),
        node.begin(SaveIndex(key=key, index=1)),
        node.begin(SaveIndex(key=SavedIndexKey(name_in(1), 0, "c"), index=2**64)),
        node.begin(Append(log=log, count=1, body=pack_body([b"3"]))),
    ]
    found = [code(await task) for task in tasks]
    assert found == ["", "store.too_large", "", "store.name", "store.void", ""]
    assert await node.texts(log) == [b"1", b"2", b"3"]
    name = await node.write(PutStream(record=StreamRecord(name="\ud800")))
    assert code(name) == "store.name"
    get = await node.read(GetRecord(key="\ud800"))
    assert get.value is None


async def test_groups_over_two_shards_are_refused(cluster: Cluster) -> None:
    node = cluster.node()
    log = await node.stream(name_in(1))
    beside = f"beside/{log}/x"
    both = await node.write(PutRecords(records=[("plain", b""), (beside, b"")]))
    seen = await node.write(PutRecords(records=[("plain", b"")], seen=[(beside, 0)]))
    append = await node.push(log, b"x", records=[("plain", b"")])
    follows = await node.push(log, b"x", follows=[("plain", 0)])
    key = SavedIndexKey(name_in(1), 0, "c")
    saved = await node.write(SaveIndex(key=key, index=1, seen=[("plain", 0)]))
    refused = {code(one) for one in (both, seen, append, follows, saved)}
    assert refused == {"store.scattered"}
    assert code(await node.write(SaveIndex(key=key, index=1, seen=[(beside, 0)]))) == ""
    assert code(await node.push(log, b"x", records=[(beside, b"v")])) == ""
    assert (await node.read(GetRecord(key=beside))).value == b"v"


async def test_what_waits_is_bounded_and_all_of_it_ends(cluster: Cluster) -> None:
    node = cluster.node(pending_bytes_max=1_000)
    log = await node.stream(name_in(1))
    node.faults.is_cut = True
    body = pack_body([b"x" * 100])
    tasks = [node.begin(Append(log=log, count=1, body=body)) for _ in range(20)]
    assert node.store.pending_bytes > 1_000
    found = [code(await task) for task in tasks]
    assert set(found) == {"store.unreachable", "store.busy"}
    assert node.store.pending_bytes == 0
    assert await refused(node, log) == "store.unreachable"
    node.faults.is_cut = False
    await until(lambda: node.store.health.writable)
    assert code(await node.push(log, b"after")) == ""
    assert await node.texts(log) == [b"after"]


async def test_a_write_behind_what_cannot_be_read_ends_when_the_engine_is_away_for_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = cluster.nodes(2)
    log = await one.stream(name_in(1))
    await other.fresh(log)

    with monkeypatch.context() as patch:
        patch.setattr(other.log, "read", unanswered)
        await one.push(log, b"before")
        known = other.begin(Append(log=log, count=1, body=pack_body([b"known"])))
        await asyncio.sleep(0.05)
        other.faults.is_cut = True
        unknown = other.begin(Append(log=log, count=1, body=pack_body([b"unknown"])))
        await asyncio.sleep(3 * OPTIONS.patience_seconds)
        assert known.done()
        assert unknown.done()
    assert [code(known.result()), code(unknown.result())] == ["store.unreachable"] * 2
    other.faults.is_cut = False
    await until(lambda: other.shard(log).refusal is None)
    assert code(await other.push(log, b"after")) == ""
    # It has come all the same.
    await one.fresh(log)
    assert await one.texts(log) == [b"before", b"known", b"after"]


async def test_a_writer_that_was_forgotten_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "WRITERS_MAX", 3)

    one = cluster.node("one")
    log = await one.stream(name_in(1))
    for number in range(5):
        other = cluster.node(str(number))
        await other.push(log, b"%d" % number)
        await other.close()
    first = await one.push(log, b"may fail")
    assert code(first) in ("", "store.unreachable")
    await until(lambda: one.store.health.writable)
    assert code(await one.push(log, b"after")) == ""
    assert await one.texts(log) == [b"0", b"1", b"2", b"3", b"4", b"after"]


async def test_what_was_confirmed_anywhere_is_read_everywhere(cluster: Cluster) -> None:
    servers = cluster.servers
    nodes = cluster.nodes(3)
    for node in nodes:
        await node.stream(f"of {nodes.index(node)}")
        await node.read(FindStream(name=name_in(1)))
    servers.clients.clear()  # no news of others
    key = SavedIndexKey(name_in(1), 0, "c")
    for number in range(30):
        writer, reader = nodes[number % 3], nodes[(number + 1) % 3]
        await writer.write(SaveIndex(key=key, index=number))
        await writer.write(PutRecord(key="v", value=b"%d" % number))
        assert (await reader.read(LoadIndex(key=key))).index == number
        assert (await reader.read(GetRecord(key="v"))).value == b"%d" % number
        name = f"stream {number}"
        await writer.stream(name)
        assert (await reader.read(FindStream(name=name))).record is not None


async def told_of(node: Node, owner: str) -> None:
    """Wait until a node is told of a stream of this owner."""
    while owner not in [one.owner for one in (await node.watch(WatchRecords())).changed]:
        pass


@pytest.mark.parametrize("is_told", [False, True], ids=["by the ends alone", "by news"])
async def test_what_becomes_of_a_stream_is_heard_within_a_second(
    cluster: Cluster, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So rights, which streams have, end at all nodes."""

    loop = asyncio.get_running_loop()
    nodes = cluster.nodes(3)
    for node in nodes:
        node.faults.seconds = lambda: 0.005
    name = name_in(1)
    await nodes[0].stream(name)
    await nodes[1].read(FindStream(name=name))  # it has the stream's view, and the third not
    if not is_told:
        monkeypatch.setattr(MemoryLog, "hear", not_heard)
    told = dict[int, float]()
    for number in range(20):
        await asyncio.sleep(0.37 * number)
        waiting = [asyncio.ensure_future(told_of(node, f"owner {number}")) for node in nodes[1:]]
        record = (await nodes[0].read(FindStream(name=name))).record
        assert record is not None
        changed = StreamRecord(name=name, id=record.id, owner=f"owner {number}")
        began = loop.time()
        await nodes[0].write(PutStream(record=changed))
        await asyncio.gather(*waiting)
        told[number] = loop.time() - began
    assert max(told.values()) <= ENDS_SECONDS + 0.1
    assert is_told == (max(told.values()) < 0.1)


async def test_a_trim_at_an_idle_shard_goes_before_what_is_appended_after_it(
    cluster: Cluster,
) -> None:
    node = cluster.node()
    log = await node.stream(name_in(1))
    await node.push(log, *(b"%d" % number for number in range(4)))
    await until(lambda: node.shard(log).writes.is_idle)
    trim = Trim(log=log, retention=Retention(entries_max=3))
    body = pack_body([b"4", b"5"])
    append = Append(log=log, count=2, body=body, received_at=1)
    await asyncio.gather(node.begin(trim), node.begin(append))
    assert (trim.error, trim.extent.first_index, trim.extent.next_index) == (None, 1, 4)
    kept = (await node.read(Read(log=log, index=1))).extent
    assert (kept.first_index, kept.next_index) == (1, 6)


async def test_views_that_nobody_uses_are_closed_and_opened_again(disks: Cluster) -> None:
    node = disks.node(idle_seconds=0.1)
    log = await node.stream(name_in(1))
    for number in range(3):
        await node.push(log, b"%d" % number)
        await until(lambda: not node.shard(log).is_ready)
        tasks = [asyncio.create_task(node.texts(log)) for _ in range(3)]
        for found in await asyncio.gather(*tasks):
            assert found == [b"%d" % n for n in range(number + 1)]
    assert node.store.shards[0].is_ready


async def test_a_read_has_its_outcome_that_was_begun_as_the_store_was_closed(
    cluster: Cluster,
) -> None:
    node = cluster.node()
    reading = asyncio.ensure_future(node.read(GetRecord(key="k")))
    await asyncio.sleep(0)
    await node.store._close()  # pyright: ignore[reportPrivateUsage]
    assert code(await reading) == "store.closed"


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_all_that_is_under_way_ends_once_when_the_store_is_closed(
    cluster: Cluster, cut: bool, turns: int
) -> None:
    servers = cluster.servers
    node = cluster.node()
    log = 0
    if turns != 5:  # else it is not even open
        log = await node.stream(name_in(1))
    node.faults.seconds = lambda: 0.001
    node.faults.is_cut = cut
    tasks: list[asyncio.Task[Any]] = []
    for number in range(30):
        tasks.append(node.begin(Append(log=log, count=1, body=pack_body([b"x"]))))
        name = name_in(number % 3) + f" {number}"
        tasks.append(node.begin(PutStream(record=StreamRecord(name=name))))
        tasks.append(asyncio.create_task(node.read(LoadIndex())))
        tasks.append(asyncio.create_task(node.read(FindStream(name=name))))
        tasks.append(asyncio.create_task(node.read(ListStreams())))
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.close()
    done = await asyncio.gather(*tasks)
    assert {code(one) for one in done} <= {
        "",
        "store.closed",
        "store.unreachable",
        "stream.removed",
        "store.misplaced",
    }
    late = await node.write(Append(log=log, count=1, body=pack_body([b"late"])))
    assert code(late) == "store.closed"
    confirmed = sum(isinstance(one, Append) and not one.error for one in done)
    frames = [decode_frame(data) for one in servers.shards for data in one.frames]
    appended = sum(isinstance(op, Append) for one in frames for op in one.operations)
    assert appended >= confirmed
