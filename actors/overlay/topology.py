"""The overlay of one stream partition: who is whose neighbour, in a random regular graph.

A node that joins takes open slots of others; where there are not enough it is put between two
neighbours of a random link, which splits it in two. So every node has `degree` neighbours, as far
as there are so many, and the graph stays in one piece. Many nodes that join together are put in one
after the other, in random order: if they were linked to each other first, they would form a cluster
of those that are as far from the tracker, and hardly linked to all others. What leaves opens slots,
which later joins and repairs fill. Chance is given: the same calls with the same chance make the
same graph.

Source: the rules of streamr-network 22.1.0, OverlayTopology; that it stays in one piece is ours.
"""

from collections.abc import Iterable, Sequence
from random import Random


class Topology:
    """An undirected graph without loops, no node of which has more than `degree` neighbours.

    That holds after `form`; between `update` and it a node may have more, or too few.

    Args:
        degree: neighbours of each node.
        random: decides what is left to chance.
    """

    def __init__(self, degree: int, random: Random) -> None:
        self._degree = degree
        self._random = random
        # Insertion order, not hashes, decides what chance picks from.
        self._links: dict[str, dict[str, None]] = {}
        # Whether those that have links may be in several pieces.
        self._unsure = False
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, node: object) -> bool:
        return node in self._links

    @property
    def nodes(self) -> Sequence[str]:
        """All nodes, in the order in which they have joined."""
        return list(self._links)

    def neighbours(self, node: str) -> Sequence[str]:
        """A node's neighbours; none for one that is not there."""
        return list(self._links.get(node, ()))

    def update(self, node: str, neighbours: Iterable[str]) -> None:
        """Take over what a node says of its neighbours, at both ends; unknown ones are left out."""
        links = self._links.setdefault(node, {})
        said = {name: None for name in neighbours if name in self._links and name != node}
        for other in [name for name in links if name not in said]:
            self._unlink(node, other)
        for other in said:
            self._link(node, other)

    def leave(self, node: str) -> None:
        """Remove a node; harmless when it is not there."""
        for other in self.neighbours(node):
            self._unlink(node, other)
        self._links.pop(node, None)
        self._changed.pop(node, None)

    def form(self, *nodes: str) -> Sequence[str]:
        """Bring nodes to their neighbours; return whose have changed since the last call.

        In time linear in all nodes, for each of these.
        """
        alone = [node for node in nodes if not self._links[node]]
        self._random.shuffle(alone)
        for node in alone:
            del self._links[node]
        for node in dict.fromkeys((*(node for node in nodes if node in self._links), *alone)):
            self._links.setdefault(node, {})
            self._cut(node)
            self._fill(node)
            while len(self._links[node]) + 2 <= min(self._degree, len(self._links) - 1):
                if not self._insert(node, node):
                    break
            self._pair(node)
        if self._unsure and self._degree > 1:
            self._join_pieces(nodes[-1])
        changed, self._changed = self._changed, {}
        return [name for name in changed if name in self._links]

    def _cut(self, node: str) -> None:
        """Drop links at random that are too many, here and at the neighbours."""
        for one in (node, *self.neighbours(node)):
            while len(self._links[one]) > self._degree:
                self._unlink(one, self._random.choice(list(self._links[one])))

    def _fill(self, node: str) -> None:
        """Link a node to others with open slots, picked at random."""
        links = self._links[node]
        missing = self._degree - len(links)
        if missing <= 0:
            return
        open_ones = [
            name
            for name, its in self._links.items()
            if len(its) < self._degree and name != node and name not in links
        ]
        for other in self._random.sample(open_ones, min(missing, len(open_ones))):
            self._link(node, other)

    def _pair(self, node: str) -> None:
        """Give a node its last neighbour where who has an open slot is its neighbour already."""
        if len(self._links[node]) + 1 != self._degree:
            return
        others = [name for name in self._links[node] if len(self._links[name]) < self._degree]
        if others:
            self._insert(node, self._random.choice(others))

    def _insert(self, near: str, far: str) -> bool:
        """Put a node, or two that are linked, between the ends of a random link, if there is one.

        Args:
            near: the node.
            far: the same, or its neighbour.
        """
        at_near, at_far = self._links[near], self._links[far]
        ends = [name for name in self._links if name != near and name not in at_near]
        while ends:  # in random order; the first mostly has such a link
            at = self._random.randrange(len(ends))
            one, ends[at] = ends[at], ends[-1]
            ends.pop()
            others = [name for name in self._links[one] if name != far and name not in at_far]
            if others:
                other = self._random.choice(others)
                unsure = self._unsure
                self._unlink(one, other)
                self._link(one, near)
                self._link(far, other)
                self._unsure = unsure  # the ends are in one piece still, by way of the nodes
                return True
        return False

    def _join_pieces(self, node: str) -> None:
        """Make the graph one piece again: cross a link of each other piece with one of this.

        Who has no links is left alone: it gets some when it is formed.
        """
        left = dict.fromkeys(name for name, its in self._links.items() if its)
        home = self._piece(node)
        while left := {name: None for name in left if name not in home}:
            other = self._piece(next(iter(left)))
            self._bridge(list(home), list(other))
            home = {**home, **other}
        self._unsure = False

    def _bridge(self, home: Sequence[str], other: Sequence[str]) -> None:
        """Link two pieces; no node gets more links than it had, but where slots are open."""
        near, freed_near = self._loose_end(home)
        far, freed_far = self._loose_end(other)
        self._link(near, far)
        if freed_near is not None and freed_far is not None:
            self._link(freed_near, freed_far)

    def _loose_end(self, piece: Sequence[str]) -> tuple[str, str | None]:
        """A node that can take a link, and the one that its link was cut from, if one had to be."""
        slots = [name for name in piece if len(self._links[name]) < self._degree]
        if slots:
            return self._random.choice(slots), None
        # All have at least two links, so some of them lie on a circle and can be spared.
        links = [(one, other) for one in piece for other in self._links[one]]
        self._random.shuffle(links)
        for one, other in links:
            self._unlink(one, other)
            if other in self._piece(one):
                return one, other
            self._link(one, other)
        raise AssertionError("a graph without leaves has a circle")

    def _piece(self, node: str) -> dict[str, None]:
        """All that can be reached from a node."""
        found = {node: None}
        queue = [node]
        for one in queue:
            for other in self._links[one]:
                if other not in found:
                    found[other] = None
                    queue.append(other)
        return found

    def _link(self, one: str, other: str) -> None:
        if other not in self._links[one]:
            if not self._links[one] and not self._links[other]:
                self._unsure = True  # a pair by itself, as where nodes tell of links made before
            self._links[one][other] = self._links[other][one] = None
            self._changed[one] = self._changed[other] = None

    def _unlink(self, one: str, other: str) -> None:
        del self._links[one][other], self._links[other][one]
        self._changed[one] = self._changed[other] = None
        self._unsure = True
