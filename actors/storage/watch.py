"""How it is learned that a log has grown by what another node has appended."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rillnode.actors.storage import Operation


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


@runtime_checkable
class SharedStore(Protocol):
    """A LogStore with `Capability.SHARED`: others append to its logs, too."""

    def watch(self, operation: Watch) -> None:
        """Complete the operation as soon as the log has grown so far."""
        ...
