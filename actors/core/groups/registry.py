"""Tells who looks which groups have members at a node, and their actors what concerns them."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.groups.state import GroupState
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.cell import Cell
from rillnode.codecs.errors import RillnodeError

LEASE_SECONDS: Final = 2.0
"""How long a member whose link was lost is waited for, and a node that is not heard of."""


class GroupNews(Struct, frozen=True):
    """News for a group's actor: its record is another, or nodes came or went.

    Attributes:
        out: nodes that are out: their members are no more.
    """

    out: frozenset[str] = frozenset()

    def merged(self, later: "GroupNews") -> "GroupNews":
        """One for both."""
        return GroupNews(self.out | later.out)


class Vouch(Struct, frozen=True):
    """Asks for a `Vouched` once others know of this node: before it has a member's link."""


class Vouched(Struct, frozen=True):
    """The answer: others know of it, or why they were not told."""

    error: RillnodeError | None = None


class Meet(Struct, frozen=True):
    """Asks who these nodes are, of whose members a group's actor has just read."""

    nodes: frozenset[str]

    def merged(self, later: "Meet") -> "Meet":
        """One for both."""
        return Meet(self.nodes | later.nodes)


class LeftBehind(Struct, frozen=True):
    """Groups' actors have ended before their members were out of the record.

    Perhaps none of them comes back by itself.

    Attributes:
        addresses: the groups'.
    """

    addresses: frozenset[bytes]

    def merged(self, later: "LeftBehind") -> "LeftBehind":
        """One for both."""
        return LeftBehind(self.addresses | later.addresses)


@dataclass(slots=True, eq=False)
class GroupView:
    """A group as its actor knows it at the moment.

    Attributes:
        record_name: what its record is called.
        shared: other nodes may share it.
    """

    stream: str
    name: str
    record_name: str
    cell: Cell
    state: GroupState
    shared: bool = False


class Groups:
    """The groups that have actors at a node. All calls are for the loop's thread.

    Attributes:
        links: how many members each link has.
        node: what this node is called among those of the store, until it is out: then another name.
        nodes: the actor that tells other nodes of this one (`GroupNodes`).
        known: other nodes of which this one hears.
        suspended: others may not have heard of this node for too long.
        vouched_at: when it has begun to tell them what they have heard last, by a clock that goes
            on while the machine sleeps; -inf: they know of no such node.
    """

    def __init__(self) -> None:
        self.links: Tally[Origin] = Tally()
        self.node = ""
        self.nodes: Cell | None = None
        self.known: Set[str] = frozenset()
        self.suspended = False
        self.vouched_at = -inf
        self._of: dict[str, dict[str, GroupView]] = {}
        self._recorded: dict[str, GroupView] = {}

    @property
    def shared(self) -> bool:
        """Whether there are any that other nodes may share."""
        return any(view.shared for view in self)

    @property
    def with_members(self) -> frozenset[str]:
        """The nodes that have members of groups here, as far as their actors know."""
        return frozenset[str]().union(*(view.state.nodes() for view in self))

    def meet(self, nodes: Set[str]) -> None:
        """See that it becomes known how nodes are that have members."""
        strangers = frozenset(nodes - self.known)
        if strangers and self.nodes is not None:
            self.nodes.base.post(self.nodes, Meet(strangers))

    def tell(self, news: GroupNews) -> None:
        """Tell all of them; of nodes that are out those that know members of these."""
        for view in self:
            if not news.out or news.out & view.state.nodes():
                view.cell.base.post(view.cell, news)

    def __iter__(self) -> Iterator[GroupView]:
        return iter(self._recorded.values())

    def add(self, view: GroupView) -> None:
        """There is an actor of a group."""
        self._of.setdefault(view.stream, {})[view.name] = view
        self._recorded[view.record_name] = view

    def remove(self, view: GroupView) -> None:
        """It is gone; harmless when repeated."""
        if self._recorded.get(view.record_name) is view:
            del self._recorded[view.record_name]
        of_stream = self._of.get(view.stream, {})
        if of_stream.get(view.name) is view:
            del of_stream[view.name]
            if not of_stream:
                del self._of[view.stream]

    def of(self, stream: str, name: str) -> GroupView | None:
        """The group of a name."""
        return self._of.get(stream, {}).get(name)

    def leave_behind(self, address: bytes) -> None:
        """See that members of an actor that has ended do not stay for ever."""
        if self.nodes is not None:
            self.nodes.base.post(self.nodes, LeftBehind(frozenset((address,))))

    def stream_changed(self, stream: str, change: object) -> None:
        """Tell the groups of a stream what has become of it."""
        for view in self._of.get(stream, {}).values():
            view.cell.base.post(view.cell, change)

    def others_changed(self, names: Iterable[str]) -> None:
        """Tell groups that other nodes have written records of these names."""
        for name in names:
            view = self._recorded.get(name)
            if view is not None:
                view.cell.base.post(view.cell, GroupNews())
