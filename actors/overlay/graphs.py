"""The overlay of one stream partition, as its tracker keeps it: one graph for each kind of nodes.

Nodes are linked only to those that speak as they do. One that speaks several ways is in several
graphs, and so what is said in one of them gets into the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from rillnode.actors.overlay.topology import Topology

OWN: Final = ""
"""The kind of nodes that speak the form EXTENDED; others are named by their generation."""


class Graphs:
    """The graphs of one stream partition.

    Args:
        make: makes an empty graph.

    Attributes:
        counters: the number of each node's last instruction.
        known: the neighbours that each node has told of, or was told of.
        named_at: when a released node was last told to dial each, on the monotonic clock.
        told_at: when each node was last instructed, likewise.
    """

    def __init__(self, make: Callable[[], Topology]) -> None:
        self._make = make
        self._graphs: dict[str, Topology] = {}
        self.counters: dict[str, int] = {}
        self.known: dict[str, frozenset[str]] = {}
        self.named_at: dict[str, float] = {}
        self.told_at: dict[str, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._graphs.values()))

    def update(
        self, name: str, kinds: Iterable[str], neighbours: Sequence[str], *, awaits: bool = False
    ) -> None:
        """Take over what a node of these kinds says of its neighbours.

        Args:
            name: the node.
            kinds: of nodes that it can be linked to.
            neighbours: their names.
            awaits: it is not told of links that their other ends are to dial. It may have spoken
                before such a link was made, so that it does not deny those that it does not know.
        """
        known = self.known.get(name, frozenset[str]())
        awaited = self.names(name) - known - set(neighbours) if awaits else frozenset[str]()
        for kind in kinds:
            graph = self._graphs.get(kind)
            if graph is None:
                graph = self._graphs[kind] = self._make()
            graph.update(name, [*neighbours, *sorted(awaited)])
        self.known[name] = self.names(name) - awaited

    def names(self, name: str) -> frozenset[str]:
        """A node's neighbours, of whatever kind."""
        return frozenset(other for _, other in self.neighbours(name))

    def neighbours(self, name: str) -> Iterator[tuple[str, str]]:
        """A node's neighbours: the kind that they have in common, and each one's name."""
        for kind, graph in self._graphs.items():
            for other in graph.neighbours(name):
                yield kind, other

    def form(self, nodes: Mapping[str, Iterable[str]]) -> Sequence[str]:
        """Bring nodes, with their kinds, to their neighbours.

        Returns whose neighbours have changed since the last call.
        """
        members: dict[str, list[str]] = {}
        for name, kinds in nodes.items():
            for kind in kinds:
                members.setdefault(kind, []).append(name)
        changed: dict[str, None] = {}
        for kind, names in members.items():
            changed |= dict.fromkeys(self._graphs[kind].form(*names))
        return list(changed)

    def leave(self, name: str) -> None:
        """Remove a node; harmless when it is not there."""
        self.counters.pop(name, None)
        self.known.pop(name, None)
        self.named_at.pop(name, None)
        self.told_at.pop(name, None)
        for kind, graph in list(self._graphs.items()):
            graph.leave(name)
            if not len(graph):
                del self._graphs[kind]
