"""A store of several nodes: what it answers, and how it goes on when something is wrong."""

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListIndexes,
    ListStreams,
    LoadIndex,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    Read,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    WatchRecords,
)
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.log.rocks.tables import Changes, Tables
from rillnode.actors.log.rocks.writer import Writer
from rillnode.actors.log.shared import applying, catalogue, following, shard, versions
from rillnode.actors.log.shared.frames import FRAME_VERSION, decode_frame
from rillnode.actors.log.shared.memory_log import ENDS_SECONDS, MemoryLog, MemoryServers
from rillnode.actors.log.shared.memory_view import MemoryView, ViewTables
from rillnode.actors.log.shared.rocks_view import RocksView
from rillnode.codecs.entries import pack_body
from rillnode.codecs.errors import StoreError
from shared_nodes import (
    ANSWER_SECONDS,
    Node,
    in_virtual_time,
    memory_view,
    name_in,
    new_servers,
    plant_second_version,
    rocks_view,
    until,
)
from store_support import SMALL


def code(operation: Operation) -> str:
    return "" if operation.error is None else operation.error.code


def passed_over(operation: Operation) -> None:
    """Stands for a node that dies before it can do this."""
    del operation


def not_heard(*_: object) -> None:
    """Stands for news that are lost."""


async def refused(node: Node, log: int) -> str:
    """With what a fresh read of a shard fails."""
    with pytest.raises(StoreError) as caught:
        await node.fresh(log)
    return caught.value.code


def snapshots_of(servers: MemoryServers) -> list[str]:
    """The snapshots that are whole."""
    return [name for name in servers.blobs if name.endswith(".snapshot")]


# The log is not what it was ------------------------------------------------------------------


async def test_a_log_that_lost_frames_is_told_until_the_view_is_deleted(tmp_path: Path) -> None:
    servers = new_servers()
    node = Node(servers, tmp_path, view=rocks_view)
    log = await node.stream(name_in(1))
    await node.push(log, b"confirmed")
    other = await node.stream(name_in(2))
    await node.close()
    frames = servers.shards[1].frames
    del frames[-1:]
    for life in range(3):
        node = Node(servers, tmp_path, view=rocks_view, seed=life + 1)
        assert await refused(node, log) == "store.lost"
        assert code(await node.push(log, b"x")) == "store.lost"
        # The other shards go on.
        assert code(await node.push(other, b"x")) == ""
        await node.close()
    shutil.rmtree(tmp_path / "0001")
    node = Node(servers, tmp_path, view=rocks_view, seed=9)
    await node.fresh(log)
    assert await node.texts(log) == []
    await node.close()


def test_a_log_that_loses_frames_while_a_view_is_open_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        node = Node(servers, tmp_path)
        log = await node.stream(name_in(1))
        for number in range(3):
            await node.push(log, b"%d" % number)
        del servers.shards[1].frames[-2:]
        assert code(await node.push(log, b"x")) == "store.lost"

    in_virtual_time(work())


@pytest.mark.parametrize("is_noted", [False, True], ids=["seen late", "seen at once"])
async def test_no_snapshot_hides_that_a_log_has_lost_frames(tmp_path: Path, is_noted: bool) -> None:
    servers = new_servers()
    one = Node(servers, tmp_path / "1", view=rocks_view)
    log = await one.stream(name_in(1))
    for number in range(3):
        await one.push(log, b"%d" % number)
    await one.close()
    del servers.shards[1].frames[-1:]
    if is_noted:
        one = Node(servers, tmp_path / "1", view=rocks_view, seed=1)
        assert await refused(one, log) == "store.lost"
        await one.close()
    # The others go on, and come so far that the first would take a snapshot, or must.
    other = Node(servers, tmp_path / "2", view=rocks_view, snapshot_bytes=2_000)
    number = 0
    while not (servers.shards[1].trimmed if is_noted else snapshots_of(servers)):
        await other.push(log, b"other %d" % number)
        number += 1
    await other.close()
    assert is_noted == (servers.shards[1].trimmed > 0)
    for life in range(2):
        one = Node(servers, tmp_path / "1", view=rocks_view, seed=life + 2, late_frames=5)
        assert await refused(one, log) == "store.lost"
        assert code(await one.push(log, b"x")) == "store.lost"
        await one.close()
    shutil.rmtree(tmp_path / "1" / "0001")
    one = Node(servers, tmp_path / "1", view=rocks_view, seed=9)
    await one.fresh(log)
    assert (await one.texts(log))[:3] == [b"0", b"1", b"other 0"]
    await one.close()


