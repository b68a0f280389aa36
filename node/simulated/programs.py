"""The clients of a simulation: real clients of nodes that note what they do and what they see.

Each runs in a process of its own. When that is killed, the next one begins as a new program would:
with what it had saved on a node, and nothing else.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_128
from math import inf
from typing import Final

from rillnode.actors.core.streams.subscription import CHUNK_BYTES
from rillnode.codecs.bare import Codec
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import MESSAGE_SECONDS_MAX
from rillnode.node.client.client import Client
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.client.subscription import CREDIT_BYTES
from rillnode.node.simulated.history import History, Log, log_of
from rillnode.node.simulation.world import Machine, World

MARKER: Final = b"rill-simulated "
"""Begins each payload, so that it is recognised where it must not be seen."""

TEXT: Final[Codec[str]] = Codec(str)
"""How services of a node are sent a text."""

_FILLING_AHEAD: Final = 251

AGAIN_SECONDS: Final = 0.5
"""Pause of an application after a failure that it can do nothing about."""

SLOW_SECONDS: Final = 1.0
"""What a slow reader takes over each batch."""

WORKING_PART: Final = 0.1
"""How many runs have consumers that take time over some entries."""

WORKED_PART: Final = 0.1
"""Over how many."""

WORK_SECONDS: Final = 1.5
"""How long: positions are saved meanwhile."""

ACKNOWLEDGING_PART: Final = 0.25
"""How many runs have consumers that acknowledge explicitly in half of their sessions."""

IN_FLIGHT: Final = 8
"""Entries that such a consumer works at side by side."""

KEYED_PART: Final = 0.5
"""How many runs have queues that keep the order of keys."""

CALL_SECONDS: Final = 5.0

ANSWER_SECONDS: Final = 30.0
"""Within which a request that is open when all faults are over is answered, whatever links need."""

HARM_SECONDS: Final = 2 * MESSAGE_SECONDS_MAX + 5.0
"""For how long what was harmed on the way may show: a link waits for the rest of a message that has
none, and who has asked over it does."""

NOT_THERE: Final = ("address.unknown", "stream.unknown", "stream.removed")
"""What a node says of a stream that is not there."""

WINDOW_BYTES_MAX: Final = CREDIT_BYTES + CHUNK_BYTES + 65_536
"""What may wait for a subscriber: its credit, the chunk that exceeds it, and small messages."""


@dataclass(frozen=True, slots=True)
class Share:
    """The state that all clients of a run share.

    Attributes:
        stream: which all nodes share; empty: each node has its own.
        nodes: those of a run whose nodes keep their streams in one log; else there are none.
    """

    world: World
    history: History
    partitions: int
    seconds: float
    stream: str = ""
    nodes: tuple[str, ...] = ()

    def log_for(self, node: str, client: str) -> str:
        """The stream that a client of a node uses, as the history calls it.

        Where all nodes keep all streams there are fewer of these than nodes, so that clients of
        several nodes use each.
        """
        if not self.nodes:
            return log_of(node)
        return self.streams[int(client[1:]) % len(self.streams)]

    @property
    def streams(self) -> list[str]:
        """Those of a run whose nodes keep them in one log."""
        return [log_of(node) for node in self.nodes[: max(1, len(self.nodes) - 1)]]


def is_keyed(share: Share) -> bool:
    """Whether entries of this run have keys, whose order workers keep."""
    return share.world.network.random("workers keep the order of keys").random() < KEYED_PART


def payload_of(producer: str, number: int, size: int) -> bytes:
    """One entry's bytes: who pushes it, its number, and filling that depends on both."""
    return payloads_of(producer, (number,), size)[0]


def payloads_of(producer: str, numbers: Sequence[int], size: int) -> list[bytes]:
    """The bytes of some entries of one producer."""
    begin, filling = b"%b%b " % (MARKER, producer.encode()), _filling(producer, size)
    found: list[bytes] = []
    for number in numbers:
        head = b"%b%d " % (begin, number)
        at, rest = number % _FILLING_AHEAD, size - len(head)
        found.append(head + filling[at : at + rest] if rest > 0 else head)
    return found


