"""Adds what only other people's Ockam needs: a listener, hub services, secure channels."""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from rillnode.actors.core.links.connection import ConnectionEvents, PeerContext
from rillnode.actors.engine.system import Cell
from rillnode.actors.ockam.catalog import spawn_services
from rillnode.codecs.routing.dialects import EitherDialect
from rillnode.node.ockam.channels import Channels
from rillnode.node.ockam.config import OckamListener, ServicesTable
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.transports.clock import Clock
from rillnode.transports.links import OCKAM_LIMITS
from rillnode.transports.tcp import TcpListener, listen


class Ockam(PlugIn):
    """The plug-in of `[ockam]` and `[services]`; either brings the services.

    Raises:
        ConfigError: the file of the channels' key cannot be used.
    """

    simulated = "rillnode.node.ockam.simulation.part:OckamPart"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._channels = Channels(host.config, host.entropy, host.given.get("ockam"))

    def start(self, core: Core) -> None:
        """Make the services and the listener of channels."""
        services = self.host.config.table(ServicesTable) or ServicesTable()
        spawn_services(core.streams, core.indexes, services.enabled)
        self._channels.start(core.peers)
        self._core = core

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener.

        Raises:
            TransportError: the address cannot be bound.
        """
        table, core = self.host.config.table(OckamListener), self._core
        if table is not None and table.enabled:
            bound["ockam"] = await listen_ockam(table, core.peers, core.streams.clock)

    @property
    def holders(self) -> Iterable[Cell]:
        """The channels that there are."""
        return self._channels.open

    def status(self) -> dict[str, Any]:
        """The secure channels."""
        return {"channels": self._channels.status()}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What became of channels that are not open."""
        status = self._channels.status()
        return {} if status is None else {"ockam_channel": status["counters"]}


async def listen_ockam(table: OckamListener, peers: PeerContext, clock: Clock) -> TcpListener:
    """Bind the listener for Ockam's peers.

    Raises:
        TransportError: the address cannot be bound.
    """
    return await listen(
        *table.address,
        codec_factory=EitherDialect,
        events_factory=lambda: ConnectionEvents(peers, prefix=b"TCP_H_", strict=table.strict),
        transport_name="ockam",
        clock=clock,
        limits=replace(
            OCKAM_LIMITS,
            idle_close_seconds=table.idle_close_seconds or None,
            connections_max=table.connections_max,
            connections_per_address_max=table.connections_per_address_max,
        ),
    )