def test_a_snapshot_of_what_the_log_has_lost_is_not_taken(tmp_path: Path) -> None:
    """Else who has accepted a loss would find it again."""

    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1", snapshot_bytes=2_000)
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
            other = Node(servers, tmp_path / f"other {number}", late_frames=5)
            await other.fresh(log)
            found = await other.texts(log)
            assert found[: len(before)] == before
            assert b"%d" % (count - 1) not in found
            for _ in range(6):
                assert code(await other.push(log, b"after")) == ""
            before = await other.texts(log)
            await other.close()

    in_virtual_time(work())


async def test_who_only_reads_is_told_that_the_log_has_lost_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.0)
    servers = new_servers()
    one = Node(servers, tmp_path / "1")
    log = await one.stream(name_in(1))
    reader = Node(servers, tmp_path / "2", view=rocks_view)
    for number in range(3):
        await one.push(log, b"%d" % number)
    await reader.fresh(log)
    assert await reader.texts(log) == [b"0", b"1", b"2"]
    await one.die()
    del servers.shards[1].frames[-2:]
    # One that has never seen them writes behind what is left.
    other = Node(servers, tmp_path / "3", seed=1)
    for number in range(10):
        await other.push(log, b"other %d" % number)
    await until(lambda: reader.shard(log).refusal is not None)
    assert await refused(reader, log) == "store.lost"
    assert code(await other.push(log, b"after")) == ""
    await reader.close()
    await other.close()


