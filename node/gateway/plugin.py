"""The plug-in of `[gateway]`: binds the HTTP door, and tells it of what changes."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from rillnode.node.config import Config
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.gateway.door import Door
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.node.tls import tls_context
from rillnode.transports.web_server import listen_web


class Gateway(PlugIn):
    """The parts of a node that its `[gateway]` table asks for."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._door = Door(host)

    def start(self, core: Core) -> None:
        """Give the door what it opens to; nobody can come in yet."""
        self._door.start(core)

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener; raises ConfigError or TransportError, as `PlugIn.serve` says."""
        table, app = self._door.table, self._door.api.app()
        tls = tls_context(table, "gateway")
        bound["gateway"] = await listen_web(app, *table.address, tls=tls)

    def changed(self, change: object) -> None:
        """Have tails look again: a stream's grants or partitions may be others."""
        asyncio.get_running_loop().call_soon(self._door.look, change)

    def reload(self, old: Config, new: Config) -> Config:
        """Take over the API keys; grants are others after this, and tails look at both."""
        asyncio.get_running_loop().call_soon(self._door.look, None)
        table, asked = old.table(GatewayListener), new.table(GatewayListener)
        if table is None or asked is None:
            return old
        self._door.keys.names = ApiKeyTable.names(asked.apikeys)
        return old.having(msgspec.structs.replace(table, apikeys=asked.apikeys))

    async def finish(self, seconds: float) -> None:
        """Answer what is under way, and end the tails."""
        await self._door.close(seconds)

    def status(self) -> dict[str, Any]:
        """How many tails are open, and what was refused."""
        counters = dict(self._door.api.refusals)
        return {"gateway": {"tails": len(self._door.tails), "counters": counters}}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was refused."""
        return {"gateway": self._door.api.refusals}
