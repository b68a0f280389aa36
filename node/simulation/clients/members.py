"""Members of a group: they share a stream, and what one has saved comes to no other."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError
from rillnode.node.client.client import Client
from rillnode.node.client.consumer import Consumer
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import Log
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.world import Machine

GROUP: Final = "members"
BATCH: Final = 4
WAIT_SECONDS: Final = 0.5
SAVE_SECONDS: Final = 0.7
SAVING_PART: Final = 0.3
"""After how many batches positions are saved, beside the times when they are anyway."""

SESSION_SECONDS: Final = 12.0
"""How long a member is one, at most; then it leaves, and comes again."""


@dataclass
class Group:
    """The groups: one of each stream.

    Attributes:
        given: which entries a member had.
        saved: what was confirmed as saved.
        holders: who has a partition, as it was told last, and since when.
        begun: the first entry that it has got of it.
    """

    given: dict[Log, set[int]] = field(default_factory=dict[Log, set[int]])
    saved: Counter[Log] = field(default_factory=Counter[Log])
    holders: dict[Log, tuple[str, float]] = field(default_factory=dict[Log, tuple[str, float]])
    begun: dict[Log, int] = field(default_factory=dict[Log, int])

    def assign(self, log: Log, who: str, now: float) -> None:
        """A member is told that it has a partition."""
        self.holders[log] = who, now
        self.begun.pop(log, None)

    def give(self, log: Log, index: int, who: str) -> None:
        """A member gets an entry."""
        self.given.setdefault(log, set()).add(index)
        if self.holders[log][0] == who:
            self.begun.setdefault(log, index)

    def is_late(self, log: Log, index: int, who: str, begun_at: float) -> bool:
        """Whether a position that was saved goes over what another member has begun with by then.

        What was saved already may be saved again by anybody: it changes nothing.
        """
        holder, since = self.holders[log]
        return holder != who and since < begun_at and self.begun.get(log, index) < index

    def missing(self, log: Log, end: int) -> list[int]:
        """Entries before an index that no member had."""
        return sorted(set(range(end)) - self.given.get(log, set()))


class Member(Program):
    """Consumes what the group gives it of its node's stream, and acknowledges it a little later."""

    only_log = True

    def __init__(self, share: Share, machine: Machine, node: str, group: Group) -> None:
        super().__init__(share, machine, node)
        self._group = group
        self._rests = False

    def rest(self) -> None:
        """Stay a member once this session is over: nothing comes."""
        self._rests = True

    async def live(self, client: Client, stream: Stream) -> None:
        """Be a member, leave, and be one again, for ever."""
        while True:
            await self._look_at_positions(client)
            seconds = None if self._rests else self.random.uniform(1.0, SESSION_SECONDS)
            try:
                async with asyncio.timeout(seconds):
                    await self._consume(stream)
            except TimeoutError:
                self.share.history.note(self.name, "session over")

    def missing(self, healed_at: float) -> Iterator[str]:
        """Entries that have come to no member."""
        yield from super().missing(healed_at)
        history = self.share.history
        if self.log_name in history.lost:
            return
        for partition in range(self.share.partitions):
            log = self.log_name, partition
            missing = self._group.missing(log, history.confirmed_end(log))
            if missing:
                yield f"{len(missing)} entries of partition {partition} came to no member"

    async def _look_at_positions(self, client: Client) -> None:
        """Load what is saved: it is never behind what was, nor past what came to anybody."""
        history = self.share.history
        for partition in range(self.share.partitions):
            log = self.log_name, partition
            before = self._group.saved[log]
            saved = await client.get_index(GROUP, self.stream_name, partition=partition) or 0
            history.note(self.name, "the group's", f"{partition} {saved}")
            if self.log_name in history.lost:
                continue
            if saved < before and not history.shared:
                text = f"{GROUP} of {log[0]}/{partition}: {before} was saved, then {saved}"
                history.broken("saved-index-lost", text)
            if missing := self._group.missing(log, saved):
                text = f"{GROUP} of {log[0]}/{partition} is at {saved}, and nobody got {missing}"
                history.broken("member-skipped", text)

    async def _consume(self, stream: Stream) -> None:
        history, behind = self.share.history, dict[Log, int]()

        def got(partitions: Sequence[int]) -> None:
            for partition in partitions:
                self._group.assign((self.log_name, partition), self.life, history.now())

        def lost(partitions: Sequence[int]) -> None:
            for partition in partitions:
                behind.pop((self.log_name, partition), None)

        consumer = stream.consumer(
            GROUP,
            group=True,
            ack="explicit",
            save_seconds=SAVE_SECONDS,
            on_assigned=got,
            on_revoked=lost,
        )
        async with consumer:
            while True:
                entries = await consumer.batch(BATCH, timeout=WAIT_SECONDS)
                for entry in entries:
                    self._see(entry)
                await asyncio.sleep(self.random.uniform(0.0, 0.05))
                for entry in entries:
                    if entry.partition in consumer.partitions:
                        consumer.ack(entry)
                        behind[self.log_name, entry.partition] = entry.index + 1
                if self.random.random() < SAVING_PART:
                    await self._save(consumer, behind)

    def _see(self, entry: Entry) -> None:
        """Note an entry, which nobody has saved to be processed."""
        history, log = self.share.history, (self.log_name, entry.partition)
        saved = self._group.saved[log]
        if entry.index < saved and self.log_name not in history.lost:
            text = f"{self.name} gets {log[0]}/{log[1]} {entry.index}, and {saved} was saved"
            history.broken("member-again", text)
        history.saw(self.name, log, [(entry.index, bytes(entry.data))])
        self._group.give(log, entry.index, self.life)

    async def _save(self, consumer: Consumer[Entry], behind: dict[Log, int]) -> None:
        """Save, and note what is durable by then; who has lost a partition saves nothing of it."""
        history, begun_at, before = self.share.history, self.share.history.now(), dict(behind)
        try:
            await consumer.save()
        except RequestError as error:
            history.note(self.name, "not saved", error.code)
            return
        for log, index in before.items():
            if behind.get(log) != index or self.log_name in history.lost:
                continue  # it is another's by now, and this member knows
            if index > self._group.saved[log] and self._group.is_late(
                log, index, self.life, begun_at
            ):
                text = f"{self.life} saves {index} of {log[0]}/{log[1]}, which another has"
                history.broken("late-save", text)
            self._group.saved[log] = max(index, self._group.saved[log])
