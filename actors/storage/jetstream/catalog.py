"""What the journal amounts to: every key's last value, in memory or where it stands."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final, NamedTuple

from rillnode.actors.storage.jetstream.frames import JournalFrame
from rillnode.actors.storage.layout import RECORD_PREFIX

_ROW_BYTES: Final = 8
"""What a row counts for beside its key and value."""


class Row(NamedTuple):
    """A key's last value.

    Attributes:
        sequence: of the journal's message that holds it.
        size: bytes of the value.
        value: None where it is not kept in memory.
    """

    sequence: int
    size: int
    value: bytes | None


class Catalog:
    """The rows after the journal's message `sequence`. Only named values may be left out of memory.

    Attributes:
        sequence: of the last message applied.
        live_bytes: what a journal would hold that has nothing in vain.
    """

    def __init__(self, value_bytes_max: int) -> None:
        self._value_bytes_max = value_bytes_max
        self._rows: dict[bytes, Row] = {}
        # Made when it is needed first: a journal is replayed in no order.
        self._sorted: list[bytes] | None = None
        self.sequence = 0
        self.live_bytes = 0

    def apply(self, sequence: int, frame: JournalFrame) -> None:
        """Take the next message."""
        for first, end in frame.ranges:
            for key in self.keys(first, end):
                self._remove(key)
        for key, value in frame.changes:
            if value is None:
                self._remove(key)
            else:
                self._put(key, value, sequence)
        self.sequence = sequence

    def row(self, key: bytes) -> Row | None:
        """A key's row."""
        return self._rows.get(key)

    def value(self, key: bytes) -> bytes | None:
        """The value of a key that is no named value."""
        row = self._rows.get(key)
        return None if row is None else row.value

    def keys(self, first: bytes, end: bytes, limit: int | None = None) -> Sequence[bytes]:
        """The keys from one up to another (exclusive), ascending, at most `limit`."""
        if self._sorted is None:
            self._sorted = sorted(self._rows)
        start, stop = bisect_left(self._sorted, first), bisect_left(self._sorted, end)
        return self._sorted[start : stop if limit is None else min(stop, start + limit)]

    def _put(self, key: bytes, value: bytes, sequence: int) -> None:
        known = self._rows.get(key)
        if known is not None:
            self.live_bytes -= known.size
        else:
            self.live_bytes += len(key) + _ROW_BYTES
            if self._sorted is not None:
                insort(self._sorted, key)
        self.live_bytes += len(value)
        kept = len(value) <= self._value_bytes_max or not key.startswith(RECORD_PREFIX)
        self._rows[key] = Row(sequence, len(value), value if kept else None)

    def _remove(self, key: bytes) -> None:
        row = self._rows.pop(key, None)
        if row is None:
            return
        self.live_bytes -= len(key) + _ROW_BYTES + row.size
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, key)]


def prefix_end(prefix: bytes) -> bytes:
    """The first key past all that begin with a prefix, which ends in no byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
