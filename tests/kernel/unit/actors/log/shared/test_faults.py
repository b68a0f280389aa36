"""Several stores on one engine under random faults: what was confirmed is there, once, for all."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rillnode.actors.log import (
    Append,
    GetRecord,
    LoadIndex,
    Operation,
    PutRecords,
    PutStream,
    Read,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    log_id,
)
from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers
from rillnode.actors.log.shared.shard import SharedOptions
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.codecs.entries import entries_of, pack_body
from rillnode.node.simulation.loop import ProcessLoop, Scheduler
from shared_support import memory_view, rocks_view

OPTIONS = SharedOptions(
    shards=3,
    frame_bytes_max=400,
    read_bytes_max=2_000,
    patience_seconds=0.1,
    retry_seconds=0.002,
    idle_seconds=0.2,
    late_frames=20,
    snapshot_bytes=1_500,
    snapshot_seconds=0.01,
)
PARTITIONS = 2
AnyOperation = TypeVar("AnyOperation", bound=Operation)


class Member:
    """One node: its store, which may be killed and come again."""

    def __init__(
        self, servers: MemoryServers, directory: Path, view: str, chance: random.Random
    ) -> None:
        self.servers = servers
        self.directory = directory
        self.view = view
        self.chance = chance
        self.waiting: dict[Operation, asyncio.Future[None]] = {}
        self.lives = 0
        self.disturbed = asyncio.Lock()
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.faults = LogFaults(seconds=lambda: self.chance.choice((0.0, 0.0, 0.001)))
        loop = asyncio.get_running_loop()
        log = self.log = MemoryLog(self.servers, self.faults)
        directory = self.directory
        if self.view == "memory":
            directory = directory / str(self.lives)
        waiting = self.waiting = {}

        def complete(operations: Sequence[Operation]) -> None:
            loop.call_soon_threadsafe(settle, list(operations))

        def settle(operations: Sequence[Operation]) -> None:
            for one in operations:
                future = waiting.pop(one, None)
                if future is not None and not future.done():
                    future.set_result(None)

        self.store = SharedLogStore(
            log,
            log,
            directory,
            rocks_view if self.view == "rocks" else memory_view,
            entropy=self.chance.randbytes,
            now_ms=lambda: 0,
            complete=complete,
            on_health=lambda _: None,
            loop=loop,
            options=OPTIONS,
        )
        self.store.open()

    async def do(self, operation: AnyOperation) -> AnyOperation:
        """Carry an operation out, and return it complete."""
        future = asyncio.get_running_loop().create_future()
        self.waiting[operation] = future
        any_operation: Any = operation
        if hasattr(operation, "limit") or isinstance(operation, Read | LoadIndex | GetRecord):
            if self.store.read(any_operation):
                self.waiting.pop(operation, None)
                return operation
        else:
            self.store.submit(any_operation)
        try:
            await asyncio.wait_for(future, 20.0)
        except TimeoutError:
            raise AssertionError(f"never complete: {operation}") from None
        return operation

    async def restart(self) -> None:
        """End it without waiting for the engine, and begin anew."""
        self.faults.is_cut = True
        await self.store._close()  # pyright: ignore[reportPrivateUsage]
        self.start()


async def everything(member: Member, log: int) -> list[bytes]:
    """All entries of a log as a member sees it, once it has all that was confirmed."""
    store = member.store
    await member.do(Read(log=log))  # it is open then
    await store.shards[store.shards.place.of_log(log)].fresh()
    found: list[bytes] = []
    while True:
        read = await member.do(Read(log=log, index=len(found)))
        assert read.error is None, read.error
        if not read.blocks:
            return found
        for block in read.blocks:
            some = entries_of(block, first=len(found))
            assert some[0].index == len(found)
            found += [entry.data for entry in some]


class Round:
    """The deeds of a round, and what is known of them."""

    def __init__(self, members: list[Member], chance: random.Random) -> None:
        self.members = members
        self.chance = chance
        self.logs: list[int] = []
        self.pushed = 0
        self.confirmed: dict[bytes, tuple[int, int]] = {}
        self.saved: dict[SavedIndexKey, int] = {}
        self.counted = self.maybe_counted = 0

    async def push(self) -> None:
        member = self.chance.choice(self.members)
        log = self.chance.choice(self.logs)
        self.pushed += 1
        text = b"%d" % self.pushed
        done = await member.do(Append(log=log, count=1, body=pack_body([text])))
        if done.error is None:
            self.confirmed[text] = (log, done.first_index)
        else:
            await asyncio.sleep(0.02)

    async def save(self) -> None:
        member = self.chance.choice(self.members)
        key = SavedIndexKey("s0", 0, self.chance.choice("ab"))
        index = self.chance.randrange(1_000)
        before = self.saved.get(key, -1)
        load = await member.do(LoadIndex(key=key))
        if load.error is None:
            assert (load.index is None and before == -1) or (load.index or 0) >= before
        done = await member.do(SaveIndex(key=key, index=index))
        if done.error is None:
            assert done.index >= index
            self.saved[key] = max(self.saved.get(key, -1), done.index)

    async def count(self) -> None:
        """Add one to a value, as long as nobody else has."""
        member = self.chance.choice(self.members)
        while True:
            get = await member.do(GetRecord(key="count"))
            if get.error is not None:
                return
            value = int(get.value or b"0") + 1
            put = PutRecords(records=[("count", b"%d" % value)], seen=[("count", get.version)])
            await member.do(put)
            if put.error is None:
                self.counted += 1
                return
            if put.error.code != "store.fenced":
                self.maybe_counted += 1
                return

    async def disturb(self) -> None:
        member = self.chance.choice(self.members)
        async with member.disturbed:
            await self._disturb(member)

    async def _disturb(self, member: Member) -> None:
        faults = member.faults
        match self.chance.randrange(7):
            case 0:
                faults.lost += 1
            case 1:
                faults.late += 1
            case 2:
                faults.delayed += 1
            case 3:
                member.log.deliver()
            case 4:
                faults.is_cut = True
                await asyncio.sleep(self.chance.choice((0.005, 0.2)))
                faults.is_cut = False
            case 5:
                await member.restart()
            case _:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_confirmed_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    scheduler = Scheduler()
    loop = ProcessLoop(scheduler, "test")
    done = loop.create_task(run(tmp_path, "memory", seed))
    scheduler.run_until(done)
    done.result()


@pytest.mark.parametrize("seed", range(2))
def test_the_same_holds_with_views_on_disk(tmp_path: Path, seed: int) -> None:
    asyncio.run(run(tmp_path, "rocks", seed))


async def run(directory: Path, view: str, seed: int) -> None:
    chance = random.Random(seed)
    servers = MemoryServers(b"x" * 16)
    members = [Member(servers, directory / str(n), view, chance) for n in range(3)]
    round_ = Round(members, chance)
    for number in range(4):
        record = StreamRecord(name=f"s{number}", partitions=PARTITIONS)
        made = await members[number % 3].do(PutStream(record=record))
        assert made.error is None
        round_.logs += [log_id(made.record.id, partition) for partition in range(PARTITIONS)]
    work = [round_.push] * 12 + [round_.save, round_.count]
    running: set[asyncio.Task[None]] = set()
    for step in range(400):
        task = asyncio.create_task(chance.choice(work)())
        running.add(task)
        task.add_done_callback(running.discard)
        if step % 20 == 19:
            task = asyncio.create_task(round_.disturb())
            running.add(task)
            task.add_done_callback(running.discard)
        if len(running) > 40:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        elif step % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60.0):
        while running:
            await asyncio.gather(*running)
    for member in members:
        member.faults.is_cut = False
        member.faults.lost = member.faults.late = member.faults.delayed = 0
        member.log.deliver()
    await asyncio.sleep(0.2)
    # One more, which has nothing yet: what is trimmed it has from a snapshot.
    members.append(Member(servers, directory / "late", view, chance))
    await check(round_)
    for member in members:
        await member.store._close()  # pyright: ignore[reportPrivateUsage]


async def check(round_: Round) -> None:
    seen = [[await everything(member, log) for log in round_.logs] for member in round_.members]
    assert all(found == seen[0] for found in seen)
    by_log = dict(zip(round_.logs, seen[0], strict=True))
    counts = Counter(text for found in seen[0] for text in found)
    assert all(count == 1 for count in counts.values())
    for text, (log, index) in round_.confirmed.items():
        assert by_log[log][index] == text
    for key, index in round_.saved.items():
        load = await round_.members[0].do(LoadIndex(key=key))
        assert load.index is not None
        assert load.index >= index
    get = await round_.members[1].do(GetRecord(key="count"))
    assert round_.counted <= int(get.value or b"0") <= round_.counted + round_.maybe_counted
    assert len(round_.confirmed) > 50
