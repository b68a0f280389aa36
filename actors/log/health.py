"""What a LogStore says of itself: whether it takes writes, and what it promises beyond the rest."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the store takes writes, and if not, why and what to do."""

    writable: bool
    reason: str = ""

    def merged(self, later: "StoreHealth") -> "StoreHealth":
        """The later one is all that counts."""
        return later


class Capability(Enum):
    """What not every LogStore promises.

    Attributes:
        CHECKPOINT: it copies itself while it is in use (`checkpoint.Checkpointing`).
        POWER_CUT: what is confirmed would survive the loss of power of all its disks at once.
        SHARED: several stores may be open on the same logs at one time, on several machines. What
            one has appended stands before what another appends later, and is seen by the others in
            a moment (`watch.SharedStore`). An append with records is refused with `store.fenced`,
            and leaves no trace, where another store has appended what this one did not know of; so
            is a saved index that would go back, or that another store has saved meanwhile, and
            what follows from a log or a value that another store has changed since (`seen`).
            Secondary keys may have to be brought into order before they are listed: with an error
            `store.busy` that takes a while still, with `store.keys` there is no room for it.
            Without this capability `seen` is not looked at, and versions are 0.
    """

    CHECKPOINT = "checkpoint"
    POWER_CUT = "power cut"
    SHARED = "shared"


OnHealth = Callable[[StoreHealth], None]
"""Told of each change of health; called from any thread."""
