"""More of the load on simulated nodes: workers of queues, which come, are cut off, and leave."""

import asyncio
from typing import Final

from msgspec.structs import replace

from contract_load import NODE, Round
from contract_serving import cut
from rillnode.actors.core.queues.members import GRACE_SECONDS
from rillnode.actors.core.queues.names import queue_address
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, Job, Stream, WorkQueue
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node

QUEUE: Final = "work"
VISIBLE_SECONDS: Final = 3.0
DRAINED_SECONDS: Final = 60.0
"""Virtual time within which all that is there is worked off, whatever has failed."""


class Worked(Round):
    """Works on a queue, with answers of every kind, is cut off, is late, and removes a stream.

    Attributes:
        done: entries whose `done` was confirmed; none of them is given again.
    """

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.done: set[bytes] = set()

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            other = await self.ask("connect", self.network.client(self.second))
            try:
                await self._talk(client, other)
            finally:
                await self.ask("close", other.close(), 30.0)
        finally:
            await self.ask("close", client.close(), 30.0)

    async def _talk(self, client: Client, other: Client) -> None:
        stream = await self.ask("create", client.stream("worked"))
        there = await self.ask("open", other.stream("worked"))
        for part in range(6):
            data = b"job %d %d" % (self.number, part)
            if await self.once("push", stream.push(data)) is not None:
                self.confirmed.append(data)
        one = self._work(stream)
        two = self._work(there)
        try:
            await self.once("work", one.__aenter__())
            await self.once("work there", two.__aenter__())
            await self._answer(one)
            self._revise(self.network.running(NODE))
            cut(client)
            await self._answer(two)
            await self.once("push more", stream.push(b"more %d" % self.number))
            await self._answer(one)
        finally:
            await self.ask("leave", one.stop(), 30.0)
            await self.ask("leave there", two.stop(), 30.0)
        await self._lose(other)
        await self.once("queues", client.queues())
        await self.once("queue", client.queue("worked", QUEUE))
        await self.once("take back", client.take_back("worked", QUEUE))
        await self.once("about", client.about(queue_address("worked", QUEUE).decode()))
        await self._remove(client)

    def _work(self, stream: Stream) -> WorkQueue:
        return stream.work(QUEUE, attempts=2, visibility_seconds=VISIBLE_SECONDS, in_flight=3)

    async def _answer(self, queue: WorkQueue) -> None:
        """Give each kind of answer, as far as there are jobs."""
        for turn in range(4):
            try:
                job = await queue.next(timeout=0.5)
            except (TimeoutError, RillnodeError):
                return
            await self._settle(job, turn)

    async def _settle(self, job: Job, turn: int) -> None:
        assert job.data not in self.done, "what was done is given again"
        try:
            if turn == 0:
                await self.ask("extend", job.extend(VISIBLE_SECONDS))
            if turn == 1:
                await self.ask("retry", job.retry(0.1))
            elif turn == 2:
                await self.ask("reject", job.reject("as a test"))
            else:
                await self.ask("done", job.done())
                self.done.add(job.data)
        except RillnodeError as error:
            if self.strict and error.code != "queue.late":
                raise

    async def _lose(self, other: Client) -> None:
        """A worker that does not come back, and one that never answers."""
        leaving = await self.ask("connect", self.network.client(NODE, reconnect=False))
        lost = self._work(await self.ask("open", leaving.stream("worked")))
        await self.once("work for a while", lost.__aenter__())
        stream = await self.ask("open", other.stream("worked"))
        await self.once("push for it", stream.push(b"lost %d" % self.number))
        await asyncio.sleep(0.5)
        cut(leaving)
        async with self._work(stream) as silent:
            await asyncio.sleep(GRACE_SECONDS + 2 * VISIBLE_SECONDS)
            await self._answer(silent)
        await self.ask("close", leaving.close(), 30.0)

    async def _remove(self, client: Client) -> None:
        """A queue ends with its stream."""
        own = await self.once("create another", client.stream(f"worked-{self.number}"))
        if own is not None:
            queue = self._work(own)
            await self.once("work", queue.__aenter__())
            await self.once("remove", client.remove(own.name))
            await self.either("next", queue.next())
            await self.ask("leave", queue.stop(), 30.0)

    def _revise(self, node: Node) -> None:
        """Take a right of somebody else back: all that goes on by one looks again."""
        grants = node.config.grants
        one = GrantTable(who=f"noise:{self.number:064x}", streams="x", may=("pull",))
        node.reload(replace(node.config, grants=(*grants, one)))
        node.reload(replace(node.config, grants=grants))

    async def check(self) -> None:
        """All that is there is done in the end, or a dead letter; nothing that was done again."""
        async with await self.network.client(NODE) as client:
            stream = await client.stream("worked")
            async with stream.work(QUEUE, attempts=2, visibility_seconds=VISIBLE_SECONDS) as queue:
                async with asyncio.timeout(DRAINED_SECONDS):
                    while (await client.queue("worked", QUEUE)).depth:
                        try:
                            job = await queue.next(timeout=1.0)
                        except TimeoutError:
                            continue
                        assert job.data not in self.done, "what was done is given again"
                        await job.done()
                        self.done.add(job.data)
            dead: set[bytes] = set()
            for info in await client.streams("worked.dead"):
                dead |= {
                    entry.data for entry in await (await client.stream(info.name)).pull(0, 999)
                }
            lost = {*self.confirmed} - self.done - dead
            assert not lost, "what was confirmed is neither done nor a dead letter"


ROUNDS: Final = (Worked,)