@pytest.mark.parametrize("call", ["append", "read", "span"])
def test_an_engine_that_fails_otherwise_than_it_says_costs_what_was_under_way(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        servers = new_servers()
        node, other = Node(servers, tmp_path / "0"), Node(servers, tmp_path / "1", seed=1)
        log = await node.stream(name_in(1))
        await node.push(log, b"before")
        await other.fresh(log)

        async def failing(*_: object) -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(other.log, call, failing)
            if call == "span":
                await other.store.shards[1].rest()
            await node.push(log, b"meanwhile")
            assert code(await other.push(log, b"x")) in ("", "store.failed", "store.unreachable")
        await asyncio.sleep(2 * shard.REOPEN_SECONDS + 1.0)
        assert code(await other.push(log, b"after")) == ""
        await node.fresh(log)
        texts = await node.texts(log)
        assert texts[:2] == [b"before", b"meanwhile"]
        assert texts[-1] == b"after"
        assert set(other.completed.values()) == {1}
        await node.close()
        await other.close()

    in_virtual_time(work())


async def test_a_view_of_another_log_is_left_alone(tmp_path: Path) -> None:
    node = Node(new_servers(), tmp_path, view=rocks_view)
    await node.stream(name_in(1))
    await node.close()
    node = Node(MemoryServers(b"y" * 16), tmp_path, view=rocks_view)
    made = await node.write(PutStream(record=StreamRecord(name=name_in(0))))
    assert code(made) == "store.foreign"
    await node.close()


def test_a_frame_of_a_later_version_stops_the_shard_of_this_node_alone(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1")
        log = await one.stream(name_in(1))
        other_log = await one.stream(name_in(2))
        await one.push(log, b"before")
        newer = bytes([FRAME_VERSION + 1]) * 100
        one.log._store(1, newer)  # pyright: ignore[reportPrivateUsage]
        one.log._store(1, newer)  # pyright: ignore[reportPrivateUsage]
        assert code(await one.push(log, b"x")) == "store.newer"
        assert not one.store.health.writable
        assert await refused(one, log) == "store.newer"
        assert code(await one.push(log, b"x")) == "store.newer"
        assert code(await one.push(other_log, b"x")) == ""
        # Also of a node that begins with it.
        other = Node(servers, tmp_path / "2")
        assert await refused(other, log) == "store.newer"
        await other.fresh(other_log)
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_nothing_is_written_before_all_nodes_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_second_version(monkeypatch)
    day = versions.GONE_MS

    async def work() -> None:
        servers = new_servers()
        node = Node(servers, tmp_path / "1")
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
        other = Node(servers, tmp_path / "2")
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
        await node.close()
        await other.close()

    in_virtual_time(work())


def test_a_damaged_frame_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        servers = new_servers()
        nodes = [Node(servers, tmp_path / str(n)) for n in range(2)]
        log = await nodes[0].stream(name_in(1))
        await nodes[1].fresh(log)
        for data in (b"", b"\1" * 60, b"\0" * 60):
            nodes[0].log._store(1, data)  # pyright: ignore[reportPrivateUsage]
        await nodes[1].push(log, b"after")
        for node in nodes:
            await node.fresh(log)
            assert await node.texts(log) == [b"after"]
            await node.close()

    with caplog.at_level(logging.ERROR):
        in_virtual_time(work())
    assert [one.message for one in caplog.records].count("frame_damaged") == 6


def test_a_log_that_was_trimmed_without_a_snapshot_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1")
        log = await one.stream(name_in(1))
        for number in range(5):
            await one.push(log, b"%d" % number)
        servers.trim(1, 4)
        other = Node(servers, tmp_path / "2")
        assert await refused(other, log) == "store.trimmed"
        assert code(await other.push(log, b"x")) == "store.trimmed"
        assert code(await one.push(log, b"x")) == ""
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_a_log_that_is_trimmed_while_a_view_is_opened_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1")
        log = await one.stream(name_in(1))
        for number in range(5):
            await one.push(log, b"%d" % number)
        other = Node(servers, tmp_path / "2")
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
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_all_nodes_tell_how_old_the_newest_snapshot_is(tmp_path: Path) -> None:
    def told(node: Node) -> tuple[object, object]:
        (view,) = (one for one in node.store.describe()["views"] if one["shard"] == 1)
        return view["snapshot"], view["snapshot_seconds"]

    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1", view=memory_view, snapshot_bytes=2_000)
        log = await one.stream(name_in(1))
        other = Node(servers, tmp_path / "2")
        await other.fresh(log)
        assert told(one) == told(other) == (None, None)
        while not snapshots_of(servers):
            await one.push(log, b"entry")
            await asyncio.sleep(0.002)
        sequence = max(int(name[5:21], 16) for name in snapshots_of(servers))
        await until(lambda: told(other)[0] == sequence)
        await asyncio.sleep(3_600.0)
        # Also who comes later, to whose view that is no news.
        late = Node(servers, tmp_path / "3")
        await late.fresh(log)
        await until(lambda: told(late)[0] is not None)
        for node in (one, other, late):
            found, age = told(node)
            assert found == sequence
            assert isinstance(age, float)
            assert 3_600.0 <= age < 3_610.0
            await node.close()

    in_virtual_time(work())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_node_that_lacks_what_was_trimmed_takes_a_snapshot(tmp_path: Path, damaged: bool) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1", snapshot_bytes=2_000)
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
        other = Node(servers, tmp_path / "2")
        await other.fresh(log)
        assert await other.texts(log) == await one.texts(log)
        assert len(await other.texts(log)) == 200
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_a_snapshot_that_others_replace_while_it_is_fetched_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1", snapshot_bytes=2_000)
        log = await one.stream(name_in(1))

        async def grow(frames: int) -> None:
            for _ in range(frames):
                await one.push(log, b"entry")
                await asyncio.sleep(0.002)

        await grow(200)
        await until(lambda: servers.shards[1].trimmed > 0)
        other = Node(servers, tmp_path / "2")
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
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_a_snapshot_that_is_damaged_is_not_needed_where_the_log_has_all(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1")
        log = await one.stream(name_in(1))
        for number in range(20):
            await one.push(log, b"%d" % number)
        servers.blobs[f"0001/{18:016x}.snapshot"] = b"damaged"
        other = Node(servers, tmp_path / "2", late_frames=5)
        await other.fresh(log)
        assert len(await other.texts(log)) == 20
        await one.close()
        await other.close()

    in_virtual_time(work())


@pytest.mark.parametrize(("bytes_min", "frames"), [(2**20, 2), (1, 5)])
def test_little_writes_wait_for_each_other_where_many_frames_are_under_way(
    tmp_path: Path, bytes_min: int, frames: int
) -> None:
    async def work() -> None:
        servers = new_servers()
        node = Node(servers, tmp_path, frames_free=0, frame_bytes_min=bytes_min)
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
        await node.close()

    in_virtual_time(work())


class WrongOnce(dict[int, int]):
    """A view that notes once another decision than it made."""

    is_wrong = True

    def get(self, key: int, default: Any = None) -> Any:
        found = super().get(key, default)
        if found is None or not self.is_wrong:
            return found
        self.is_wrong = False
        return found ^ 1


async def test_a_view_that_differs_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECK_FRAMES", 8)
    servers = new_servers()
    one, other = (Node(servers, tmp_path / str(n), view=rocks_view) for n in range(2))
    log = await one.stream(name_in(1))
    await other.fresh(log)
    wrong = other.shard(log)
    wrong.follows._checks = WrongOnce()  # pyright: ignore[reportPrivateUsage]
    for number in range(20):
        await one.push(log, b"%d" % number)
        await asyncio.sleep(0.005)
    await until(lambda: (tmp_path / "1" / "0001.differs").exists())
    await until(lambda: wrong.refusal is None and wrong.is_ready)
    await other.fresh(log)
    assert await other.texts(log) == await one.texts(log)
    for node in (one, other):
        await node.close()


def test_a_full_disk_at_one_view_holds_up_that_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full: set[str] = set()
    write = Tables.write

    def failing(tables: Tables, changes: Changes) -> None:
        path = tables._path  # pyright: ignore[reportPrivateUsage]
        if any(one in str(path) for one in full):
            raise OSError("No space left on device")
        write(tables, changes)

    def has_room(_: Tables) -> bool:
        return not full

    monkeypatch.setattr(Tables, "write", failing)
    monkeypatch.setattr(Tables, "has_room", has_room)

    async def work() -> None:
        servers = new_servers()
        nodes = [Node(servers, tmp_path / f"n{n}", view=rocks_view) for n in range(2)]
        one, other = nodes
        log = await one.stream(name_in(1))
        await one.push(log, b"before")
        await other.fresh(log)
        full.add("n1/0001")
        # It may be in the log: the answer is an error all the same.
        assert code(await other.push(log, b"under way")) == "store.full"
        assert code(await other.push(log, b"refused")) == "store.full"
        assert not other.store.health.writable
        assert await other.texts(log) == [b"before"]
        for number in range(10):
            assert code(await one.push(log, b"%d" % number)) == ""
        assert await other.texts(log) == [b"before"]
        full.clear()
        await until(lambda: other.store.health.writable)
        assert code(await other.push(log, b"after")) == ""
        await one.fresh(log)
        found = await one.texts(log)
        assert found == [b"before", b"under way", *(b"%d" % n for n in range(10)), b"after"]
        assert await other.texts(log) == found
        for node in nodes:
            await node.close()
        rows = [progress(tmp_path / f"n{n}" / "0001") for n in range(2)]
        assert rows[0].digest == rows[1].digest

    asyncio.run(work())


def failing_view(made: list[MemoryView], kind: type[MemoryView]) -> Callable[..., MemoryView]:
    """Make views whose disks are tried again by the loop's clock; notes them."""

    def make(path: Path, identity: bytes, number: int, shards: int, **calls: Any) -> MemoryView:
        del identity
        loop: Any = asyncio.get_running_loop()
        view = kind(path, number, shards, post=loop.call_soon, clock=loop, **calls)
        made.append(view)
        return view

    return make


@pytest.mark.parametrize("behind", range(6))
def test_a_view_that_fails_while_it_is_opened_answers_nothing_before_it_has_all(
    tmp_path: Path, behind: int
) -> None:
    fails_at: list[int] = []

    class Failing(MemoryView):
        def apply(self, frame: applying.ApplyFrame) -> None:
            if [frame.sequence] == fails_at:
                fails_at.clear()
                self.faults.failing_syncs = 1
            super().apply(frame)

    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "1")
        log = await one.stream(name_in(1))
        texts = [b"%d" % number for number in range(5)]
        for text in texts:
            await one.push(log, text)
        made: list[MemoryView] = []
        other = Node(servers, tmp_path / "2", view=failing_view(made, Failing), read_bytes_max=1)
        await until(lambda: other.store.shards.placement is not None)
        # The last of all is the frame with which it is opened.
        fails_at.append(one.shard(log).follows.applied + 1 - behind)
        read = await other.read(Read(log=log, index=0))
        assert not fails_at
        while code(read):
            assert code(read) == "store.failed"
            await asyncio.sleep(0.01)
            read = await other.read(Read(log=log, index=0))
        assert read.extent.next_index == len(texts)
        assert await other.texts(log) == texts
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_a_view_whose_disk_has_lost_what_was_shown_answers_nothing_before_it_has_that(
    tmp_path: Path,
) -> None:
    class Forgetful(MemoryView):
        """One that is as it was when it was made, once its disk has failed."""

        def _take_writes(self) -> None:
            if self._failed:
                fresh = ViewTables(1, 3)
                vars(self.tables).update(vars(fresh))
                self.tables.applier = applying.Applier(self.tables, 1, 3)
            super()._take_writes()

    async def work() -> None:
        servers = new_servers()
        made: list[MemoryView] = []
        one = Node(servers, tmp_path / "1")
        other = Node(servers, tmp_path / "2", view=failing_view(made, Forgetful), read_bytes_max=1)
        log = await one.stream(name_in(1))
        shown = [b"%d" % number for number in range(5)]
        for text in shown:
            await one.push(log, text)
        await other.fresh(log)
        assert await other.texts(log) == shown
        other.faults.seconds = lambda: 0.01
        made[-1].faults.failing_syncs = 1
        await one.push(log, b"more")
        ends: set[int] = set()
        codes: set[str] = set()
        while max(ends, default=0) <= len(shown):
            read = await other.read(Read(log=log, index=0))
            codes.add(code(read))
            if read.error is None:
                ends.add(read.extent.next_index)
            await asyncio.sleep(0.001)
        assert ends == {len(shown), len(shown) + 1}
        assert codes <= {"", "store.failed", "store.closed"}
        assert await other.texts(log) == [*shown, b"more"]
        assert code(await other.push(log, b"after")) == ""
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_who_reads_while_a_view_is_opened_again_is_not_told_less_than_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: Any = RocksView
    writers: Any = Writer
    write, open_tables, take_writes = Tables.write, views._open_tables, writers._take_writes
    failing: list[str] = []
    opened, goes_on = threading.Event(), threading.Event()

    def written(tables: Any, changes: Changes) -> None:
        if "other/0001" in str(tables._path) and failing:
            raise OSError(failing.pop())
        write(tables, changes)

    def emptied(view: Any) -> Any:
        """What was not on the disk yet is gone: here, all of it."""
        if view._path.parent.name == "other" and losing:
            shutil.rmtree(view._path)
        return open_tables(view)

    def held(writer: Any) -> None:
        """Readers are let in, and nobody was told yet that it goes on."""
        if losing and writer._path.parent.name == "other":
            losing.clear()
            opened.set()
            goes_on.wait(ANSWER_SECONDS)
        take_writes(writer)

    losing: list[bool] = []
    monkeypatch.setattr(Tables, "write", written)
    monkeypatch.setattr(RocksView, "_open_tables", emptied)
    monkeypatch.setattr(Writer, "_take_writes", held)

    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "one", view=rocks_view)
        other = Node(servers, tmp_path / "other", view=rocks_view)
        log = await one.stream(name_in(1))
        await one.push(log, b"shown")
        await other.fresh(log)
        assert await other.texts(log) == [b"shown"]
        failing.append("I/O error")
        losing.append(True)
        await one.push(log, b"more")
        await until(opened.is_set)
        read = await other.read(Read(log=log, index=0))
        assert code(read) == "store.failed"
        goes_on.set()
        await until(lambda: other.shard(log).is_ready and other.shard(log).refusal is None)
        await other.fresh(log)
        assert await other.texts(log) == [b"shown", b"more"]
        await one.close()
        await other.close()

    asyncio.run(work())


def progress(path: Path) -> applying.Progress:
    tables = Tables(path, SMALL)
    found = applying.Progress.decode(tables.record(applying.PROGRESS_KEY))
    tables.close()
    return found


# What is refused -----------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused_and_the_rest_of_its_frame_is_not(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        servers = new_servers()
        node = Node(servers, tmp_path)
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
        await node.close()

    in_virtual_time(work())


def test_groups_over_two_shards_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(new_servers(), tmp_path)
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
        await node.close()

    in_virtual_time(work())


def test_what_waits_is_bounded_and_all_of_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(new_servers(), tmp_path, pending_bytes_max=1_000)
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
        await node.close()

    in_virtual_time(work())


# Epochs --------------------------------------------------------------------------------------


def test_a_writer_that_was_forgotten_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "WRITERS_MAX", 3)

    async def work() -> None:
        servers = new_servers()
        one = Node(servers, tmp_path / "one")
        log = await one.stream(name_in(1))
        for number in range(5):
            other = Node(servers, tmp_path / str(number))
            await other.push(log, b"%d" % number)
            await other.close()
        first = await one.push(log, b"may fail")
        assert code(first) in ("", "store.unreachable")
        await until(lambda: one.store.health.writable)
        assert code(await one.push(log, b"after")) == ""
        assert await one.texts(log) == [b"0", b"1", b"2", b"3", b"4", b"after"]
        await one.close()

    in_virtual_time(work())


