"""Secondary keys in their order: a scratch database of what was listed, on this machine's disk.

JetStream has the keys of a log where its frames stand, in no order. The first listing of a log
reads all of it and leaves its keys here; later ones read on from there. The database is SQLite's
temporary one: some megabytes of it are in memory, the rest is a file without a name in the
directory for temporary files (SQLITE_TMPDIR, TMPDIR, /var/tmp), which is gone when the process is.

    keys    log u64 | secondary key | index u64

When it is full, all that it holds is forgotten, and read again when it is listed again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from rillnode.actors.storage import ListKeys
from rillnode.actors.storage.completion import closed_error
from rillnode.actors.storage.layout import INDEX, LOG_KEY, split_key
from rillnode.codecs.errors import StoreError

A = TypeVar("A")

_PAGE_BYTES: Final = 4_096
_CACHE_BYTES: Final = 16_777_216
_LOGS_AT_ONCE: Final = 4
"""Logs read at one time, a part of each."""

_ROWS_MAX: Final = 2**62
"""More than anybody asks for; SQLite's numbers have a sign."""


@dataclass(slots=True, eq=False)
class IndexedLog:
    """What the index has of one log.

    Attributes:
        until: it has the keys of all frames up to this sequence.
        keys: about so many.
        purged: and none that lead to an entry before this one.
        waiting: keys of the frames past `waiting_after` up to `waiting_until`, not in it yet.
        listed_at: when it was listed last, on the loop's clock.
    """

    until: int = 0
    keys: int = 0
    purged: int = 0
    waiting: list[bytes] = field(default_factory=list[bytes])
    waiting_after: int = 0
    waiting_until: int = 0
    listed_at: float = 0.0

    def wait_after(self, sequence: int) -> list[bytes]:
        """Gather keys of the frames past this one; returns those gathered so far."""
        gathered, self.waiting = self.waiting, []
        self.waiting_after = self.waiting_until = sequence
        return gathered


