"""The brokers of a node: what other software's clients take it for, each with its own listener.

None is imported that the configuration does not ask for: neither its codecs nor their libraries.
"""

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from rillnode.actors.core.streams.context import PushedKeys, StreamContext, StreamRemoved, no_keys
from rillnode.actors.core.streams.records import Changed
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StoreHealth, StreamRecord
from rillnode.actors.ports import Entropy
from rillnode.codecs.keys import Identity
from rillnode.node.config import ApiKeyTable, Config
from rillnode.node.telemetry.telemetry import Telemetry
from rillnode.transports.clock import Clock
from rillnode.transports.tcp import TcpListener
from rillnode.transports.web_server import WebServer

Listening = TcpListener | WebServer
"""A bound listener."""

if TYPE_CHECKING:
    from rillnode.node.nextgraph.broker import Nextgraph
    from rillnode.node.streamr.broker import Streamr


class Brokers:
    """Those that are configured and enabled.

    Raises:
        ConfigError: a key file cannot be used.
    """

    _streamr: "Streamr | None" = None
    _nextgraph: "Nextgraph | None" = None

    def __init__(self, config: Config, identity: Identity, entropy: Entropy) -> None:
        if config.streamr is not None and config.streamr.enabled:
            from rillnode.node.streamr.broker import Streamr

            self._streamr = Streamr(config, config.streamr, identity, entropy)
        if config.nextgraph is not None and config.nextgraph.enabled:
            from rillnode.node.nextgraph.broker import Nextgraph

            self._nextgraph = Nextgraph(config, config.nextgraph, entropy)

    @property
    def ethereum_address(self) -> str | None:
        """The address that signs for Streamr's clients what others push; None without them."""
        return None if self._streamr is None else self._streamr.ethereum_address

    @property
    def nextgraph_peer_id(self) -> str | None:
        """The Ed25519 key of the NextGraph broker, hex; None without one."""
        return None if self._nextgraph is None else self._nextgraph.peer_id

    @property
    def pushed_keys(self) -> PushedKeys:
        """The secondary keys by which they find what other clients push."""
        return no_keys if self._streamr is None else self._streamr.pushed_keys

    @property
    def open(self) -> Sequence[Cell]:
        """The actors of their links."""
        return [cell for broker in self._all() for cell in broker.open]

    def start(
        self,
        streams: StreamContext,
        service: Cell,
        rules: StreamRules,
        changed: Changed,
        telemetry: Telemetry,
    ) -> None:
        """Make their actors; `changed` is to be told of streams that they make."""
        if self._streamr is not None:
            self._streamr.start(streams, service, telemetry.relay_actor)
        if self._nextgraph is not None:
            self._nextgraph.start(streams, rules, changed, telemetry.topic_actor)

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Take over that a stream's record is another, or that it is no more."""
        for broker in self._all():
            broker.changed(change)

    def on_health(self, health: StoreHealth) -> None:
        """Take over how the store is; called from any thread."""
        if self._nextgraph is not None:
            self._nextgraph.on_health(health)

    def set_api_keys(self, tables: Sequence[ApiKeyTable]) -> None:
        """Let Streamr's clients log in with these keys, and with no other."""
        if self._streamr is not None:
            self._streamr.set_api_keys(tables)

    async def listen(self, clock: Clock, bound: MutableMapping[str, Listening]) -> None:
        """Bind their listeners; each is in `bound` as soon as it is, so that it can be closed.

        Raises:
            RillnodeError: as their own `listen`.
        """
        if self._streamr is not None:
            bound["streamr"] = await self._streamr.listen(clock)
        if self._nextgraph is not None:
            bound["nextgraph"] = await self._nextgraph.listen(clock)

    def status(self) -> dict[str, Any]:
        """What there is to see of each."""
        return {
            "streamr": None if self._streamr is None else self._streamr.status(),
            "nextgraph": None if self._nextgraph is None else self._nextgraph.status(),
        }

    def _all(self) -> "list[Streamr | Nextgraph]":
        return [broker for broker in (self._streamr, self._nextgraph) if broker is not None]
