"""What the member of a node and its neighbours actors tell each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from rillnode.codecs.streamr.node_address import AnyAddress


@dataclass(frozen=True, slots=True)
class Instructed:
    """The tracker's word: whom to be linked to."""

    nodes: Sequence[AnyAddress]
    counter: int


@dataclass(frozen=True, slots=True)
class StorageFound:
    """The tracker's answer: who keeps the stream."""

    nodes: Sequence[AnyAddress]


@dataclass(frozen=True, slots=True)
class TrackerHeard:
    """Whether the tracker of this stream partition is in reach."""

    heard: bool


@dataclass(frozen=True, slots=True)
class Linked:
    """Tells the member who the neighbours are now, as statuses call them."""

    stream_id: str
    partition: int
    names: Sequence[str]
    counter: int


@dataclass(frozen=True, slots=True)
class Began:
    """Tells the member that an instance begins, and knows nothing of what was said before."""

    stream_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class BeganAnew:
    """The member begins anew: it hears no tracker yet, and is to be told of the neighbours."""
