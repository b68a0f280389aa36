"""Workers of a queue: each job is answered by one of them, and what was done is not done again."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from rillnode.actors.log import DEAD_SUFFIX
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.errors import JobLate
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.client.work import Job, QueueInfo
from rillnode.node.simulated.history import Log
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.world import Machine

KEYED_PART: Final = 0.5
"""How many runs have queues that keep the order of keys."""

QUEUE: Final = "workers"
VISIBLE_SECONDS: Final = 4.0
LOOK_SECONDS: Final = 1.0
"""After this long without a job it is looked whether there is anything to do."""

ATTEMPTS: Final = 1_000
"""Nothing is given up but what is rejected."""

REASON: Final = "no page"
LETTERS_MAX: Final = 100_000

SILENT_PART: Final = 0.03
AGAIN_PART: Final = 0.1
REJECTED_PART: Final = 0.05
"""How many jobs are not answered, are given back, and are rejected."""


def is_keyed(share: Share) -> bool:
    """Whether entries of this run have keys, whose order workers keep."""
    return share.world.network.random("workers keep the order of keys").random() < KEYED_PART


@dataclass
class Jobs:
    """The queues: one of each stream.

    Attributes:
        given: which entries a worker had at all.
        rejecting: which of them somebody has tried to reject.
    """

    given: dict[Log, set[int]] = field(default_factory=dict[Log, set[int]])
    rejecting: dict[Log, set[int]] = field(default_factory=dict[Log, set[int]])

    def __post_init__(self) -> None:
        self._settled: dict[Log, dict[int, tuple[str, str]]] = {}
        self._got: dict[tuple[Log, bytes], list[tuple[float, int]]] = {}

    def give(self, log: Log, index: int, key: bytes | None, now: float) -> None:
        """A worker has an entry."""
        self.given.setdefault(log, set()).add(index)
        if key is not None:
            self._got.setdefault((log, key), []).append((now, index))

    def settle(
        self, who: str, word: str, log: Log, index: int, key: bytes | None, said_at: float
    ) -> Iterator[tuple[str, str]]:
        """A worker's last word on an entry was confirmed; what is wrong with that: rule and text.

        Args:
            who: the worker.
            word: what it said.
            log: the entry's.
            index: its place there.
            key: its key, where the order of keys is kept.
            said_at: when it said so: it had the entry then.
        """
        settled = self._settled.setdefault(log, {})
        before = settled.get(index)
        if before is not None:
            yield "job-again", f"{' '.join(before)}, then {who} {word}: {log[0]}/{log[1]} {index}"
        settled[index] = who, word
        if key is not None:
            for at, later in self._got[log, key]:
                if later > index and at < said_at:
                    text = f"{later} was given at {at:.3f}, when {index} was not settled"
                    yield "key-order", f"{log[0]}/{log[1]}: {text}"

    def compare(
        self, ends: Mapping[Log, int], letters: Sequence[DeadLetter], reason: str
    ) -> Iterator[tuple[str, str]]:
        """Nothing is open: see what has become of all entries; rules and texts.

        Args:
            ends: of the logs of one stream.
            letters: all that became of what was rejected.
            reason: that they must have.
        """
        dead = Counter((one.partition, one.index) for one in letters)
        if any(count > 1 for count in dead.values()):
            yield "dead-letter", f"some are there twice: {dead.most_common(3)}"
        if wrong := [one for one in letters if one.reason != reason]:
            yield "dead-letter", f"nobody has said so: {wrong[0]}"
        for log, end in ends.items():
            if missing := set(range(end)) - self.given.get(log, set()):
                yield "job-lost", f"nobody was given {sorted(missing)} of {log[0]}/{log[1]}"
            words = {index: word for index, (_, word) in self._settled.get(log, {}).items()}
            rejected = {index for index, word in words.items() if word == "rejected"}
            here = {index for partition, index in dead if partition == log[1]}
            # What was pushed after the ends were told may be rejected by now, and a letter or not.
            if lost := {index for index in rejected - here if index < end}:
                yield "dead-letter", f"{sorted(lost)} of {log[0]}/{log[1]} were rejected, and lack"
            done = words.keys() - rejected
            if wrong_ones := here & done | here - self.rejecting.get(log, set()):
                text = f"{sorted(wrong_ones)} of {log[0]}/{log[1]} were not rejected"
                yield "dead-letter", text


class Worker(Program):
    """Works on the queue of its node's stream: says `done`, `retry`, `reject`, or nothing at all.

    When nothing is left it compares what has become of all entries with what workers were told.
    """

    only_log = True

    def __init__(self, share: Share, machine: Machine, node: str, jobs: Jobs) -> None:
        super().__init__(share, machine, node)
        self._jobs = jobs
        self._empty_at = -inf
        self._left = 0

    def rest(self) -> None:
        """Work on: nothing comes."""

    async def live(self, client: Client, stream: Stream) -> None:
        """Work for ever."""
        in_flight = self.random.randrange(1, 8)
        async with stream.work(
            QUEUE,
            attempts=ATTEMPTS,
            visibility_seconds=VISIBLE_SECONDS,
            in_flight=in_flight,
            by_key=is_keyed(self.share),
        ) as queue:
            while True:
                try:
                    job = await queue.next(timeout=LOOK_SECONDS)
                except TimeoutError:
                    await self._look(client, stream)
                    continue
                history, log = self.share.history, (self.log_name, job.partition)
                history.saw(self.name, log, [(job.index, job.data)])
                key = job.key if is_keyed(self.share) else None
                self._jobs.give(log, job.index, key, history.now())
                await self._answer(job)

    def missing(self, healed_at: float) -> Iterator[str]:
        """Entries of the queue that nobody has done since all faults were over."""
        yield from super().missing(healed_at)
        if self._empty_at < healed_at and self.log_name not in self.share.history.lost:
            yield f"{self._left} entries of the queue are not done"

    async def _answer(self, job: Job) -> None:
        chance, history = self.random.random(), self.share.history
        log = self.log_name, job.partition
        await asyncio.sleep(0.01)
        said_at = history.now()
        try:
            if chance < SILENT_PART:
                return
            if chance < SILENT_PART + AGAIN_PART:
                await job.retry(0.1)
                return
            if chance < SILENT_PART + AGAIN_PART + REJECTED_PART:
                self._jobs.rejecting.setdefault(log, set()).add(job.index)
                await job.reject(REASON)
                word = "rejected"
            else:
                await job.done()
                word = "done"
        except JobLate:
            history.note(self.name, "late", f"{job.partition} {job.index}")
            return
        history.note(self.name, word, f"{job.partition} {job.index}")
        if self.log_name in history.lost:
            return
        key = job.key if is_keyed(self.share) else None
        for broken in self._jobs.settle(self.name, word, log, job.index, key, said_at):
            history.broken(*broken)

    async def _look(self, client: Client, stream: Stream) -> None:
        """See whether anything is left; if nothing is, what has become of all entries."""
        info = await client.queue(stream.name, QUEUE)
        self._left = info.depth
        if info.depth:
            return
        history = self.share.history
        if self._healed_at < history.now() and self.log_name not in history.lost:
            await self._compare(client, info)
        self._empty_at = history.now()

    async def _compare(self, client: Client, info: QueueInfo) -> None:
        history = self.share.history
        ends = {(self.log_name, part.partition): part.next for part in info.partitions}
        if info.done + info.dead != sum(ends.values()):
            text = f"{info.done} done, {info.dead} dead of {sum(ends.values())} entries"
            history.broken("job-lost", f"{text} of {self.log_name}")
        letters = list[DeadLetter]()
        if info.dead:
            dead = await client.stream(f"{info.stream}{DEAD_SUFFIX}")
            letters = [DeadLetter.of(entry) for entry in await dead.pull(0, LETTERS_MAX)]
        for broken in self._jobs.compare(ends, letters, REASON):
            history.broken(*broken)
