"""Views that fail, and what a store answers meanwhile."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coroutines import handed_by
from rillnode.actors.log import Read
from rillnode.actors.log.rocks.tables import Changes, Tables
from rillnode.actors.log.rocks.writer import Writer
from rillnode.actors.log.shared import applying, following, shard
from rillnode.actors.log.shared.memory_view import MemoryView, ViewTables
from rillnode.actors.log.shared.port import unreachable
from rillnode.actors.log.shared.rocks_view import RocksView
from rillnode.codecs.errors import StoreError
from shared_nodes import (
    ANSWER_SECONDS,
    Cluster,
    code,
    name_in,
    until,
    with_cluster,
    with_disks,
)
from store_support import SMALL

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


@pytest.mark.parametrize("call", ["append", "read", "span"])
async def test_an_engine_that_fails_otherwise_than_it_says_costs_what_was_under_way(
    cluster: Cluster, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = cluster.node("0"), cluster.node("1")
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


@pytest.mark.parametrize("when", ["while it is open", "while it is opened"])
@pytest.mark.parametrize("error", ["store.denied", "store.incomplete"])
async def test_a_shard_takes_writes_again_once_its_servers_are_mended_though_nobody_reads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: str, when: str
) -> None:
    node, other = cluster.node("0"), cluster.node("1")
    log = await node.stream(name_in(1))
    await other.fresh(log)
    if when == "while it is opened":
        await other.shard(log).rest()

    async def refusing(*_: object) -> None:
        raise StoreError(error, "planted", retryable=False)

    with monkeypatch.context() as patch:
        for call in ("read", "span"):
            patch.setattr(other.log, call, refusing)
        await node.push(log, b"meanwhile")
        if when == "while it is opened":
            await other.push(log, b"x")
        await until(lambda: other.shard(log).refusal is not None)
        assert code(await other.push(log, b"x")) == error
    await asyncio.sleep(shard.REOPEN_SECONDS + 1.0)
    assert code(await other.push(log, b"after")) == ""


async def test_a_view_that_many_have_asked_for_in_vain_is_tried_no_more_often_than_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = cluster.nodes(2)
    log = await node.stream(name_in(1))
    asked = 0

    async def refusing(_: int) -> None:
        nonlocal asked
        asked += 1
        raise StoreError("store.denied", "planted")

    await until(lambda: other.store.shards.is_ready(0))
    with monkeypatch.context() as patch:
        patch.setattr(other.log, "span", refusing)
        for _ in range(50):
            assert code(await other.read(Read(log=log, index=0))) == "store.denied"
            await asyncio.sleep(0.01)
        asked = 0
        await asyncio.sleep(10 * shard.REOPEN_SECONDS)
        assert asked <= 10
    await other.fresh(log)


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
    disks: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECK_FRAMES", 8)
    one, other = disks.nodes(2)
    log = await one.stream(name_in(1))
    await other.fresh(log)
    wrong = other.shard(log)
    wrong.follows._checks = WrongOnce()  # pyright: ignore[reportPrivateUsage]
    for number in range(20):
        await one.push(log, b"%d" % number)
        await asyncio.sleep(0.005)
    await until(lambda: (disks.directory / "2" / "0001.differs").exists())
    await until(lambda: wrong.refusal is None and wrong.is_ready)
    await other.fresh(log)
    assert await other.texts(log) == await one.texts(log)


async def test_a_view_that_cannot_be_read_is_made_anew(disks: Cluster) -> None:
    """As a power cut may leave it."""
    one, other = disks.nodes(2)
    log = await one.stream(name_in(1))
    await one.push(log, b"before")
    await other.fresh(log)
    await other.shard(log).rest()
    view = disks.directory / "2" / "0001"
    for file in view.glob("MANIFEST-*"):
        file.write_bytes(b"planted")
    await one.push(log, b"meanwhile")
    await other.fresh(log)
    assert await other.texts(log) == await one.texts(log) == [b"before", b"meanwhile"]
    assert (view.parent / "0001.unreadable").exists()


async def test_a_full_disk_at_one_view_holds_up_that_node_alone(
    disks: Cluster, monkeypatch: pytest.MonkeyPatch
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

    nodes = disks.nodes(2)
    one, other = nodes
    log = await one.stream(name_in(1))
    await one.push(log, b"before")
    await other.fresh(log)
    full.add("2/0001")
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
    rows = [progress(disks.directory / name / "0001") for name in "12"]
    assert rows[0].digest == rows[1].digest


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
async def test_a_view_that_fails_while_it_is_opened_answers_nothing_before_it_has_all(
    cluster: Cluster, behind: int
) -> None:
    fails_at: list[int] = []

    class Failing(MemoryView):
        def apply(self, frame: applying.ApplyFrame) -> None:
            if [frame.sequence] == fails_at:
                fails_at.clear()
                self.faults.failing_syncs = 1
            super().apply(frame)

    one = cluster.node("1")
    log = await one.stream(name_in(1))
    texts = [b"%d" % number for number in range(5)]
    for text in texts:
        await one.push(log, text)
    made: list[MemoryView] = []
    other = cluster.node("2", view=failing_view(made, Failing), read_bytes_max=1)
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


async def test_a_view_whose_disk_has_lost_what_was_shown_answers_nothing_before_it_has_that(
    cluster: Cluster,
) -> None:
    class Forgetful(MemoryView):
        """One that is as it was when it was made, once its disk has failed."""

        def _take_writes(self) -> None:
            if self._failed:
                fresh = ViewTables(1, 3)
                vars(self.tables).update(vars(fresh))
                self.tables.applier = applying.Applier(self.tables, 1, 3)
            super()._take_writes()

    made: list[MemoryView] = []
    one = cluster.node("1")
    other = cluster.node("2", view=failing_view(made, Forgetful), read_bytes_max=1)
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


async def test_who_reads_while_a_view_is_opened_again_is_not_told_less_than_was_shown(
    disks: Cluster, monkeypatch: pytest.MonkeyPatch
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

    one = disks.node("one")
    other = disks.node("other")
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


def progress(path: Path) -> applying.Progress:
    tables = Tables(path, SMALL)
    found = applying.Progress.decode(tables.record(applying.PROGRESS_KEY))
    tables.close()
    return found


async def test_what_is_asked_while_a_store_that_could_not_be_opened_is_let_go_waits_for_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shard is made then, whose view nobody would close."""
    one = cluster.node("1")
    log = await one.stream(name_in(1))
    await one.push(log, b"text")
    fails = [True]

    class Failing(MemoryView):
        def open(self) -> None:
            if fails:
                fails.clear()
                raise unreachable("planted")
            super().open()

    made: list[MemoryView] = []
    other = cluster.node("2", view=failing_view(made, Failing))
    asked: list[asyncio.Future[Any]] = []
    close = other.store.shards.close

    async def closing(seconds: float = 0.0) -> None:
        await close(seconds)
        if not asked:
            asked.append(asyncio.ensure_future(other.read(Read(log=log, index=0))))
            asked.append(asyncio.ensure_future(other.push(log, b"more")))
            await asyncio.sleep(0)

    monkeypatch.setattr(other.store.shards, "close", closing)
    await until(lambda: bool(asked))
    assert {code(one) for one in await asyncio.gather(*asked)} <= {"", "store.unreachable"}
    await other.fresh(log)
    assert (await other.texts(log))[0] == b"text"
    assert len(made) == 3  # the one that failed, and one of each shard in use
