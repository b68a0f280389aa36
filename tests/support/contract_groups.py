"""More of the load on simulated nodes: members of groups of consumers, followers of patterns."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from contract_load import NODE, Round
from contract_serving import cut, revise
from rillnode import Consumer, Entry
from rillnode.node.client import Client

PARTITIONS: Final = 2
FOLLOWING_SECONDS: Final = 2.0
"""Virtual time in which what a pattern stands for is followed."""
MOVED_SECONDS: Final = 4.0
"""Virtual time in which what a lost member had is another one's."""


class Grouped(Round):
    """Shares a stream among members, one of which is cut off and does not come back."""

    async def talk(self) -> None:
        async with AsyncExitStack() as stack:
            client, other, leaving = [
                await self.ask("connect", self.network.client(node, reconnect=reconnect))
                for node, reconnect in ((NODE, True), (self.second, True), (NODE, False))
            ]
            for one in (client, other, leaving):
                stack.push_async_callback(self._close, one)
            await self._share(client, other, leaving)
            await self._remove(client)

    async def _close(self, client: Client) -> None:
        await self.ask("close", client.close(), 60.0)

    async def _share(self, client: Client, other: Client, leaving: Client) -> None:
        stream = await self.ask("create", client.stream("grouped", partitions=PARTITIONS))
        same = await self.ask("open", other.stream("grouped"))
        gone = await self.ask("open", leaving.stream("grouped"))
        async with (
            stream.consumer("worker", group=True) as one,
            same.consumer("worker", group=True) as two,
        ):
            await self.once("join and leave", self._pass_by(gone.consumer("worker", group=True)))
            cut(leaving)
            revise(self.network.running(NODE), self.number)
            await self.either("tell its record", client.describe("grouped"))
            cut(client)
            await asyncio.sleep(MOVED_SECONDS)
            found = [asyncio.ensure_future(self._take(consumer)) for consumer in (one, two)]
            for partition in range(PARTITIONS):
                await self.once("push", stream.push(b"%d" % self.number, partition=partition))
            taken = [entry for batch in await asyncio.gather(*found) for entry in batch]
            if self.strict:
                assert {entry.partition for entry in taken} == {*range(PARTITIONS)}
                await self.ask("list", client.groups("grouped"))

    async def _pass_by(self, consumer: Consumer[Entry]) -> None:
        await consumer.__aenter__()

    async def _take(self, consumer: Consumer[Entry]) -> list[Entry]:
        """Take what comes in a while, and save it."""
        taken = await consumer.batch(100, timeout=MOVED_SECONDS)
        await consumer.batch(1, timeout=0.1)
        await self.once("save", consumer.save())
        return taken

    async def _remove(self, client: Client) -> None:
        """Remove a stream that has a member."""
        name = f"grouped-{self.number}"
        stream = await self.ask("create another", client.stream(name))
        async with stream.consumer("worker", group=True):
            await self.once("remove", client.remove(name))

    async def check(self) -> None:
        async with await self.ask("connect", self.network.client(NODE)) as client:
            for partition in range(PARTITIONS):
                index = await client.get_index("worker", "grouped", partition=partition)
                if partition == 0 and index is not None:
                    self.saved(index)


class Patterned(Round):
    """Follows streams of a pattern: one is made meanwhile, rights change, and one is removed."""

    async def talk(self) -> None:
        async with (
            await self.ask("connect", self.network.client(NODE)) as client,
            await self.ask("connect", self.network.client(self.second)) as other,
        ):
            name = f"patterned-{self.number}-{len(self.confirmed)}"
            await self.ask("create", client.stream(f"{name}.a"))
            async with other.follow(f"{name}.*", start="start") as following:
                coming = asyncio.ensure_future(anext(following))
                await asyncio.sleep(FOLLOWING_SECONDS)
                made = await self.once("create another", client.stream(f"{name}.b"))
                if made is not None:
                    await self.once("push", made.push(b"x"))
                if self.strict:
                    assert (await self.ask("follow", coming)).stream == f"{name}.b"
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                revise(self.network.running(self.second), self.number)
                await self.once("remove", client.remove(f"{name}.a"))
                await asyncio.sleep(FOLLOWING_SECONDS)
            await asyncio.sleep(FOLLOWING_SECONDS)
            self.confirmed.append(name)

    async def check(self) -> None:
        pass  # nothing is kept of it


ROUNDS: Final = (Grouped, Patterned)
