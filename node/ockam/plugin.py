"""Adds to a node what only other people's Ockam needs: hub services, secure channels."""

from collections.abc import Iterable, Mapping
from typing import Any

from rillnode.actors.engine.system import Cell
from rillnode.actors.ockam.catalog import spawn_services
from rillnode.node.ockam.channels import Channels
from rillnode.node.plugin import Core, Host, PlugIn


class Ockam(PlugIn):
    """The plug-in of `[services]` and `[ockam.channel]`.

    Raises:
        ConfigError: the file of the channels' key cannot be used.
    """

    simulated = "rillnode.node.ockam.simulation.part:OckamPart"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._channels = Channels(host.config, host.entropy, host.given.get("ockam"))

    def start(self, core: Core) -> None:
        """Make the services and the listener of channels."""
        spawn_services(core.streams, core.indexes, self.host.config.services.enabled)
        self._channels.start(core.peers)

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