@lru_cache(maxsize=64)
def _filling(producer: str, size: int) -> bytes:
    return shake_128(producer.encode()).digest(size + _FILLING_AHEAD)


class Program(ABC):
    """One client program, on a machine of its own.

    Attributes:
        machine: where it runs.
        node: the node that it talks to.
        done: whether all that it has to push is confirmed.
        stream_name: the node's stream.
        log_name: what the history calls the node's log of it.
        life: the program's name and how often it was started: no two lives push the same.
        random: what is chance in its deeds.
        only_log: whether it uses the node's stream, which is always there, and nothing else.
        roams: whether it may go on at another node that keeps the same streams.
    """

    only_log = False
    roams = True

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        self.share = share
        self.machine = machine
        self.node = node
        self.done = False
        self.name = machine.name
        self.log_name = share.log_for(node, machine.name)
        self.stream_name = share.stream or self.log_name
        self.life = f"{self.name}.0"
        self._lives = 0
        self._places = share.world.network.random(f"nodes of {machine.name}")
        self.random = share.world.network.random(f"deeds of {machine.name}")
        self._task: asyncio.Task[None]
        self._asked: tuple[Session | None, frozenset[int]] = (None, frozenset())
        self._healed_at = inf

    def start(self) -> None:
        """Begin, in the process that runs on the machine now."""
        share = self.share
        if share.nodes:
            if self._lives and self.roams:
                self.node = self._places.choice(share.nodes)
            share.history.nodes[self.name] = self.node
        self._lives += 1
        self.life = f"{self.name}.{self._lives}"
        self._task = self.machine.loop.create_task(self._run())

    def rest(self) -> None:
        """Stay connected, and do nothing more."""
        self.machine.loop.call_soon(self._task.cancel)

    def healed(self) -> None:
        """All faults are over: what is asked now must be answered."""
        session, self._healed_at = self.machine.session, self.share.history.now()
        if session is not None:
            self._asked = session, session.open_requests

    @abstractmethod
    async def live(self, client: Client, stream: Stream) -> None:
        """Do what such a client does; returns when there is nothing left to do."""

    def missing(self, healed_at: float) -> Iterator[str]:
        """What it has not got yet, and must get since all faults were over at `healed_at`."""
        session, asked = self._asked
        if (
            session is not None
            and session is self.machine.session
            and asked & session.open_requests
        ):
            yield "what it has asked is not answered"

    async def _connect(self) -> Client:
        return await self.share.world.client(self.machine, self.node)

    async def _use(self, client: Client) -> None:
        partitions = self.share.partitions
        await self.live(client, await client.stream(self.stream_name, partitions=partitions))

    async def _run(self) -> None:
        history = self.share.history
        while True:
            client: Client | None = None
            try:
                client = await self._connect()
                await self._use(client)
                await client.close()
                return
            except RillnodeError as error:
                history.note(self.name, "failed", error.code)
                self._look_at(error)
            if client is not None:
                with suppress(RillnodeError):  # positions are saved, if they can be
                    await client.close()
            await asyncio.sleep(AGAIN_SECONDS)

    def _look_at(self, error: RillnodeError) -> None:
        """See whether a failure may be."""
        history, told = self.share.history, f"{self.name} is told by {self.node}: {error}"
        if error.code == "store.corrupt":
            history.broken("log-dense", told)
        quiet_at = max(
            self._healed_at + ANSWER_SECONDS, self.share.world.network.harmed_at + HARM_SECONDS
        )
        if error.code == "request.timeout" and history.now() > quiet_at:
            history.broken("no-progress", f"{self.name} is not answered by {self.node}: {error}")
        if self.only_log and error.code in NOT_THERE and self.log_name not in history.lost:
            history.broken("stream-changed", told)


