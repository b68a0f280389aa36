"""Resting: a store lets memory go that only speeds up what is under way.

Not every store can: one that can is a `Resting`.
"""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from rillnode.actors.log import Operation

REST_BYTES_MIN: Final = 1_048_576
"""Less than that is not worth a table of its own. Own choice."""


@dataclass(slots=True, eq=False)
class Rest(Operation):
    """Begin to write as tables what was written since the last one, unless that is little.

    What comes meanwhile does not wait for it.
    """


@runtime_checkable
class Resting(Protocol):
    """A store that can let memory go while nothing is written."""

    def rest(self) -> None:
        """Begin with it, and return."""
        ...
