"""Counting what somebody holds."""

from collections import Counter
from typing import TypeVar

K = TypeVar("K")


class Tally(Counter[K]):
    """A count for each key; a key that holds nothing takes no memory.

    Made as `Tally()`: what `Tally[K]()` makes remembers its K, which takes four times as much.
    """

    def drop(self, key: K) -> None:
        """Count one less, in constant time (as a Counter's own subtraction is not)."""
        if self[key] > 1:
            self[key] -= 1
        else:
            self.pop(key, None)
