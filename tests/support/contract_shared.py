"""More of the load on simulated nodes: on two that keep their streams in one log."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from contract_load import CONFIG, NODE, Round
from contract_rooms import GRANTS, PARTS
from rillnode.actors.log.shared.port import unreachable
from rillnode.node.client import Client
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.simulation.shared_disk import SharedDisk
from rillnode.testing import Network

OTHER: Final = "o"
LEAVING: Final = "l"
TELL_SECONDS: Final = 2.0
"""How often nodes tell where they are."""

AWAY_SECONDS: Final = 0.5
MOVED_SECONDS: Final = 4.0
"""Virtual time in which what members of a node have that is gone is others'."""

BACK_SECONDS: Final = 2.0
"""Virtual time in which a node hears again of what others do."""


def add_shared_nodes(network: Network, rounds: Sequence[type[Round]]) -> None:
    """Add the node that all of this is about, and two more of its store."""
    # As nodes of a log are configured, which tell each other where they are.
    store = JetStreamStore(servers=("nats://127.0.0.1:4222",))
    for name in (NODE, OTHER, LEAVING):
        kept = [one for part in PARTS if part.of_shared_logs for one in part.tables(name, rounds)]
        tables = [*kept, ServicesTable()]
        config = replace(CONFIG, name=name, grants=GRANTS, tables=tables, store=store)
        network.add_node(name, config=config)


class Away(Round):
    """Does all that other nodes hear of while the other node's store refuses all."""

    async def talk(self) -> None:
        disk = self.network._world.nodes[OTHER].disk  # pyright: ignore[reportPrivateUsage]
        assert isinstance(disk, SharedDisk)
        store = disk.store
        store._refuse_all(unreachable("as told"))  # pyright: ignore[reportPrivateUsage]
        try:
            async with await self.ask("connect", self.network.client(NODE)) as client:
                await self.once("create", client.stream(f"kept-{self.number}"))
                await self.once("create another", client.stream("removed"))
                await self.once("remove", client.remove("removed"))
            for part in PARTS:
                await part.act_unheard(self)
            await asyncio.sleep(AWAY_SECONDS)
        finally:
            store._refusal = None  # pyright: ignore[reportPrivateUsage]
            store.health_changed()
        await asyncio.sleep(BACK_SECONDS)

    async def check(self) -> None:
        async with await self.network.client(OTHER) as client:
            names = {stream.name for stream in await client.streams()}
            assert f"kept-{self.number}" in names
            assert "removed" not in names


class Leaving(Round):
    """Uses a node until it has told once more where it is; then that is stopped in good order.

    It has members of groups then, one of which nobody knows of who is there.
    """

    lossy = True

    async def talk(self) -> None:
        self.network.restart(LEAVING)
        try:
            async with await self.ask("connect", self.network.client(NODE)) as staying:
                await self._leave(staying)
        finally:
            self.network.kill(LEAVING)

    async def _leave(self, staying: Client) -> None:
        client = await self.ask("connect", self.network.client(LEAVING, reconnect=False))
        stream = await self.ask("create", client.stream("left"))
        entry = b"%d" % self.number
        if await self.once("push", stream.push(entry)) is not None:
            self.confirmed.append(entry)
        same = await self.ask("open", staying.stream("left"))
        async with same.consumer("known", group=True):
            for name in ("known", "unknown"):
                await self.ask("join", stream.consumer(name, group=True).__aenter__())
            await asyncio.sleep(1.5 * TELL_SECONDS)
            world = self.network._world  # pyright: ignore[reportPrivateUsage]
            stopping = self.network.running(LEAVING).stop()
            await self.ask("stop", world.on(world.nodes[LEAVING], stopping))
            await self.either("close", client.close())
            await asyncio.sleep(MOVED_SECONDS)
        async with same.consumer("unknown", group=True) as consumer:
            await asyncio.sleep(MOVED_SECONDS)
            assert not self.strict or consumer.partitions == (0,)

    async def check(self) -> None:
        async with await self.network.client(OTHER) as client:
            found = [bytes(one.data) for one in await (await client.stream("left")).pull(0, 99)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"


ROUNDS: Final = (Away, Leaving)
