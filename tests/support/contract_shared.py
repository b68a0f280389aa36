"""More of the load on simulated nodes: on two that keep their streams in one log."""

import asyncio
from typing import Final

import aiohttp
from msgspec.structs import replace

from contract_load import CONFIG, NODE, Round, streamr_url
from rillnode.actors.log.shared.port import unreachable
from rillnode.node.config import StoreTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.simulation.shared_disk import SharedDisk
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.rest import Rest
from rillnode.node.streamr.config import StreamrListener
from rillnode.testing import Network
from streamr_keys_support import PUBLISHER

OTHER: Final = "o"
LEAVING: Final = "l"
TELL_SECONDS: Final = 2.0
"""How often nodes tell where they are."""

AWAY_SECONDS: Final = 0.5
BACK_SECONDS: Final = 2.0
"""Virtual time in which a node hears again of what others do."""


def add_shared_nodes(network: Network) -> None:
    """Add the node that all of this is about, and another one of its store."""
    kept = [one for one in CONFIG.tables if isinstance(one, StreamrListener | NextgraphListener)]
    # As nodes of a log are configured, which tell each other where they are.
    store = StoreTable(engine="jetstream", servers=("nats://127.0.0.1:4222",))
    config = replace(CONFIG, tables=[*kept, ServicesTable()], store=store)
    for name in (NODE, OTHER, LEAVING):
        network.add_node(name, config=replace(config, name=name))


class Away(Round):
    """Makes and removes streams, and logs out, while the other node's store refuses all."""

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
            async with aiohttp.ClientSession() as http:
                url = endpoints_of(streamr_url(NODE)).rest
                login = Login(http, url, key=PUBLISHER)
                await self.once("log out", Rest(http, url, login.token).post("/logout", {}))
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
    """Uses a node until it has told once more where it is; then that is stopped in good order."""

    lossy = True

    async def talk(self) -> None:
        self.network.restart(LEAVING)
        try:
            async with await self.ask("connect", self.network.client(LEAVING)) as client:
                stream = await self.ask("create", client.stream("left"))
                entry = b"%d" % self.number
                if await self.once("push", stream.push(entry)) is not None:
                    self.confirmed.append(entry)
                await asyncio.sleep(1.5 * TELL_SECONDS)
            world = self.network._world  # pyright: ignore[reportPrivateUsage]
            stopping = self.network.running(LEAVING).stop()
            await self.ask("stop", world.on(world.nodes[LEAVING], stopping))
        finally:
            self.network.kill(LEAVING)

    async def check(self) -> None:
        async with await self.network.client(OTHER) as client:
            found = [bytes(one.data) for one in await (await client.stream("left")).pull(0, 99)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"


ROUNDS: Final = (Away, Leaving)
