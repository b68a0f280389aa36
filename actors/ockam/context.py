"""Shares the node's parts, refusals and limits among the services of a hub."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.router import Router
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.ports import Entropy
from rillnode.codecs.events import event_logger
from rillnode.codecs.ockam.limits import ALIASES_PER_LINK_MAX, ALIASES_PER_PRINCIPAL_MAX
from rillnode.codecs.routing.routes import WireMessage

logger = event_logger("rillnode.actors.ockam.context")

REFUSED: Final = "refused"

Ended = Callable[[Cell], object]
"""Told of an actor's end by itself: what is counted for it does not wait for a message."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The node's parts that services work with."""

    system: AsyncioSystemBase
    router: Router
    entropy: Entropy

    def refuse(self, service: str, reason: str, origin: Origin, wire: WireMessage) -> None:
        """Count and log a request that a service does not do; as in released nodes it is silent."""
        logger.info("request_refused", extra={"service": service, "reason": reason})
        self.router.undeliverable(REFUSED, Delivery(origin, [wire]))


@dataclass(slots=True)
class Allowance:
    """Counts what one service keeps for each connection and each principal."""

    _links: Tally[Origin] = field(default_factory=Tally)
    _principals: Tally[str] = field(default_factory=Tally)
    _held: dict[Cell, Origin] = field(default_factory=dict[Cell, Origin])

    def permits(self, origin: Origin) -> bool:
        """Whether there is room for one more."""
        return (
            self._links[origin.account] < ALIASES_PER_LINK_MAX
            and self._principals[origin.principal] < ALIASES_PER_PRINCIPAL_MAX
        )

    def take(self, origin: Origin, cell: Cell) -> None:
        """Count an actor, which ends with its connection or secure channel."""
        self._links[origin.account] += 1
        self._principals[origin.principal] += 1
        self._held[cell] = origin
        origin.attach(cell)

    def reserve(self, principal: str) -> None:
        """Count something that is kept for a principal without a connection."""
        self._principals[principal] += 1

    def release(self, principal: str) -> None:
        """Undo one `reserve`."""
        self._principals.drop(principal)

    def give_back(self, cell: Cell) -> None:
        """An actor has ended; harmless when repeated."""
        origin = self._held.pop(cell, None)
        if origin is None:
            return
        origin.detach(cell)
        self._links.drop(origin.account)
        self.release(origin.principal)
