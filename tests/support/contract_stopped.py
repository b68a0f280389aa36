"""More of the load on simulated nodes: a node that is stopped in good order."""

from contextlib import AsyncExitStack

from contract_load import PEER, STOPPED, Round
from contract_rooms import PARTS
from rillnode.node.runtime import Node


class Stopped(Round):
    """Uses a node that is stopped while everybody is connected, and comes again."""

    lossy = True

    async def talk(self) -> None:
        self.network.restart(STOPPED)
        try:
            async with AsyncExitStack() as stack:
                await self._talk(stack)
        finally:
            self.network.kill(STOPPED)  # also where it could not start

    async def _talk(self, stack: AsyncExitStack) -> None:
        node = self.network.running(STOPPED)
        client = await self.ask("connect", self.network.client(STOPPED))
        stack.push_async_callback(client.close)
        for part in PARTS:
            await part.use(self, STOPPED, stack)
        stream = await self.ask("create", client.stream("events"))
        entry = b"%d" % self.number
        if await self.once("push", stream.push(entry)) is not None:
            self.confirmed.append(entry)
        await self.once("reach", client.ask(f"peer/{PEER};echo", b"x", timeout_seconds=5.0))
        await self.ask("stop", self._stop(node))

    async def _stop(self, node: Node) -> None:
        world = self.network._world  # pyright: ignore[reportPrivateUsage]
        await world.on(world.nodes[STOPPED], node.stop())

    async def check(self) -> None:
        self.network.restart(STOPPED)
        async with await self.network.client(STOPPED) as client:
            found = [bytes(one.data) for one in await (await client.stream("events")).pull(0, 99)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"
        self.network.kill(STOPPED)
