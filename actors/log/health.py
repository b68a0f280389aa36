"""Describes whether a LogStore takes writes."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """A store's health: whether it takes writes, and if not, why and what to do."""

    writable: bool
    reason: str = ""

    def merged(self, later: "StoreHealth") -> "StoreHealth":
        """The later one is all that counts."""
        return later


OnHealth = Callable[[StoreHealth], None]
"""Told of each change of health; called from any thread."""
