"""Groups and queues whose members, workers, producers and nodes are killed, and links are cut.

The nodes are one with a store of its own, or several of one log; each is behind a proxy. Each
group: no entry is skipped, none comes again that was saved as processed, no saved position goes
back. Each queue: every entry is done once or becomes a dead letter, with its reason, once.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

from forked import DEVNULL, PIPE, Forked
from killed_programs import AGAIN, ATTEMPTS, KEYS, NAME, PARTITIONS, REJECTED, STREAM
from nodes import CLIENT
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, connect
from rillnode.node.testing.contract.proxy import Proxy

HERE: Final = Path(__file__).parent
WORKERS: Final = 3
QUIET_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 12.5
"""For so long a member is stopped: a node gives up who is silent for 10 s."""

PER_KILL: Final = 28
"""Entries, so that there are some as long as there are kills."""


class Line(NamedTuple):
    """A line of the journal; `process` is who has written it."""

    word: str
    process: int
    rest: list[str]

    @property
    def place(self) -> tuple[int, int]:
        partition, index = self.rest[0].split("/")
        return int(partition), int(index)


class KilledNode(Protocol):
    """A node in a process of its own, that keeps its data and identity."""

    @property
    def url(self) -> str:
        """Where it listens, since it was started."""
        ...

    @property
    def identity(self) -> str:
        """Its identity, hex."""
        ...

    def start(self) -> None:
        """Start it, and wait until it listens."""
        ...

    def kill(self) -> None:
        """End it as a crash would."""
        ...


class Site:
    """Nodes behind proxies, and programs that work at them, each in a process of its own."""

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[KilledNode],
        proxies: Sequence[Proxy],
        what: str,
        entries: int,
        seed: int,
    ) -> None:
        self.chance = Random(seed)
        self.paused: set[int] = set()
        self._nodes = nodes
        self._proxies = proxies
        self._what = what
        self._entries = entries
        self._path = directory / "journal"
        self._path.touch()
        self._started = 0
        self._children: list[Forked] = []
        for number in range(len(nodes)):
            self.start_node(number)
        self.pusher = self.start("push", entries)
        self.workers = [self.start(what) for _ in range(WORKERS)]

    def start_node(self, number: int) -> None:
        """Start a node, and wait for it."""
        node = self._nodes[number]
        node.start()
        self._proxies[number].point_to(node.url.removeprefix("noise://"))

    def start(self, what: str, number: int | None = None) -> Forked:
        """Start a program, each at the next node."""
        self._started += 1
        at = self._started % len(self._nodes)
        number = self._started if number is None else number
        where = f"noise://{self._proxies[at].address}", self._nodes[at].identity
        program = HERE / "killed_programs.py"
        child = Forked(program, what, *where, self._path, f"{number}", stdout=PIPE, stderr=DEVNULL)
        self._children.append(child)
        return child

    async def client(self) -> Client:
        """A client that lives through all of it."""
        url = f"noise://{self._proxies[0].address}"
        return await connect(url, identity=CLIENT, node_identity=self._nodes[0].identity)

    async def strike(self) -> None:
        """Kill something, or cut all links."""
        kind = self.chance.choices(("worker", "node", "push", "cut"), (4, 3, 2, 1))[0]
        if kind == "worker":
            number = self.chance.randrange(WORKERS)
            end(self.workers[number])
            self.workers[number] = self.start(self._what)
        elif kind == "push":
            end(self.pusher)
            self.pusher = self.start("push", self._entries)
        else:
            number = self.chance.randrange(len(self._nodes))
            if kind == "node":
                self._nodes[number].kill()
                self.start_node(number)
            self._proxies[number].cut()

    async def pause(self) -> None:
        """Stop a worker for so long that it is given up, and let it go on then."""
        worker = self.chance.choice(self.workers)
        self.paused.add(worker.pid)
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSE_SECONDS)
        worker.send_signal(signal.SIGCONT)

    def journal(self) -> list[Line]:
        """What was noted so far."""
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [Line(word, int(process), rest) for word, process, *rest in lines]

    def end(self) -> None:
        """End all processes."""
        for child in self._children:
            end(child)
        for node in self._nodes:
            node.kill()


def end(child: Forked) -> None:
    """End a process as a crash would."""
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


async def watch_positions(site: Site, client: Client, positions: Counter[int]) -> None:
    """See again and again that no position goes back, and that all before it has come to somebody.

    What is saved was noted before, so the journal is read after.
    """
    while True:
        await asyncio.sleep(0.1)
        found: dict[int, int] = {}
        for partition in range(PARTITIONS):
            try:
                index = await client.get_index(NAME, STREAM, partition=partition)
            except RillnodeError:
                continue
            found[partition] = index or 0
        got = {line.place for line in site.journal() if line.word == "got"}
        for partition, index in found.items():
            assert index >= positions[partition], f"the position of {partition} has gone back"
            missing = [one for one in range(index) if (partition, one) not in got]
            assert not missing, f"{partition}: {index} is saved, and {missing} came to nobody"
            positions[partition] = index


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that links may be lost before."""
    async with asyncio.timeout(QUIET_SECONDS):
        while True:
            try:
                if await done():
                    return
            except RillnodeError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.2)


