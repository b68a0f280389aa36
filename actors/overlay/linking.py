"""A node's neighbours in one stream partition: who should be one, who is, over which link."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.room import Room
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import LogStore
from rillnode.actors.overlay.context import OverlayContext, name_of
from rillnode.actors.overlay.dialect import Dialect
from rillnode.codecs.routing.routes import Route, make_message
from rillnode.codecs.streamr.control_messages import ControlMessage
from rillnode.codecs.streamr.node_address import AnyAddress, ReleasedAddress

CONNECT_SECONDS: Final = 10.0
"""How long neighbours have to be linked before the tracker is told that they are not."""


@dataclass(slots=True)
class Neighbour:
    """One node that messages are exchanged with.

    Attributes:
        route: leads to its neighbours actor.
        origin: of what comes from it.
    """

    identity: str
    route: Route
    origin: Origin
    dialect: Dialect

    @property
    def name(self) -> str:
        """What it is called in statuses."""
        return name_of(self.origin)

    @property
    def congested(self) -> bool:
        """Whether it has much to take still."""
        return self.origin.congested


class Neighbourhood:
    """The table of neighbours; it sends nothing by itself but what it is told to.

    Of two nodes the one with the lesser identity dials: there is one link between them. Of this
    node and a released one that does which the tracker has in mind.

    Attributes:
        wanted: whom the tracker wants, by identity.
        linked: who is a neighbour now, by identity.
    """

    def __init__(self, context: OverlayContext, own: Route, owner: Cell) -> None:
        self._context = context
        self._own = own
        self._owner = owner
        self._held: dict[str, Route] = {}
        self._asked: dict[str, tuple[AnyAddress, Route]] = {}
        self._counter = self._instructed = 0
        self._settle_at = 0.0
        self._told: tuple[Sequence[str], int] | None = None
        self.wanted: dict[str, AnyAddress] = {}
        self.linked: dict[str, Neighbour] = {}

    def instruct(
        self, nodes: Iterable[AnyAddress], counter: int, now: float
    ) -> Sequence[Neighbour]:
        """Take over whom the tracker wants; returns who is no neighbour any more."""
        self._instructed, self._settle_at = counter, now + CONNECT_SECONDS
        return self._want(nodes)

    def _want(self, nodes: Iterable[AnyAddress]) -> Sequence[Neighbour]:
        own = self._context.settings.identity
        wanted = {node.identity: node for node in nodes if node.identity != own}
        for identity in wanted:
            if identity not in self.wanted:
                self._context.admitted[identity] += 1
        for identity, node in self.wanted.items():
            if identity not in wanted:
                self._context.admitted[identity] -= 1
            if wanted.get(identity) != node and self._held.pop(identity, None) is not None:
                self._context.links.release(node)
        self.wanted = wanted
        gone = [one for identity, one in self.linked.items() if identity not in wanted]
        for one in gone:
            self.unlink(one.identity)
        return gone

    def to_ask(self) -> Sequence[tuple[Route, Dialect]]:
        """The ways to those that this node dials and that are not linked yet."""
        found: list[tuple[Route, Dialect]] = []
        for identity, node in self.wanted.items():
            if identity in self.linked or not self._dials(node):
                continue
            route = self._held.get(identity)
            if route is None:
                route = self._held[identity] = (*self._context.links.hold(node), *self._own)
            found.append((route, self._context.dialect))
        return found

    def _dials(self, node: AnyAddress) -> bool:
        if isinstance(node, ReleasedAddress):
            return node.dialled
        return node.identity > self._context.settings.identity

    @property
    def exact(self) -> bool:
        """Whether those are linked whom the tracker wants, and nobody else."""
        return self.linked.keys() == self.wanted.keys()

    def news(self, now: float) -> tuple[Sequence[str], int] | None:
        """The names of neighbours and the last instruction carried out; None: told already.

        An instruction counts as carried out once everybody is linked, or cannot be in good time:
        else slow links would look like lost ones to the tracker, and overlays be made of fast ones.
        Who has not heard yet that it is wanted no more is left out in that time: else overlays
        would be made of slow ones. Not so with released trackers: who has come was told to, and
        one that hears nothing of it takes the link back, or has this node dial as well.
        """
        settled = now >= self._settle_at
        all_count = settled or self._context.settings.told_one_end
        if settled or self.linked.keys() >= self.wanted.keys():
            self._counter = self._instructed
        names = sorted(
            one.name for one in self.linked.values() if all_count or one.identity in self.wanted
        )
        told = (tuple(names), self._counter)
        if told == self._told:
            return None
        self._told = told
        return told

    def forget_told(self) -> None:
        """Whoever was told has forgotten it."""
        self._told = None

    def link(self, identity: str, origin: Origin, route: Route, dialect: Dialect) -> bool:
        """Take a neighbour in; whether it is new, or comes over a new link."""
        known = self.linked.get(identity)
        if known is not None and known.origin is origin:
            known.route = route
            return False
        self.unlink(identity)
        origin.watch(self._owner)
        self.linked[identity] = Neighbour(identity, route, origin, dialect)
        return True

    def unlink(self, identity: str) -> None:
        """Let a neighbour go; harmless when it is none."""
        known = self.linked.pop(identity, None)
        if known is not None:
            known.origin.unwatch(self._owner)

    def lost(self, origin: Origin) -> bool:
        """A link is gone; whether it was a neighbour's."""
        gone = [one.identity for one in self.linked.values() if one.origin is origin]
        for identity in gone:
            self.unlink(identity)
        return bool(gone)

    def reader(self, store: LogStore) -> LogStore | Room | None:
        """Where to read what all of them get; None: none of them takes more now."""
        for one in self.linked.values():
            room = one.origin.room(store)
            if room is None:
                return store
            if room.takes_live:
                return room
        return None

    def by_origin(self, origin: Origin) -> Neighbour | None:
        """The neighbour that messages came from."""
        for one in self.linked.values():
            if one.origin is origin:
                return one
        return None

    def close(self) -> Sequence[Neighbour]:
        """Let everybody go; returns who was a neighbour."""
        for node, _ in self._asked.values():
            self._context.admitted[node.identity] -= 1
            self._context.links.release(node)
        self._asked.clear()
        return self._want(())

    def ask_storage(self, node: AnyAddress, request: ControlMessage) -> None:
        """Ask a node that is no neighbour; the link to it stays while this partition is shared."""
        self._context.admitted[node.identity] += node.identity not in self._asked
        if node.identity not in self._asked:
            self._asked[node.identity] = (node, (*self._context.links.hold(node), *self._own))
        _, route = self._asked[node.identity]
        self.send(route, [self._context.dialect.encode_control(request)])

    def send(self, route: Route, payloads: Iterable[bytes]) -> None:
        """Send frames, in order, as one batch."""
        own = self._own
        messages = [make_message((route, own, payload)) for payload in payloads]
        self._context.streams.router.route(self._context.origin, messages)

    def tell(self, one: Neighbour, *messages: ControlMessage) -> None:
        """Send messages of the control layer to a neighbour."""
        self.send(one.route, map(one.dialect.encode_control, messages))
