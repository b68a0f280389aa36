"""Workers of a queue: each job is answered by one of them, and what was done is not done again."""

import asyncio
from collections.abc import Iterator
from math import inf
from typing import Final

from rillnode.actors.log import DEAD_SUFFIX
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.errors import JobLate
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.client.work import Job, QueueInfo
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.world import Machine
from rillnode.node.simulation.shared_work import Jobs, is_keyed

QUEUE: Final = "workers"
VISIBLE_SECONDS: Final = 4.0
LOOK_SECONDS: Final = 1.0
"""After so long without a job it is looked whether there is anything to do."""

ATTEMPTS: Final = 1_000
"""Nothing is given up but what is rejected."""

REASON: Final = "no page"
LETTERS_MAX: Final = 100_000

SILENT_PART: Final = 0.03
AGAIN_PART: Final = 0.1
REJECTED_PART: Final = 0.05
"""How many jobs are not answered, are given back, and are rejected."""


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
