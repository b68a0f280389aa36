"""A store whose log is not what it was: damaged, trimmed, of others, or without what it had."""

import asyncio
import shutil

import pytest

from coroutines import handed_by
from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    PutRecord,
    PutStream,
    RemoveStream,
    StreamRecord,
)
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.log.shared import following, versions
from rillnode.actors.log.shared.memory_log import MemoryServers
from rillnode.codecs.entries import pack_body
from shared_nodes import (
    Cluster,
    code,
    later_frame,
    name_in,
    plant_second_version,
    refused,
    snapshots_of,
    unanswered,
    until,
    with_cluster,
    with_disks,
)

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


@pytest.mark.parametrize("others", ["do nothing", "go on", "trim"])
async def test_a_log_that_lost_frames_is_told_until_the_view_is_deleted(
    disks: Cluster, others: str
) -> None:
    servers = disks.servers
    one = disks.node("1")
    log, elsewhere = await one.stream(name_in(1)), await one.stream(name_in(2))
    for number in range(3):
        await one.push(log, b"%d" % number)
    await one.close()
    del servers.shards[1].frames[-1:]
    if others != "go on":  # else it is seen late
        one = disks.node("1")
        assert await refused(one, log) == "store.lost"
        await one.close()
    after = list[bytes]()
    if others != "do nothing":
        # They come so far that the first would take a snapshot, or must.
        other = disks.node("2", snapshot_bytes=2_000)
        while not (servers.shards[1].trimmed if others == "trim" else snapshots_of(servers)):
            after.append(b"other %d" % len(after))
            await other.push(log, after[-1])
        await other.close()
        assert (others == "trim") == (servers.shards[1].trimmed > 0)
    for _ in range(2):
        one = disks.node("1", late_frames=5)
        assert await refused(one, log) == "store.lost"
        assert code(await one.push(log, b"x")) == "store.lost"
        assert code(await one.push(elsewhere, b"x")) == ""
        await one.close()
    shutil.rmtree(disks.directory / "1" / "0001")
    one = disks.node("1")
    await one.fresh(log)
    assert await one.texts(log) == [b"0", b"1", *after]


async def test_a_log_that_loses_frames_while_a_view_is_open_is_told(cluster: Cluster) -> None:
    servers = cluster.servers
    node = cluster.node()
    log = await node.stream(name_in(1))
    for number in range(3):
        await node.push(log, b"%d" % number)
    del servers.shards[1].frames[-2:]
    assert code(await node.push(log, b"x")) == "store.lost"


async def test_a_snapshot_of_what_the_log_has_lost_is_not_taken(cluster: Cluster) -> None:
    """Else who has accepted a loss would find it again."""

    servers = cluster.servers
    one = cluster.node("1", snapshot_bytes=2_000)
    log = await one.stream(name_in(1))
    count = 0
    while not snapshots_of(servers):
        await one.push(log, b"%d" % count)
        count += 1
        await asyncio.sleep(0.002)
    await one.close()
    (snapshot,) = snapshots_of(servers)
    frames = servers.shards[1].frames
    del frames[int(snapshot[5:21], 16) - 3 :]
    # At first the log ends before that place; then it has another frame there.
    before: list[bytes] = []
    for number in range(2):
        other = cluster.node(f"other {number}", late_frames=5)
        await other.fresh(log)
        found = await other.texts(log)
        assert found[: len(before)] == before
        assert b"%d" % (count - 1) not in found
        for _ in range(6):
            assert code(await other.push(log, b"after")) == ""
        before = await other.texts(log)


async def test_who_only_reads_is_told_that_the_log_has_lost_frames(
    disks: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.0)
    servers = disks.servers
    one = disks.node("1")
    log = await one.stream(name_in(1))
    reader = disks.node("2")
    for number in range(3):
        await one.push(log, b"%d" % number)
    await reader.fresh(log)
    assert await reader.texts(log) == [b"0", b"1", b"2"]
    await one.die()
    del servers.shards[1].frames[-2:]
    # One that has never seen them writes behind what is left.
    other = disks.node("3")
    for number in range(10):
        await other.push(log, b"other %d" % number)
    await until(lambda: reader.shard(log).refusal is not None)
    assert await refused(reader, log) == "store.lost"
    assert code(await other.push(log, b"after")) == ""


