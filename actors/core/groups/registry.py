"""Tells who looks which groups have members at a node, and their actors what concerns them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.groups.state import GroupState
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.cell import Cell


class GroupNews(Struct, frozen=True):
    """Other nodes have changed a group.

    Attributes:
        nodes: those that were heard of.
        changed: whether the record is another.
    """

    nodes: frozenset[str]
    changed: bool

    def merged(self, later: "GroupNews") -> "GroupNews":
        """One for both."""
        return GroupNews(self.nodes | later.nodes, self.changed or later.changed)


@dataclass(slots=True, eq=False)
class GroupView:
    """A group as its actor knows it at the moment.

    Attributes:
        record_name: what its record is called.
    """

    stream: str
    name: str
    record_name: str
    cell: Cell
    state: GroupState


class Groups:
    """The groups that have actors at a node. All calls are for the loop's thread.

    Attributes:
        links: how many members each link has.
    """

    def __init__(self) -> None:
        self.links: Tally[Origin] = Tally()
        self._of: dict[str, dict[str, GroupView]] = {}
        self._recorded: dict[str, GroupView] = {}

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
        """Tell groups that other nodes have written values of these names: records, and beats."""
        news: dict[str, GroupNews] = {}
        for name in names:
            parts = name.split("/")
            record, node = "/".join(parts[:3]), "/".join(parts[3:])
            one = GroupNews(frozenset({node} if node else ()), not node)
            news[record] = news[record].merged(one) if record in news else one
        for record, one in news.items():
            view = self._recorded.get(record)
            if view is not None:
                view.cell.base.post(view.cell, one)
