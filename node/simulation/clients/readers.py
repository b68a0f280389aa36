"""Clients that read: they follow a log, consume it from a saved position, or pull ranges of it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Final

from rillnode.actors.core.streams.subscription import CHUNK_BYTES
from rillnode.codecs.entries import Entry
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.client.subscription import CREDIT_BYTES
from rillnode.node.simulated.programs import Program, Share, check_pulled
from rillnode.node.simulated.world import Machine

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

WINDOW_BYTES_MAX: Final = CREDIT_BYTES + CHUNK_BYTES + 65_536
"""What may wait for a subscriber: its credit, the chunk that exceeds it, and small messages."""


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
        self._begins = False
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
            self._saved, self._begins = saved, True
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
        if self._begins and expected < entry.index <= self._processed:
            expected = entry.index  # what the session before was saving when it was given up
        self._begins = False
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
