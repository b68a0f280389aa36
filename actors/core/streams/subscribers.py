"""Counts the followers of each log for people."""

from collections import Counter
from typing import TypeVar

K = TypeVar("K")


class Subscribers:
    """The followers of all logs of one node, by what they speak."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()
        self._totals: Counter[int] = Counter()

    def set(self, log: int, protocol: str, count: int) -> None:
        """There are `count` followers of a log now that speak `protocol`."""
        _put(self._totals, log, self._totals[log] + count - self._counts[log, protocol])
        _put(self._counts, (log, protocol), count)

    def add(self, log: int, protocol: str, more: int) -> None:
        """There are `more` followers, or less where it is negative."""
        self.set(log, protocol, self._counts[log, protocol] + more)

    def of(self, log: int) -> int:
        """How many follow a log."""
        return self._totals[log]


def _put(counts: Counter[K], key: K, count: int) -> None:
    """Set a count; one that is 0 takes no memory."""
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
