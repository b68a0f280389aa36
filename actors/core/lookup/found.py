"""Describes what is found at an address, for one asker, and the sources that find it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.engine.cell import Cell
from rillnode.codecs.native import RouteInfo

SLICE_ITEMS: Final = 200
"""Addresses that are looked at in one turn of the loop: each takes some microseconds."""

RESTING: Final = "resting"
ENDED: Final = "ended"


@dataclass(slots=True, eq=False)
class Found:
    """A thing found at an address.

    Attributes:
        info: what the asker is told of it.
        cell: the actor with which it ends; None: none is its own.
        stop: stops it; None: it cannot be stopped.
        kept: what to do instead, for people.
    """

    info: RouteInfo
    cell: Cell | None = None
    stop: Callable[[], object] | None = None
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Asker:
    """The principal that looks something up.

    Attributes:
        origin: where the question has come from.
        administers: whether it may see everything.
    """

    origin: Origin
    administers: bool

    @classmethod
    def of(cls, origin: Origin, access: Access) -> "Asker":
        """The asker of a question."""
        return cls(origin, access.administers(origin.principal))

    @property
    def principal(self) -> str:
        """Whom it has proved to be."""
        return self.origin.principal


Wanted = Callable[[RouteInfo], bool]
"""Tells whether an asker has asked for such."""


class Source(Protocol):
    """A source that finds things of some kinds.

    Attributes:
        kinds: of what there is here.
    """

    kinds: frozenset[str]

    async def find(self, address: bytes, asker: Asker) -> Found | None:
        """What is at an address; None: nothing, or nothing that the asker may know of.

        Raises:
            StoreError: the store does not say.
        """
        ...

    async def page(self, after: bytes, asker: Asker, wanted: Wanted, room: int) -> list[RouteInfo]:
        """The next ones after an address, `room` at most; less only where there are no more.

        Of many it looks at some in each turn of the loop.

        Raises:
            StoreError: the store does not say.
        """
        ...


def state_of(cell: Cell | None) -> str:
    """How an actor is, as its cell shows it."""
    if cell is None or (cell.instance is None and not cell.exited):
        return RESTING
    if cell.exited:
        return ENDED
    return "busy" if cell.mailbox else "idle"


def shown(info: RouteInfo, cell: Cell | None) -> RouteInfo:
    """Add what a cell, and the counters of its class, show."""
    info.state = info.state or state_of(cell)
    if cell is not None:
        kind = cell.kind
        info.actor_class = kind.name
        info.mailbox = len(cell.mailbox)
        info.handled = kind.handled
        info.failures = sum(kind.failure_reasons.values())
        info.restarts = kind.restarts
        info.slowest_microseconds = round(kind.slowest_seconds * 1e6)
    return info


def blank(address: bytes, kind: str, name: str, owner: str = "", since: int = 0) -> RouteInfo:
    """What is known of an address before anybody looks at its actor."""
    return RouteInfo(address, kind, name, "", owner, b"", since, "", 0, 0, 0, 0, 0, False)
