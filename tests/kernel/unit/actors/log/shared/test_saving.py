"""Snapshots as stores make and take them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coroutines import handed_by
from rillnode.actors.log import Append
from rillnode.codecs.entries import pack_body
from shared_nodes import (
    Cluster,
    Node,
    code,
    name_in,
    refused,
    snapshots_of,
    until,
    with_cluster,
    with_disks,
)

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


async def test_all_nodes_tell_how_old_the_newest_snapshot_is(cluster: Cluster) -> None:
    def told(node: Node) -> tuple[object, object]:
        (view,) = (one for one in node.store.describe()["views"] if one["shard"] == 1)
        return view["snapshot"], view["snapshot_seconds"]

    servers = cluster.servers
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))
    other = cluster.node("2")
    await other.fresh(log)
    assert told(one) == told(other) == (None, None)
    while not snapshots_of(servers):
        await one.push(log, b"entry")
        await asyncio.sleep(0.002)
    sequence = max(int(name[5:21], 16) for name in snapshots_of(servers))
    await until(lambda: told(other)[0] == sequence)
    await asyncio.sleep(3_600.0)
    # Also who comes later, to whose view that is no news.
    late = cluster.node("3")
    await late.fresh(log)
    await until(lambda: told(late)[0] is not None)
    for node in (one, other, late):
        found, age = told(node)
        assert found == sequence
        assert isinstance(age, float)
        assert 3_600.0 <= age < 3_610.0


async def test_what_came_before_a_node_was_started_anew_counts_as_well(disks: Cluster) -> None:
    """Else a log of which little comes between two starts would never be trimmed."""
    servers = disks.servers
    log, starts = 0, 0
    while not servers.shards or not servers.shards[1].trimmed:
        starts += 1
        assert starts < 30
        node = disks.node(snapshot_bytes=2_000, seed=starts)
        log = log or await node.stream(name_in(1))
        for _ in range(5):
            await node.push(log, b"entry")
        await asyncio.sleep(0.1)
        await node.close()
    assert len(snapshots_of(servers)) == 2
    assert starts > 2


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_node_that_lacks_what_was_trimmed_takes_a_snapshot(
    cluster: Cluster, damaged: bool
) -> None:
    servers = cluster.servers
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))
    for number in range(200):
        await one.push(log, b"%d" % number)
        await asyncio.sleep(0.002)
    await until(lambda: servers.shards[1].trimmed > 0)
    snapshots = sorted(name for name in servers.blobs if name.endswith(".snapshot"))
    oldest, newest = (int(name[5:21], 16) for name in snapshots[-2:])
    assert servers.shards[1].trimmed == oldest
    if damaged:
        (blob,) = (n for n in servers.blobs if n.endswith(f"dump.{newest:016x}"))
        servers.blobs[blob] = b"damaged"
    other = cluster.node("2")
    await other.fresh(log)
    assert await other.texts(log) == await one.texts(log)
    assert len(await other.texts(log)) == 200


async def test_a_node_that_has_fallen_behind_a_trim_has_what_it_has_not_sent_wait_for_a_snapshot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))
    other = cluster.node("2", frames_max=2)
    await other.fresh(log)
    read, reads = other.log.read, asyncio.Event()

    async def late(*asked: Any) -> Any:
        await reads.wait()
        return await read(*asked)

    def begin(text: bytes) -> "asyncio.Task[Append]":
        return other.begin(Append(log=log, count=1, body=pack_body([text]), received_at=1))

    monkeypatch.setattr(other.log, "read", late)
    await one.push(log, b"first")
    sent, waiting = list[Any](), list[Any]()
    fresh = [asyncio.create_task(other.fresh(log))]  # as of the first frame
    for number in range(5):
        (sent if number < 2 else waiting).append(begin(b"%d" % number))
        await asyncio.sleep(0.01)
    fresh.append(asyncio.create_task(other.fresh(log)))
    before = other.shard(log).follows.handed
    while cluster.servers.shards[1].trimmed <= before:
        await one.push(log, b"entry")
        await asyncio.sleep(0.002)
    assert not any(task.done() for task in (*sent, *waiting, *fresh))
    reads.set()
    for append in await asyncio.gather(*sent):  # which may be in the log
        assert (append.error.code, append.error.retryable) == ("store.trimmed", True)
    assert [code(append) for append in await asyncio.gather(*waiting)] == [""] * 3
    await asyncio.wait_for(asyncio.gather(*fresh), 30.0)
    assert code(await other.push(log, b"5")) == ""
    await one.fresh(log)
    texts = await one.texts(log)
    assert await other.texts(log) == texts
    assert sorted(text for text in texts if text.isdigit()) == [b"%d" % n for n in range(6)]


async def test_a_snapshot_is_made_where_somebody_has_trimmed_what_none_has(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    for number in range(5):
        await one.push(log, b"%d" % number)
    cluster.servers.trim(1, 4)
    other = cluster.node("2")
    assert await refused(other, log) == "store.trimmed"
    await asyncio.sleep(one.store.options.idle_seconds / 2)
    assert len(snapshots_of(cluster.servers)) == 1
    await other.fresh(log)
    assert await other.texts(log) == [b"%d" % number for number in range(5)]
    # Once is enough.
    await asyncio.sleep(2 * one.store.options.idle_seconds)
    assert len(snapshots_of(cluster.servers)) == 1
    assert [one.msg for one in caplog.records].count("log_trimmed_by_others") == 1


async def test_a_snapshot_that_others_replace_while_it_is_fetched_is_not_missed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = cluster.servers
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))

    async def grow(frames: int) -> None:
        for _ in range(frames):
            await one.push(log, b"entry")
            await asyncio.sleep(0.002)

    await grow(200)
    await until(lambda: servers.shards[1].trimmed > 0)
    other = cluster.node("2")
    get, gone = other.log.get, list[str]()

    async def get_late(name: str, path: Path) -> None:
        """Have two newer snapshots be made before the first file comes."""
        if not name.endswith(".snapshot") and not gone:
            gone.append(name)
            trimmed = servers.shards[1].trimmed
            while name in servers.blobs or servers.shards[1].trimmed == trimmed:
                await grow(10)
        await get(name, path)

    monkeypatch.setattr(other.log, "get", get_late)
    await other.fresh(log)
    assert gone
    assert await other.texts(log) == await one.texts(log)


@pytest.mark.parametrize(("asked", "often"), [("span", 2), ("append", 1), ("read", 2)])
async def test_a_log_that_is_trimmed_again_while_a_view_is_opened_costs_nobody_an_error(
    cluster: Cluster, asked: str, often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any call newer snapshots are made, and what the view was to read is dropped."""
    servers = cluster.servers
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))

    async def trimmed_once_more() -> None:
        trimmed = servers.shards[1].trimmed
        while servers.shards[1].trimmed == trimmed:
            await one.push(log, b"entry")
            await asyncio.sleep(0.002)

    await trimmed_once_more()
    other = cluster.node("2")
    times, busy = [0], asyncio.Lock()

    def patched(name: str) -> None:
        ask = getattr(other.log, name)

        async def late(number: int, *more: Any) -> Any:
            async with busy:  # nor does it read on meanwhile
                if (number, name) == (1, asked) and times[0] < often:
                    times[0] += 1
                    await trimmed_once_more()
                    await trimmed_once_more()
                return await ask(number, *more)

        monkeypatch.setattr(other.log, name, late)

    patched(asked)
    if asked != "read":
        patched("read")
    await other.fresh(log)
    assert times == [often]
    assert await other.texts(log) == await one.texts(log)


async def test_a_snapshot_that_is_damaged_is_not_needed_where_the_log_has_all(
    cluster: Cluster,
) -> None:
    servers = cluster.servers
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    for number in range(20):
        await one.push(log, b"%d" % number)
    servers.blobs[f"0001/{18:016x}.snapshot"] = b"damaged"
    other = cluster.node("2", late_frames=5)
    await other.fresh(log)
    assert len(await other.texts(log)) == 20