class Follower(Program):
    """Subscribes from the first entry and expects each once, in order, whatever happens.

    Attributes:
        reached: the next index that it expects, by partition.
    """

    slow = False
    only_log = True

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self.reached: dict[int, int] = {}
        self._taken_bytes = 0

    def rest(self) -> None:
        """Follow on: nothing comes."""

    async def live(self, client: Client, stream: Stream) -> None:
        """Follow for ever."""
        self.reached = {}
        self._taken_bytes = 0
        before = self.share.history.bytes_received[self.name]
        async with aclosing(stream.batches()) as batches:
            async for batch in batches:
                self.check_order(batch)
                if self.slow:
                    await asyncio.sleep(SLOW_SECONDS)
                    self._taken_bytes += sum(len(entry.data) for entry in batch)
                    self._check_window(self.share.history.bytes_received[self.name] - before)

    def missing(self, healed_at: float) -> Iterator[str]:
        """Entries that somebody has seen and it has not."""
        yield from super().missing(healed_at)
        for partition in range(self.share.partitions):
            end = self.share.history.confirmed_end((self.log_name, partition))
            reached = self.reached.get(partition, 0)
            if reached < end:
                yield f"{reached} of {end} in partition {partition}"

    def check_order(self, batch: Sequence[Entry]) -> None:
        """Note entries of one partition, which must be the next ones."""
        history, log = self.share.history, (self.log_name, batch[0].partition)
        expected = self.reached.get(log[1], 0)
        for entry in batch:
            if entry.index != expected and self.log_name not in history.lost:
                rule = "subscription-gap" if entry.index > expected else "subscription-duplicate"
                text = f"{self.name} expected {expected} of {log[0]}/{log[1]}, got {entry.index}"
                history.broken(rule, text)
            expected = entry.index + 1
        self.reached[log[1]] = expected
        history.read(self.life, log, batch)

    def _check_window(self, received: int) -> None:
        """A slow subscriber costs its window: no more may be on its way, or wait for it."""
        waiting = received - self._taken_bytes
        # Sealing, framing and what was sent again over another link add a tenth at most.
        if waiting > WINDOW_BYTES_MAX + received // 10:
            self.share.history.broken(
                "window-exceeded", f"{self.name}: {waiting:,} bytes wait for a slow reader"
            )


class SlowReader(Follower):
    """A follower that takes one batch a second."""

    slow = True


