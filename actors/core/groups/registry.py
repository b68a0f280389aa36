"""Tells who looks which groups have members at a node, and their actors what concerns them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.groups.state import GroupState
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.cell import Cell


class GroupNews(Struct, frozen=True):
    """What a group's actor has to see to: its record is another, or its node is not vouched for.

    Attributes:
        anew: the node was not, and is again.
    """

    anew: bool = False

    def merged(self, later: "GroupNews") -> "GroupNews":
        """One for both."""
        return GroupNews(self.anew or later.anew)


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

    Where nodes share the store, each says again and again that it is well as long as it has groups.
    A node that is not heard of is taken for dead, with the members whose links are its own; so one
    that cannot say it must not let these go on.

    Attributes:
        links: how many members each link has.
        node: what this node is called among those of the store; empty: nothing yet.
        begun: called when there is a group that other nodes may share.
        heard: when other nodes have last said that they are well.
        suspended: this node could not say so for too long.
        vouched_at: when it has last said so, by a clock that goes on while the machine sleeps.
    """

    def __init__(self) -> None:
        self.links: Tally[Origin] = Tally()
        self.node = ""
        self.begun: Callable[[], object] | None = None
        self.heard: dict[str, float] = {}
        self.suspended = False
        self.vouched_at = -inf
        self._of: dict[str, dict[str, GroupView]] = {}
        self._recorded: dict[str, GroupView] = {}

    @property
    def shared(self) -> bool:
        """Whether there are any that other nodes may share."""
        return any(view.shared for view in self)

    def share(self, view: GroupView) -> None:
        """A group turns out to be one that other nodes may share."""
        if not view.shared:
            view.shared = True
            if self.begun is not None:
                self.begun()

    def tell(self, news: GroupNews) -> None:
        """Tell all of them."""
        for view in self:
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
