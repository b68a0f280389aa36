"""Defines the messages between a node's member and its neighbours actors."""

from collections.abc import Sequence
from dataclasses import dataclass

from rillnode.codecs.streamr.node_address import AnyAddress


@dataclass(frozen=True, slots=True)
class Instructed:
    """The tracker's word: whom to be linked to."""

    nodes: Sequence[AnyAddress]
    counter: int

    def merged(self, later: "Instructed") -> "Instructed":
        """The later one is all that counts."""
        return later


@dataclass(frozen=True, slots=True)
class StorageFound:
    """The tracker's answer: who keeps the stream."""

    nodes: Sequence[AnyAddress]

    def merged(self, later: "StorageFound") -> "StorageFound":
        """The later one is all that counts."""
        return later


@dataclass(frozen=True, slots=True)
class TrackerHeard:
    """News whether the tracker of this stream partition is in reach."""

    heard: bool

    def merged(self, later: "TrackerHeard") -> "TrackerHeard":
        """The later one is all that counts."""
        return later


@dataclass(frozen=True, slots=True)
class Linked:
    """Tells the member who the neighbours are now, as statuses call them."""

    stream_id: str
    partition: int
    names: Sequence[str]
    counter: int

    def merged(self, later: "Linked") -> "Linked | None":
        """Of the same partition the later one counts."""
        same = (later.stream_id, later.partition) == (self.stream_id, self.partition)
        return later if same else None


@dataclass(frozen=True, slots=True)
class Began:
    """Tells the member that an instance begins, and knows nothing of what was said before."""

    stream_id: str
    partition: int

    def merged(self, later: "Began") -> "Began | None":
        """Of the same partition one is enough."""
        return later if later == self else None


@dataclass(frozen=True, slots=True)
class BeganAnew:
    """The member begins anew: it hears no tracker yet, and is to be told of the neighbours."""

    def merged(self, later: "BeganAnew") -> "BeganAnew":
        """One is enough."""
        return later