async def strike_often(site: Site, kills: int, *, pauses: bool = False) -> None:
    for kill in range(kills):
        await asyncio.sleep(site.chance.uniform(0.0, 0.6))
        await site.strike()
        if pauses and kill % 40 == 20:
            await site.pause()
    # A producer that was killed is started again, so there is one that comes to the end.
    assert await asyncio.to_thread(site.pusher.wait, QUIET_SECONDS) == 0


def stored_once(entries: int, logs: list[list[bytes]]) -> None:
    """All that was pushed is there, once and in its order."""
    for partition, log in enumerate(logs):
        assert log == [b"%d" % number for number in range(partition, entries, PARTITIONS)]


async def kill_members(directory: Path, nodes: Sequence[KilledNode], kills: int, seed: int) -> None:
    """Strike so often while a group reads."""
    entries = kills * PER_KILL
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy("127.0.0.1:1")) for _ in nodes]
        site = Site(directory, nodes, proxies, "consume", entries, seed)
        try:
            async with await site.client() as client:
                stream = await client.stream(STREAM, partitions=PARTITIONS)
                positions: Counter[int] = Counter()
                watching = asyncio.ensure_future(watch_positions(site, client, positions))
                await strike_often(site, kills, pauses=kills >= 100)

                async def all_saved() -> bool:
                    if watching.done():
                        watching.result()
                    return positions.total() == entries

                await until(all_saved)
                watching.cancel()
                logs = [
                    [one.data for one in await stream.pull(0, 1_000_000, partition=number)]
                    for number in range(PARTITIONS)
                ]
        finally:
            site.end()
    stored_once(entries, logs)
    saved: Counter[int] = Counter()
    for line in site.journal():
        if line.process in site.paused:
            continue  # what it had in hand it cannot know to be another's
        if line.word == "saved":
            partition, index = map(int, line.rest)
            saved[partition] = max(saved[partition], index)
        elif line.word == "got":
            partition, index = line.place
            assert index >= saved[partition], f"{partition}/{index} comes again"


async def kill_workers(
    directory: Path, nodes: Sequence[KilledNode], kills: int, seed: int, *, by_key: bool
) -> None:
    """Strike so often while workers have a queue."""
    entries = kills * PER_KILL
    what = "work_by_key" if by_key else "work"
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy("127.0.0.1:1")) for _ in nodes]
        site = Site(directory, nodes, proxies, what, entries, seed)
        try:
            async with await site.client() as client:
                stream = await client.stream(STREAM, partitions=PARTITIONS)
                await strike_often(site, kills)

                async def drained() -> bool:
                    return not (await client.queue(STREAM, NAME)).depth

                await until(drained)
                info = await client.queue(STREAM, NAME)
                letters = await (await client.stream(f"{STREAM}.dead")).pull(0, 1_000_000)
                logs = [
                    [one.data for one in await stream.pull(0, 1_000_000, partition=number)]
                    for number in range(PARTITIONS)
                ]
        finally:
            site.end()
    stored_once(entries, logs)
    assert (info.done + info.dead, info.trimmed, info.in_flight) == (entries, 0, 0)
    notes = [DeadLetter.of(one) for one in letters]
    dead = Counter((one.partition, one.index) for one in notes)
    assert len(dead) == dead.total() == info.dead
    for letter, note in zip(letters, notes, strict=True):
        assert letter.data == logs[note.partition][note.index]
        if int(letter.data) % REJECTED:
            assert note.attempts == ATTEMPTS, f"{letter.data!r} was given up early"
        assert note.reason
    rejected = [number for number in range(entries) if number % REJECTED == 0]
    reasons = {int(one.data): note.reason for one, note in zip(letters, notes, strict=True)}
    assert set(rejected) <= reasons.keys()
    assert sum(reasons[number] == "no page" for number in rejected) >= len(rejected) - kills
    check_journal(site.journal(), set(dead), entries, by_key=by_key)


def check_journal(
    lines: list[Line], dead: set[tuple[int, int]], entries: int, *, by_key: bool
) -> None:
    """What was done is not given again, and where it is asked for keys are in their order."""
    done: set[tuple[int, int]] = set()
    given: set[tuple[int, int]] = set()
    latest: dict[tuple[int, int], int] = {}
    for line in lines:
        if line.word in ("done", "rejected"):
            assert line.place not in done, f"{line.place} was settled twice"
            assert (line.place in dead) is (line.word == "rejected")
            done.add(line.place)
        elif line.word == "got":
            assert line.place not in done, f"{line.place} was settled, and given again"
            given.add(line.place)
            partition, index = line.place
            key = partition, index % KEYS
            if by_key:
                assert index >= latest.get(key, 0), f"{line.place} comes behind {latest[key]}"
            latest[key] = max(index, latest.get(key, 0))
    assert len(given) == entries
    again = {line.place for line in lines if line.word == "again"}
    assert {PARTITIONS * index + partition for partition, index in again} <= {
        number for number in range(entries) if number % AGAIN == 0
    }
