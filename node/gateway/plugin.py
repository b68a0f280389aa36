"""The plug-in of `[gateway]`: binds the HTTP door, and tells it of what changes."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from rillnode.node.config import Config
from rillnode.node.config.listener_tables import ApiKeyTable
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.gateway.door import Door
from rillnode.node.gateway.keys import Keys
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.node.tls import tls_context
from rillnode.transports.web_server import listen_web


class Gateway(PlugIn):
    """The parts of a node that its `[gateway]` table asks for."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._table = host.table(GatewayListener)
        self._door: Door | None = None

    def start(self, core: Core) -> None:
        """Make the door; nobody can come in yet."""
        names, secret = ApiKeyTable.names(self._table.apikeys), self.host.identity.seed_hex
        self._keys = Keys(
            names, bytes.fromhex(secret), self._table.ticket_seconds,
            core.streams.access, core.streams.clock, self.host.entropy,
        )  # fmt: skip
        self._door = Door(core, self._table, self._keys)

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener; raises ConfigError or TransportError, as `PlugIn.serve` says."""
        assert self._door is not None
        app, tls = self._door.api.app(), tls_context(self._table, "gateway")
        bound["gateway"] = await listen_web(app, *self._table.address, tls=tls)

    def changed(self, change: object) -> None:
        """Have tails look again: a stream's grants or partitions may be others."""
        asyncio.get_running_loop().call_soon(self._look, change)

    def reload(self, old: Config, new: Config) -> Config:
        """Take over the API keys; grants are others after this, and tails look at both."""
        asyncio.get_running_loop().call_soon(self._look, None)
        table, asked = old.table(GatewayListener), new.table(GatewayListener)
        if table is None or asked is None:
            return old
        self._keys.names = ApiKeyTable.names(asked.apikeys)
        return old.having(msgspec.structs.replace(table, apikeys=asked.apikeys))

    def _look(self, change: object) -> None:
        if self._door is not None:
            for tail in self._door.tails.values():
                tail.changed(change)

    async def finish(self, seconds: float) -> None:
        """Answer what is under way, and end the tails."""
        if self._door is not None:
            await self._door.close(seconds)

    def status(self) -> dict[str, Any]:
        """How many tails are open, and what was refused."""
        tails = 0 if self._door is None else len(self._door.tails)
        return {"gateway": {"tails": tails, "counters": dict(self.counters()["gateway"])}}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was refused."""
        return {"gateway": {} if self._door is None else self._door.api.refusals}
