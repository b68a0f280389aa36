"""What a LogStore says of itself: whether it takes writes."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the store takes writes, and if not, why and what to do."""

    writable: bool
    reason: str = ""

    def merged(self, later: "StoreHealth") -> "StoreHealth":
        """The later one is all that counts."""
        return later


OnHealth = Callable[[StoreHealth], None]
"""Told of each change of health; called from any thread."""
