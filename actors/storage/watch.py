"""A store whose logs several nodes share: who they are, and how one learns what another appends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rillnode.actors.storage import Operation, StreamRecord


@dataclass(slots=True, eq=False)
class Watch(Operation):
    """Wait until a log holds an entry at `index`, whoever appends it.

    Errors: `stream.removed`, `store.closed`.

    Attributes:
        next_index: result: the index after the log's last entry.
    """

    log: int = 0
    index: int = 0
    next_index: int = 0


@dataclass(slots=True, eq=False)
class WatchRecords(Operation):
    """Wait until other nodes have changed streams' records since the last one was completed.

    One at a time. Errors: `store.closed`.

    Attributes:
        changed: result: the records as they are now, of new streams, too.
        removed: result: the last records of streams that are no more.
    """

    changed: list[StreamRecord] = field(default_factory=list[StreamRecord])
    removed: list[StreamRecord] = field(default_factory=list[StreamRecord])


@dataclass(slots=True, eq=False)
class WatchValues(Operation):
    """Wait until other nodes have changed named values since the last one was completed.

    One at a time of each prefix. What came before the first one is not told of: ask for it with
    ListRecords, after the first watch. Errors: `store.closed`.

    Attributes:
        prefix: of the names.
        changed: result: names, and what they stand for now; None: nothing any more.
    """

    prefix: str = ""
    changed: list[tuple[str, bytes | None]] = field(default_factory=list[tuple[str, bytes | None]])


AnyWatch = Watch | WatchRecords | WatchValues


@dataclass(frozen=True, slots=True)
class SharingNode:
    """A node that serves the same logs; `identity` is its Ed25519 identity, hex."""

    name: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How nodes share the logs, as one of them sees it.

    Attributes:
        nodes: those that are there now, this one among them, by name.
        owner_of: the node that appends to a log for all of them.
        handed: appends that owners have made durable for this node.
        taken: appends that this node has made durable for others.
        hand_overs: times that a log in use here got another owner.
    """

    nodes: Sequence[SharingNode]
    owner_of: Callable[[int], SharingNode]
    handed: int
    taken: int
    hand_overs: int


@runtime_checkable
class SharedStore(Protocol):
    """A LogStore with `Capability.SHARED`: others append to its logs, too."""

    def watch(self, operation: AnyWatch) -> None:
        """Complete the operation as soon as there is what it waits for."""
        ...

    def sharing(self) -> Sharing | None:
        """Who shares the logs now; None where no node has opened them."""
        ...
