"""An ordered table in memory as a database keeps one: views of the past stay as they were.

Each write has a number. A row keeps what was written to it under which number for as long as a
cursor may ask, so that a view costs nothing to make and does not see what is written after it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from weakref import WeakSet

Version = tuple[int, bytes | None]
"""The number of a write, and what it has written; None: it has deleted the row."""


class Rows:
    """One table: keys in the order of their bytes.

    Attributes:
        size: bytes of all values, as written last.
    """

    def __init__(self) -> None:
        self.size = 0
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[Version]] = {}
        self._touched: dict[bytes, None] = {}
        self._cursors: WeakSet[Cursor] = WeakSet()

    def put(self, key: bytes, value: bytes | None, number: int) -> None:
        """Write a row under a number that is not below any before; None deletes it."""
        versions = self._versions.get(key)
        if versions is None:
            if value is None:
                return
            versions = self._versions[key] = []
            insort(self._keys, key)
        before = versions[-1][1] if versions else None
        self.size += len(value or b"") - len(before or b"")
        versions.append((number, value))
        self._touched[key] = None

    def delete_range(self, begin: bytes, end: bytes, number: int) -> None:
        """Delete all rows from `begin` on, before `end`."""
        keys = self._keys
        for key in keys[bisect_left(keys, begin) : bisect_left(keys, end)]:
            self.put(key, None, number)

    def value(self, key: bytes, number: int) -> bytes | None:
        """What a row held after the write of this number."""
        for written, value in reversed(self._versions.get(key, ())):
            if written <= number:
                return value
        return None

    def items(self, number: int) -> list[tuple[bytes, bytes]]:
        """All rows as they were after the write of this number, in the order of keys."""
        found = [(key, self.value(key, number)) for key in self._keys]
        return [(key, value) for key, value in found if value is not None]

    def revert(self, number: int) -> None:
        """Undo all writes after this number that were made since `settle`."""
        for key in self._touched:
            versions = self._versions[key]
            self.size -= len(versions[-1][1] or b"")
            while versions and versions[-1][0] > number:
                versions.pop()
            if versions:
                self.size += len(versions[-1][1] or b"")
            else:
                self._drop(key)
        self._touched.clear()

    def settle(self, number: int) -> None:
        """Forget what nobody can ask for any more: writes up to this number are not undone."""
        oldest = min((cursor.number for cursor in self._cursors), default=number)
        if oldest < number:
            return
        for key in self._touched:
            versions = self._versions[key]
            del versions[:-1]
            if versions[0][1] is None:
                self._drop(key)
        self._touched.clear()

    def _drop(self, key: bytes) -> None:
        del self._versions[key], self._keys[bisect_left(self._keys, key)]

    def cursor(self, number: int, check: Callable[[], None]) -> "Cursor":
        """A view of the table after the write of this number; `check` may fail what is read."""
        cursor = Cursor(self, self._keys, number, check)
        self._cursors.add(cursor)
        return cursor


class Cursor:
    """A place in a table as it was; has what the store uses of RocksDB's iterators."""

    __slots__ = ("__weakref__", "_check", "_key", "_keys", "_rows", "number")

    def __init__(
        self, rows: Rows, keys: list[bytes], number: int, check: Callable[[], None]
    ) -> None:
        self._rows = rows
        self._keys = keys
        self._check = check
        self._key: bytes | None = None
        self.number = number

    def seek(self, key: bytes) -> None:
        """Move to the first row at or after a key."""
        self._move(bisect_left(self._keys, key), 1)

    def seek_for_prev(self, key: bytes) -> None:
        """Move to the last row at or before a key."""
        self._move(bisect_right(self._keys, key) - 1, -1)

    def seek_to_first(self) -> None:
        """Move to the first row."""
        self._move(0, 1)

    def next(self) -> None:
        """Move to the next row."""
        if self._key is not None:
            self._move(bisect_right(self._keys, self._key), 1)

    def prev(self) -> None:
        """Move to the row before."""
        if self._key is not None:
            self._move(bisect_left(self._keys, self._key) - 1, -1)

    def valid(self) -> bool:
        """Whether it is at a row."""
        return self._key is not None

    def status(self) -> None:
        """Raise what has gone wrong: nothing has."""

    def key(self) -> bytes | None:
        """The key of its row, if it is at one."""
        return self._key

    def value(self) -> bytes | None:
        """What its row holds, if it is at one.

        Raises:
            Exception: what is on the disk is not what was written.
        """
        self._check()
        return None if self._key is None else self._rows.value(self._key, self.number)

    def _move(self, at: int, step: int) -> None:
        keys, rows, number = self._keys, self._rows, self.number
        while 0 <= at < len(keys):
            if rows.value(keys[at], number) is not None:
                self._key = keys[at]
                return
            at += step
        self._key = None
