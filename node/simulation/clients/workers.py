"""Workers of a queue: each job is answered by one of them, and what was done is not done again."""

import asyncio
from collections.abc import Iterator
from math import inf
from typing import Final

from rillnode.codecs.errors import JobLate
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.client.work import Job
from rillnode.node.simulation.clients.programs import Program, Share
from rillnode.node.simulation.world import Machine

QUEUE: Final = "workers"
VISIBLE_SECONDS: Final = 4.0
LOOK_SECONDS: Final = 1.0
"""After so long without a job it is looked whether there is anything to do."""

ATTEMPTS: Final = 1_000
"""Nothing is given up: a stream of dead letters would be another log."""

SILENT_PART: Final = 0.03
AGAIN_PART: Final = 0.1
"""How many jobs are not answered, and are given back."""


class Worker(Program):
    """Works on the queue of its node's stream: says `done`, `retry`, or nothing at all."""

    only_log = True

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._empty_at = -inf
        self._left = 0

    def rest(self) -> None:
        """Work on: nothing comes."""

    async def live(self, client: Client, stream: Stream) -> None:
        """Work for ever."""
        in_flight = self.random.randrange(1, 8)
        async with stream.work(
            QUEUE, attempts=ATTEMPTS, visibility_seconds=VISIBLE_SECONDS, in_flight=in_flight
        ) as queue:
            while True:
                try:
                    job = await queue.next(timeout=LOOK_SECONDS)
                except TimeoutError:
                    self._left = (await client.queue(stream.name, QUEUE)).depth
                    if not self._left:
                        self._empty_at = self.share.history.now()
                    continue
                history, log = self.share.history, (self.log_name, job.partition)
                history.saw(self.name, log, [(job.index, job.data)])
                await self._answer(job)

    def missing(self, healed_at: float) -> Iterator[str]:
        """Entries of the queue that nobody has done since all faults were over."""
        yield from super().missing(healed_at)
        if self._empty_at < healed_at and self.log_name not in self.share.history.lost:
            yield f"{self._left} entries of the queue are not done"

    async def _answer(self, job: Job) -> None:
        chance = self.random.random()
        await asyncio.sleep(0.01)
        try:
            if chance < SILENT_PART:
                return
            if chance < SILENT_PART + AGAIN_PART:
                await job.retry(0.1)
            else:
                await job.done()
                self._done(job)
        except JobLate:
            self.share.history.note(self.name, "late", f"{job.partition} {job.index}")

    def _done(self, job: Job) -> None:
        """Note a job as done, which nobody has done before."""
        history, place = self.share.history, (self.log_name, job.partition, job.index)
        history.note(self.name, "done", f"{job.partition} {job.index}")
        before = history.jobs_done.get(place)
        if before is not None and self.log_name not in history.lost:
            text = f"{before}, then {self.name}: {self.log_name}/{job.partition} {job.index}"
            history.broken("job-again", text)
        history.jobs_done[place] = self.name
