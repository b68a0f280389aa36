"""A store whose logs several nodes share: how one learns what another appends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rillnode.actors.log import Operation, StreamRecord


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


@runtime_checkable
class SharedStore(Protocol):
    """A LogStore with `Capability.SHARED`: others append to its logs, too."""

    def watch(self, operation: AnyWatch) -> None:
        """Complete the operation as soon as there is what it waits for."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The state of the log and of this node's views of it, for people."""
        ...