# Reads ---------------------------------------------------------------------------------------


def test_what_was_confirmed_anywhere_is_read_everywhere(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        nodes = [Node(servers, tmp_path / str(n)) for n in range(3)]
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
        for node in nodes:
            await node.close()

    in_virtual_time(work())


async def told_of(node: Node, owner: str) -> None:
    """Wait until a node is told of a stream of this owner."""
    while owner not in [one.owner for one in (await node.watch(WatchRecords())).changed]:
        pass


@pytest.mark.parametrize("is_told", [False, True], ids=["by the ends alone", "by news"])
def test_what_becomes_of_a_stream_is_heard_within_a_second(
    tmp_path: Path, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So rights, which streams have, end at all nodes."""

    async def work() -> None:
        loop, servers = asyncio.get_running_loop(), new_servers()
        nodes = [Node(servers, tmp_path / str(n)) for n in range(3)]
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
            waiting = [
                asyncio.ensure_future(told_of(node, f"owner {number}")) for node in nodes[1:]
            ]
            record = (await nodes[0].read(FindStream(name=name))).record
            assert record is not None
            changed = StreamRecord(name=name, id=record.id, owner=f"owner {number}")
            began = loop.time()
            await nodes[0].write(PutStream(record=changed))
            await asyncio.gather(*waiting)
            told[number] = loop.time() - began
        assert max(told.values()) <= ENDS_SECONDS + 0.1
        assert is_told == (max(told.values()) < 0.1)
        for node in nodes:
            await node.close()

    in_virtual_time(work())


def test_streams_and_positions_are_listed_over_all_shards_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one, other = (Node(servers, tmp_path / str(n)) for n in range(2))
        names = sorted(f"s{number:02}" for number in range(20))
        keys = [SavedIndexKey(name, 0, "c") for name in names]
        for number, name in enumerate(names):
            log = await one.stream(name)
            await one.push(log, *[b"x"] * (number + 1))
            await one.write(SaveIndex(key=keys[number], index=number))
        await one.write(RemoveStream(name="s07"))
        del names[7], keys[7]
        await other.read(GetRecord(key="fresh"))
        found: list[str] = []
        ends: list[int] = []
        more = True
        while more:
            page = await other.read(ListStreams(after=found[-1] if found else "", limit=6))
            assert len(page.records) == len(page.extents) <= 6
            found += [record.name for record in page.records]
            ends += [extents[0].next_index for extents in page.extents]
            more = page.more
        assert found == names
        assert ends == [int(name[1:]) + 1 for name in names]
        listed: list[SavedIndexKey] = []
        while True:
            after = listed[-1] if listed else None
            indexes = (await other.read(ListIndexes(after=after, limit=7))).indexes
            if not indexes:
                break
            listed += [key for key, _ in indexes]
        assert listed == keys
        prefixed = await other.read(ListStreams(prefix="s1"))
        assert [record.name for record in prefixed.records] == names[9:19]
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_only_streams_at_hand_are_listed_where_that_is_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one, other = (Node(servers, tmp_path / str(n)) for n in range(2))
        for number in range(3):
            await one.stream(name_in(number))
        log = (await other.read(FindStream(name=name_in(1)))).record
        assert log is not None
        await other.read(GetRecord(key="fresh"))
        page = await other.read(ListStreams(at_hand=True))
        assert {record.name for record in page.records} == {name_in(0), name_in(1)}
        await one.close()
        await other.close()

    in_virtual_time(work())


def test_a_trim_at_an_idle_shard_goes_before_what_is_appended_after_it(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(new_servers(), tmp_path)
        log = await node.stream(name_in(1))
        await node.push(log, *(b"%d" % number for number in range(4)))
        await until(lambda: node.shard(log).is_idle)
        trim = Trim(log=log, retention=Retention(entries_max=3))
        body = pack_body([b"4", b"5"])
        append = Append(log=log, count=2, body=body, received_at=1)
        await asyncio.gather(node.begin(trim), node.begin(append))
        assert (trim.error, trim.extent.first_index, trim.extent.next_index) == (None, 1, 4)
        kept = (await node.read(Read(log=log, index=1))).extent
        assert (kept.first_index, kept.next_index) == (1, 6)
        await node.close()

    in_virtual_time(work())


def test_names_are_listed_without_a_view_but_that_of_the_catalogue(tmp_path: Path) -> None:
    async def work() -> None:
        servers = new_servers()
        one, other = (Node(servers, tmp_path / str(n)) for n in range(2))
        names = sorted(name_in(number) for number in range(3))
        for name in names:
            await one.stream(name)
        await other.read(GetRecord(key="fresh"))
        page = await other.read(ListStreams(names_only=True, limit=2))
        rest = await other.read(ListStreams(names_only=True, after=page.records[-1].name))
        assert [record.name for record in (*page.records, *rest.records)] == names
        assert (page.more, rest.more) == (True, False)
        assert [view["shard"] for view in other.store.describe()["views"]] == [0]
        await one.close()
        await other.close()

    in_virtual_time(work())


async def test_views_that_nobody_uses_are_closed_and_opened_again(tmp_path: Path) -> None:
    node = Node(new_servers(), tmp_path, view=rocks_view, idle_seconds=0.1)
    log = await node.stream(name_in(1))
    for number in range(3):
        await node.push(log, b"%d" % number)
        await until(lambda: not node.shard(log).is_ready)
        tasks = [asyncio.create_task(node.texts(log)) for _ in range(3)]
        for found in await asyncio.gather(*tasks):
            assert found == [b"%d" % n for n in range(number + 1)]
    assert node.store.shards[0].is_ready
    await node.close()


# The catalogue -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["made", "changed", "removed"])
def test_what_became_of_a_stream_is_listed_by_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def work() -> None:
        servers = new_servers()
        one, other = (Node(servers, tmp_path / str(n)) for n in range(2))
        name = name_in(1)
        log = await one.stream(name_in(1, but=[name]))
        await other.fresh(log)
        if what != "made":
            await one.stream(name)
        monkeypatch.setattr(one.store.shards[0], "submit", passed_over)
        write: Any = RemoveStream(name=name)
        record = (await one.read(FindStream(name=name))).record
        if what == "made":
            write = PutStream(record=StreamRecord(name=name))
        elif what == "changed":
            assert record is not None
            changed = StreamRecord(name=name, id=record.id, owner="somebody")
            write = PutStream(record=changed)
        one.store.submit(write)
        await asyncio.sleep(0.1)
        await one.die()
        await asyncio.sleep(catalogue.LISTING_SECONDS + 1.0)
        page = await other.read(ListStreams())
        found = {one.name: one for one in page.records}
        assert (name in found) == (what != "removed")
        if what == "changed":
            assert found[name].owner == "somebody"
        await other.close()

    in_virtual_time(work())


async def test_what_became_of_a_stream_is_listed_though_all_who_saw_it_were_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "LISTING_SECONDS", 0.2)
    servers = new_servers()
    node = Node(servers, tmp_path, view=rocks_view)
    await node.stream(name_in(0))
    monkeypatch.setattr(node.store.shards[0], "submit", passed_over)
    node.store.submit(PutStream(record=StreamRecord(name=name_in(1))))
    # The frame with which its view is opened, and the one that makes the stream.
    await until(lambda: node.store.shards[1].follows.applied == 2)
    await node.die()
    node = Node(servers, tmp_path, view=rocks_view, seed=1)
    assert (await node.read(FindStream(name=name_in(1)))).record is not None
    names: list[str] = []
    async with asyncio.timeout(ANSWER_SECONDS):
        while name_in(1) not in names:
            names = [record.name for record in (await node.read(ListStreams())).records]
    await node.close()


def test_a_listing_that_was_refused_is_written_later(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(new_servers(), tmp_path)
        await node.stream(name_in(0))
        first = node.store.shards[0]._writing  # pyright: ignore[reportPrivateUsage]
        first.refusal = StoreError("store.full", "")
        made = await node.write(PutStream(record=StreamRecord(name=name_in(1))))
        assert code(made) == ""
        first.refusal = None
        await asyncio.sleep(catalogue.LISTING_SECONDS + 1.0)
        names = [one.name for one in (await node.read(ListStreams())).records]
        assert sorted(names) == sorted([name_in(0), name_in(1)])
        await node.close()

    in_virtual_time(work())


# The end -------------------------------------------------------------------------------------


def test_a_read_has_its_outcome_that_was_begun_as_the_store_was_closed(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(new_servers(), tmp_path)
        reading = asyncio.ensure_future(node.read(GetRecord(key="k")))
        await asyncio.sleep(0)
        await node.store._close()  # pyright: ignore[reportPrivateUsage]
        assert code(await reading) == "store.closed"

    in_virtual_time(work())


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_all_that_is_under_way_ends_once_when_the_store_is_closed(
    tmp_path: Path, cut: bool, turns: int
) -> None:
    async def work() -> None:
        servers = new_servers()
        node = Node(servers, tmp_path)
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

    in_virtual_time(work())
