"""Keeps what a node has heard of the others that have members of groups, and since when.

A node's record is another each time it is written. One that has stayed the same for as long as a
lease is of a node that is silent, or that nobody hears of.
"""

from collections.abc import Set
from dataclasses import dataclass, replace

from rillnode.actors.core.groups.registry import LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class _Heard:
    """The record of another node.

    Attributes:
        version: which it is.
        at: when this node has first seen it.
    """

    version: int
    at: float


class HeardNodes:
    """The records of other nodes; times are of one clock."""

    def __init__(self) -> None:
        self._records: dict[str, _Heard] = {}

    @property
    def names(self) -> Set[str]:
        """The nodes, as they are at any time."""
        return self._records.keys()

    def hear(self, node: str, version: int, now: float) -> None:
        """A node's record is of this version."""
        heard = self._records.get(node)
        if heard is None or heard.version != version:
            self._records[node] = _Heard(version, now)

    def forget(self, node: str) -> None:
        """A node is out; harmless when repeated."""
        self._records.pop(node, None)

    def wait(self, now: float) -> None:
        """All nodes have their time again."""
        for node, heard in self._records.items():
            self._records[node] = replace(heard, at=now)

    def silent_at(self) -> float | None:
        """When the first one may have been silent for too long."""
        return min((one.at + LEASE_SECONDS for one in self._records.values()), default=None)

    def take_silent(self, now: float) -> list[tuple[str, int]]:
        """Those that have been, with the versions of their records; they have their time again."""
        silent = [
            (node, one) for node, one in self._records.items() if one.at + LEASE_SECONDS <= now
        ]
        for node, heard in silent:
            self._records[node] = replace(heard, at=now)
        return [(node, heard.version) for node, heard in silent]
