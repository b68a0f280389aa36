"""More of the load on simulated nodes: on two that keep their streams in one log."""

import asyncio
from typing import Final

import aiohttp
from msgspec.structs import replace

from contract_load import CONFIG, NODE, Round, streamr_url
from rillnode.actors.log.shared.port import unreachable
from rillnode.node.simulation.shared_disk import SharedDisk
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.rest import Rest
from rillnode.testing import Network
from streamr_keys_support import PUBLISHER

OTHER: Final = "o"
AWAY_SECONDS: Final = 0.5
BACK_SECONDS: Final = 2.0
"""Virtual time in which a node hears again of what others do."""


def add_shared_nodes(network: Network) -> None:
    """Add the node that all of this is about, and another one of its store."""
    config = replace(CONFIG, overlay=None, streamr_network=None, ockam=None)
    for name in (NODE, OTHER):
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


ROUNDS: Final = (Away,)
