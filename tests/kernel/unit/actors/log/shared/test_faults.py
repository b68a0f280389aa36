"""Several stores on one engine under random faults: what was confirmed is there, once, for all."""

import asyncio
import random
from collections import Counter
from typing import TypeVar

import pytest

from coroutines import handed_by
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
from rillnode.codecs.entries import pack_body
from shared_nodes import Cluster, with_cluster, with_disks
from shared_support import memory_view

OPTIONS = {
    "frame_bytes_max": 400,
    "read_bytes_max": 2_000,
    "patience_seconds": 0.1,
    "retry_seconds": 0.002,
    "idle_seconds": 0.2,
    "late_frames": 20,
    "snapshot_bytes": 1_500,
}
PARTITIONS = 2
AnyOperation = TypeVar("AnyOperation", bound=Operation)

cluster = handed_by(with_cluster)
disks = handed_by(with_disks)


class Member:
    """One node, which may be killed and come again; views in memory are gone then."""

    def __init__(self, cluster: Cluster, name: str, chance: random.Random) -> None:
        self.cluster = cluster
        self.name = name
        self.chance = chance
        self.lives = 0
        self.disturbed = asyncio.Lock()
        self.start()

    def start(self) -> None:
        self.lives += 1
        name = f"{self.name}/{self.lives}" if self.cluster.view is memory_view else self.name
        self.node = self.cluster.node(name, seed=self.chance.random(), **OPTIONS)
        self.node.faults.seconds = lambda: self.chance.choice((0.0, 0.0, 0.001))

    async def do(self, operation: AnyOperation) -> AnyOperation:
        """Carry an operation out, and return it complete."""
        is_read = isinstance(operation, Read | LoadIndex | GetRecord)
        return await (self.node.read if is_read else self.node.write)(operation)

    async def restart(self) -> None:
        """End it without waiting for the engine, and begin anew."""
        await self.node.die()
        self.start()


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
        faults = member.node.faults
        match self.chance.randrange(7):
            case 0:
                faults.lost += 1
            case 1:
                faults.late += 1
            case 2:
                faults.delayed += 1
            case 3:
                member.node.log.deliver()
            case 4:
                faults.is_cut = True
                await asyncio.sleep(self.chance.choice((0.005, 0.2)))
                faults.is_cut = False
            case 5:
                await member.restart()
            case _:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
async def test_nothing_confirmed_is_lost_or_doubled(cluster: Cluster, seed: int) -> None:
    await run(cluster, seed)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_the_same_holds_with_views_on_disk(disks: Cluster, seed: int) -> None:
    await run(disks, seed)


async def run(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    members = [Member(cluster, str(number), chance) for number in range(3)]
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
        faults = member.node.faults
        faults.is_cut = False
        faults.lost = faults.late = faults.delayed = 0
        member.node.log.deliver()
    await asyncio.sleep(0.2)
    # One more, which has nothing yet: what is trimmed it has from a snapshot.
    members.append(Member(cluster, "late", chance))
    await check(round_)


async def check(round_: Round) -> None:
    seen: list[list[list[bytes]]] = []
    for member in round_.members:
        for log in round_.logs:
            await member.node.fresh(log)
        seen.append([await member.node.texts(log) for log in round_.logs])
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