async def test_a_frame_in_the_place_of_one_that_was_acknowledged_is_not_taken_for_that(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = cluster.nodes(2)
    log = await one.stream(name_in(1))
    await other.fresh(log)

    with monkeypatch.context() as patch:
        patch.setattr(other.log, "read", unanswered)
        await one.push(log, b"before")
        own = other.begin(Append(log=log, count=1, body=pack_body([b"own"])))
        await until(lambda: bool(other.shard(log).follows._ahead))  # pyright: ignore[reportPrivateUsage]
        del cluster.servers.shards[1].frames[-2:]
        third = cluster.node("3")
        for number in range(3):
            await third.push(log, b"%d" % number)
    assert code(await own) == "store.lost"
    assert b"own" not in await third.texts(log)


async def test_a_view_of_another_log_is_left_alone(disks: Cluster) -> None:
    node = disks.node()
    await node.stream(name_in(1))
    await node.close()
    disks.servers = MemoryServers(b"y" * 16)
    node = disks.node()
    made = await node.write(PutStream(record=StreamRecord(name=name_in(0))))
    assert code(made) == "store.foreign"


async def test_a_frame_of_a_later_version_stops_the_shard_of_this_node_alone(
    cluster: Cluster,
) -> None:
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    other_log = await one.stream(name_in(2))
    await one.push(log, b"before")
    for _ in range(2):
        one.log._store(1, later_frame())  # pyright: ignore[reportPrivateUsage]
    assert code(await one.push(log, b"x")) == "store.newer"
    assert not one.store.health.writable
    assert await refused(one, log) == "store.newer"
    assert code(await one.push(log, b"x")) == "store.newer"
    assert code(await one.push(other_log, b"x")) == ""
    # Also of a node that begins with it.
    other = cluster.node("2")
    assert await refused(other, log) == "store.newer"
    await other.fresh(other_log)


async def test_nothing_is_written_before_all_nodes_can_read_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_second_version(monkeypatch)
    day = versions.GONE_MS

    servers = cluster.servers
    node = cluster.node("1")
    name = name_in(1)
    log = await node.stream(name)

    async def tell(who: str, *, reads: int, at: int) -> None:
        record = NodeRecord(name=who, identity=who, address="", told_at=at, reads=reads)
        await node.write(PutRecord(key=record.key, value=record.encode()))

    async def remove() -> str:
        """What is new, of one frame with what is not."""
        pushed = node.begin(Append(log=log, count=1, body=pack_body([b"x"])))
        removed = node.begin(RemoveStream(name=name))
        assert code(await pushed) == ""
        return code(await removed)

    await tell("new", reads=2, at=day)
    await tell("old", reads=1, at=day)
    removed = await node.write(RemoveStream(name=name))
    assert code(removed) == "store.outdated"
    assert removed.error is not None
    assert "(old)" in removed.error.text
    assert await remove() == "store.outdated"
    # So is it for who comes later, and for one that leaves.
    other = cluster.node("2")
    await other.fresh(log)
    await until(lambda: len(other.store.versions._nodes) == 2)  # pyright: ignore[reportPrivateUsage]
    assert code(await other.write(RemoveStream(name=name))) == "store.outdated"
    await node.write(PutRecord(key="nodes/old"))
    assert other.store.versions.common == 1
    await other.read(GetRecord(key="fresh"))
    assert other.store.versions.common == 2
    # One that has told nothing of itself for a day is waited for no longer.
    await tell("old", reads=1, at=day)
    assert await remove() == "store.outdated"
    await tell("new", reads=2, at=2 * day + 1)
    assert await remove() == ""
    await other.fresh(log)
    assert (await other.read(FindStream(name=name))).record is None
    assert [frame[0] for frame in servers.shards[1].frames].count(2) == 1


@pytest.mark.parametrize(
    "value", [b'{"name": "\xff", "identity": "", "address": ""}', b"[" * 100_000]
)
async def test_what_a_node_cannot_have_told_of_itself_is_passed_over(
    cluster: Cluster, value: bytes
) -> None:
    one, other = cluster.nodes(2)
    log = await one.stream(name_in(0))
    await other.fresh(log)
    assert code(await one.write(PutRecord(key="nodes/x", value=value))) == ""
    await one.push(log, b"after")
    await other.fresh(log)
    assert await other.texts(log) == [b"after"]


async def test_a_damaged_frame_is_passed_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = cluster.nodes(2)
    log = await nodes[0].stream(name_in(1))
    await nodes[1].fresh(log)
    for data in (b"", b"\1" * 60, b"\0" * 60, b"\2" * 60):
        nodes[0].log._store(1, data)  # pyright: ignore[reportPrivateUsage]
    await nodes[1].push(log, b"after")
    for node in nodes:
        await node.fresh(log)
        assert await node.texts(log) == [b"after"]
        views = {one["shard"]: one for one in node.store.describe()["views"]}
        assert (views[0]["damaged"], views[1]["damaged"]) == (0, 4)
    assert [one.msg for one in caplog.records].count("frame_damaged") == 8


async def test_a_log_that_was_trimmed_without_a_snapshot_is_told(cluster: Cluster) -> None:
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    for number in range(5):
        await one.push(log, b"%d" % number)
    cluster.servers.trim(1, 4)
    other = cluster.node("2")
    assert await refused(other, log) == "store.trimmed"
    assert code(await other.push(log, b"x")) == "store.trimmed"
    assert code(await one.push(log, b"x")) == ""


async def test_a_log_that_is_trimmed_while_a_view_is_opened_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = cluster.servers
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    for number in range(5):
        await one.push(log, b"%d" % number)
    other = cluster.node("2")
    append = other.log.append

    async def late(number: int, data: bytes) -> int:
        """Meanwhile what the view has not is dropped, and it hears of more."""
        sequence = await append(number, data)
        if number == 1:
            servers.trim(1, 4)
            await one.push(log, b"more")
            await asyncio.sleep(0.2)
        return sequence

    monkeypatch.setattr(other.log, "append", late)
    assert await refused(other, log) == "store.trimmed"