class KeyIndex:
    """The keys of all logs of a store that were listed; its work is done in a thread.

    Attributes:
        logs: what it has of each log.
        reading: held while a part of a log is read for its keys.
    """

    def __init__(self, bytes_max: int, logs_max: int) -> None:
        self._bytes_max = bytes_max
        self._logs_max = logs_max
        self._database: sqlite3.Connection | None = None
        self._lock = asyncio.Lock()
        # One thread, so that work whose asker was cancelled is over before other work begins.
        self._thread = ThreadPoolExecutor(1, "store-keys")
        self._closed = False
        self.logs: dict[int, IndexedLog] = {}
        self.reading = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def of(self, log: int) -> IndexedLog:
        """What there is of a log, be it nothing yet."""
        indexed = self.logs.get(log)
        if indexed is None:
            if len(self.logs) >= self._logs_max:
                await self._clear()
            indexed = self.logs.setdefault(log, IndexedLog())
        return indexed

    async def add(self, log: int, keys: Sequence[bytes], *, after: int, until: int) -> None:
        """Add the keys of a log's frames past `after` up to `until`.

        Raises:
            StoreError: `store.keys`, they do not fit; `store.busy`, what it had of this log went
                meanwhile to make room for others.
        """
        prefix = LOG_KEY.pack(log)
        rows = [(prefix + key,) for key in keys]
        async with self._lock:
            indexed = self.logs.get(log)
            if indexed is None or indexed.until != after:
                raise _busy_error()
            await self._run(log, lambda database: _insert(database, rows))
            indexed.until = until
            indexed.keys += len(rows)

    async def page(
        self, operation: ListKeys, *, first_index: int, until: int
    ) -> list[tuple[bytes, int]]:
        """What a listing wants of the keys that lead to `first_index` or beyond.

        Args:
            operation: the listing.
            first_index: the first entry kept.
            until: of all frames up to this sequence, at least.

        Raises:
            StoreError: as `add`.
        """
        prefix, order = LOG_KEY.pack(operation.log), "DESC" if operation.reverse else "ASC"
        end = LOG_KEY.pack(operation.log + 1)
        if operation.end is not None:
            end = prefix + operation.end
        values = (prefix + operation.start, end, INDEX.pack(first_index))

        def found(database: sqlite3.Connection) -> list[tuple[bytes]]:
            return database.execute(
                "SELECT place FROM keys WHERE place >= ? AND place < ? AND substr(place, -8) >= ?"
                f" ORDER BY place {order} LIMIT ?",
                (*values, min(operation.limit, _ROWS_MAX)),
            ).fetchall()

        async with self._lock:
            indexed = self.logs.get(operation.log)
            if indexed is None or indexed.until < until:
                raise _busy_error()
            rows = await self._run(operation.log, found)
        return [split_key(place[LOG_KEY.size :]) for (place,) in rows]

    async def purge(self, log: int, first_index: int) -> None:
        """Forget keys of a log that lead to entries before this one."""
        values = (LOG_KEY.pack(log), LOG_KEY.pack(log + 1), INDEX.pack(first_index))

        def delete(database: sqlite3.Connection) -> None:
            database.execute(
                "DELETE FROM keys WHERE place >= ? AND place < ? AND substr(place, -8) < ?", values
            )

        async with self._lock:
            await self._run(log, delete)

    async def forget(self, log: int) -> None:
        """Forget all of a log."""
        self.logs.pop(log, None)
        await self.purge(log, 2**64 - 1)

    async def close(self) -> None:
        """Give the disk back; what is asked for later is refused."""
        self._closed = True
        await self._clear()
        self._thread.shutdown(wait=False)

    async def _clear(self) -> None:
        async with self._lock:
            await self._forget_all()

    async def _forget_all(self) -> None:
        self.logs.clear()
        database, self._database = self._database, None
        if database is not None:
            await self._in_thread(database.close)

    async def _run(self, log: int, work: Callable[[sqlite3.Connection], A]) -> A:
        """Work for a log while the lock is held.

        A database that fails has no journal to mend it: it is thrown away before others use it.

        Raises:
            StoreError: it has failed, or is closed.
        """
        if self._closed:
            raise closed_error()
        try:
            if self._database is None:
                self._database = await self._in_thread(partial(_open, self._bytes_max))
            return await self._in_thread(partial(work, self._database))
        except sqlite3.Error as error:
            others = sum(one.keys for number, one in self.logs.items() if number != log)
            own = self.logs[log].keys if log in self.logs else 0
            await self._forget_all()
            crowded = _is_full(error) and others > own
            raise _busy_error() if crowded else _unkept_error(error) from error

    async def _in_thread(self, work: Callable[[], A]) -> A:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _open(bytes_max: int) -> sqlite3.Connection:
    """An empty database; one that fails is thrown away, so it keeps no journal."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for setting in (
        f"page_size = {_PAGE_BYTES}",
        f"cache_size = {-_CACHE_BYTES // 1_024}",
        f"max_page_count = {bytes_max // _PAGE_BYTES}",
        "journal_mode = OFF",
        "synchronous = OFF",
    ):
        database.execute(f"PRAGMA {setting}")
    database.execute("CREATE TABLE keys (place BLOB PRIMARY KEY) WITHOUT ROWID")
    return database


def _insert(database: sqlite3.Connection, rows: Sequence[tuple[bytes]]) -> None:
    database.execute("BEGIN")
    database.executemany("INSERT OR IGNORE INTO keys VALUES (?)", rows)
    database.execute("COMMIT")


def _is_full(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL


def _busy_error() -> StoreError:
    return StoreError(
        "store.busy", "the secondary keys of other logs took the room of this one's: ask again"
    )


def _unkept_error(error: sqlite3.Error) -> StoreError:
    return StoreError(
        "store.keys",
        f"the secondary keys of this log cannot be kept in their order ({error}): let the stream "
        "keep less, or give the directory for temporary files more room",
        retryable=False,
    )