class Consumer(Program):
    """Subscribes from its saved position, takes some entries, ends, and comes again."""

    only_log = True

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._saved = 0
        self._processed = 0
        self._due = 0
        chance = share.world.network.random
        self._works = chance("consumers take time").random() < WORKING_PART
        self._work = chance(f"work of {machine.name}")
        self._acknowledges = (
            chance("consumers acknowledge explicitly").random() < ACKNOWLEDGING_PART
        )

    async def live(self, client: Client, stream: Stream) -> None:
        """Consume in short sessions."""
        history, log = self.share.history, (self.log_name, 0)
        self._due = 0
        while True:
            saved = await client.get_index(self.name, self.stream_name) or 0
            history.note(self.name, "saved", str(saved))
            if self.log_name not in history.lost:
                if saved < self._saved:
                    text = f"{self.name} of {log[0]}: {self._saved} was saved, then {saved}"
                    history.broken("saved-index-lost", text)
                if saved < self._due:
                    text = f"{self.name} of {log[0]}: ended at {self._due}, {saved} is saved"
                    history.broken("saved-index-lost", text)
                if saved > self._processed:
                    text = f"{self.name} of {log[0]}: {saved} after {self._processed} entries"
                    history.broken("saved-index-ahead", text)
            self._saved = saved
            wanted = self.random.randrange(1, 40)
            try:
                async with asyncio.timeout(self.random.uniform(1.0, 5.0)):
                    await self._session(stream, saved, wanted)
            except TimeoutError:
                self._due = 0  # it may have been about to save
                history.note(self.name, "session over")

    async def _session(self, stream: Stream, expected: int, wanted: int) -> None:
        if self._acknowledges and self._work.random() < 0.5:
            await self._acknowledge(stream, expected, wanted)
            return
        async with stream.consumer(self.name, partitions=(0,), save_seconds=0.5) as entries:
            async for entry in entries:
                expected = self._saw(entry, expected)
                self._due = entry.index
                if self._works and self._work.random() < WORKED_PART:
                    await asyncio.sleep(WORK_SECONDS)
                self._processed = max(self._processed, expected)
                wanted -= 1
                if wanted < 0:
                    return

    async def _acknowledge(self, stream: Stream, expected: int, wanted: int) -> None:
        """Take entries side by side, and acknowledge them in any order; leave some at the end."""
        in_flight: list[Entry] = []
        async with stream.consumer(
            self.name, partitions=(0,), save_seconds=0.5, ack="explicit", max_in_flight=IN_FLIGHT
        ) as entries:
            while wanted > 0:
                for entry in await entries.batch(IN_FLIGHT, timeout=WORK_SECONDS):
                    expected = self._saw(entry, expected)
                    in_flight.append(entry)
                if len(in_flight) > IN_FLIGHT:
                    text = f"{self.name}: {len(in_flight)} entries in flight"
                    self.share.history.broken("window-exceeded", text)
                for _ in range(self._work.randrange(len(in_flight) + 1)):
                    done = in_flight.pop(self._work.randrange(len(in_flight)))
                    processed = min((one.index for one in in_flight), default=expected)
                    self._processed = max(self._processed, processed)
                    self._due = processed
                    entries.ack(done)
                    wanted -= 1

    def _saw(self, entry: Entry, expected: int) -> int:
        """Note an entry, which must be the expected one; return the index of the next."""
        history, log = self.share.history, (self.log_name, 0)
        if entry.index != expected and self.log_name not in history.lost:
            text = f"{self.name} expected {expected} of {log[0]}/0, got {entry.index}"
            history.broken("consumer-seam", text)
        history.saw(self.name, log, [(entry.index, bytes(entry.data))])
        return entry.index + 1


class Reader(Program):
    """Pulls ranges anywhere: each must be whole, or end at the end of the log."""

    only_log = True

    async def live(self, client: Client, stream: Stream) -> None:
        """Pull now and then."""
        history, random = self.share.history, self.random
        while True:
            await asyncio.sleep(random.uniform(0.2, 1.5))
            log = (self.log_name, random.randrange(self.share.partitions))
            end = history.confirmed_end(log)
            must = history.end_for(self.name, log)
            index, limit = random.randrange(end + 5), random.randrange(1, 50)
            entries = await stream.pull(index, limit, partition=log[1])
            history.note(self.name, "pull", f"{log[1]} {index} {limit} {len(entries)}")
            pulled = [(entry.index, bytes(entry.data)) for entry in entries]
            check_pulled(history, self.name, log, index, limit, must, pulled)


def check_pulled(
    history: History,
    who: str,
    log: Log,
    index: int,
    limit: int,
    end: int,
    pulled: Sequence[tuple[int, bytes]],
) -> None:
    """Check what a pull of `limit` entries from `index` on has brought.

    Args:
        history: of the run.
        who: has pulled.
        log: from where.
        index: first index that was asked for.
        limit: entries that were asked for.
        end: index up to which entries were known to be committed when it was asked.
        pulled: what came.
    """
    if log[0] in history.lost:
        return
    found = [one for one, _ in pulled]
    if found != list(range(index, index + len(found))) or len(found) > limit:
        history.broken("pull-gap", f"{who} pulled {index}+{limit}, got {found}")
    if index + len(found) < min(end, index + limit):
        history.broken("pull-short", f"{who} pulled {index}+{limit} of {end}, got {len(found)}")
    history.saw(who, log, pulled)
