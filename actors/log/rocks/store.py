"""RocksLogStore: the durable log in one directory of this machine, on RocksDB.

Its parts: `tables` opens and writes RocksDB, `layout` says what stands there, `commit` carries out
one group of writes and `writer` runs it and repairs what fails; `reads` answers, `readers` runs
it, `view` keeps from them what is not synced yet, and `tail` answers without them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rillnode.actors.core.threads import SYSTEM_THREADS, Threads
from rillnode.actors.log import (
    AnyWatch,
    Checkpoint,
    Complete,
    OnHealth,
    Read,
    ReadOperation,
    StoreHealth,
    WriteOperation,
)
from rillnode.actors.log.directories import make_directory
from rillnode.actors.log.rocks.commit import GroupCommit, MakeCommit, Rest
from rillnode.actors.log.rocks.format import (
    MIGRATIONS,
    Migration,
    check_copied,
    settle_format,
)
from rillnode.actors.log.rocks.layout import COPY_KEY
from rillnode.actors.log.rocks.readers import ReaderPool
from rillnode.actors.log.rocks.tables import OpenTables, Tables, Tuning, open_error
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.actors.log.rocks.writer import AtTurnsEnd, Writer
from rillnode.codecs.errors import StoreError

_DEFAULT_TUNING = Tuning()


class RocksLogStore:
    """A LogStore on RocksDB.

    `complete` and `on_health` are called from the store's threads. `complete` is called from the
    caller's own, too, where a submission is refused, and for small groups where `at_turns_end` is
    given and syncs are quick: these are committed there. An uncached disk read holds Python's
    interpreter lock while the disk answers (the binding does not release it), whichever thread
    makes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        complete: Complete,
        on_health: OnHealth,
        tuning: Tuning = _DEFAULT_TUNING,
        open_tables: OpenTables = Tables,
        make_commit: MakeCommit = GroupCommit,
        migrations: Mapping[int, Migration] = MIGRATIONS,
        threads: Threads = SYSTEM_THREADS,
        at_turns_end: AtTurnsEnd | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._tuning = tuning
        self._open = open_tables
        self._migrations = migrations
        self._tail = TailCache(tuning.tail_bytes_max)
        view = DurableView(tuning.readers)
        self._readers = ReaderPool(
            view,
            readers=tuning.readers,
            reads_max=tuning.reads_max,
            complete=complete,
            threads=threads,
        )
        self._writer = Writer(
            self._path,
            tuning,
            view=view,
            tail=self._tail,
            open_tables=self._open_tables,
            make_commit=make_commit,
            complete=complete,
            on_health=on_health,
            threads=threads,
            at_turns_end=at_turns_end,
        )

    @property
    def health(self) -> StoreHealth:
        """The state now."""
        return self._writer.health

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed."""
        return self._writer.pending_bytes

    def open(self) -> None:
        """Open or create, migrate, start the threads.

        Raises:
            StoreError: newer format, locked by another process, or unreadable.
        """
        self._prepare()
        self._writer.start(self._open_tables())
        self._readers.start()

    def close(self) -> None:
        """Complete what was submitted, then close; harmless when repeated."""
        self._readers.stop()
        self._writer.stop()
        self._tail.clear()

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write; while the store cannot write it is completed with an error at once."""
        self._writer.submit(operation)

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once out of the tail cache (True), or later through `complete` (False)."""
        if isinstance(operation, Read) and self._tail.read(operation):
            return True
        self._readers.submit(operation)
        return False

    def watch(self, operation: AnyWatch) -> None:
        """Nobody else writes to it: there is never anything to tell."""

    def describe(self) -> Mapping[str, Any]:
        """Nothing: no others write to its logs."""
        return {}

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a consistent copy of the store; completed, as a write is, through `complete`."""
        self._writer.submit(operation)

    def rest(self) -> None:
        """Begin to write out what RocksDB keeps in memory of what was written."""
        self._writer.submit(Rest())

    def _prepare(self) -> None:
        """Make the directory; once, as one that is gone later must not be replaced by an empty one.

        Raises:
            StoreError: that is not possible.
        """
        try:
            make_directory(self._path)
        except OSError as error:
            raise open_error(self._path, error) from error

    def _open_tables(self) -> Tables:
        tables = self._open(self._path, self._tuning)
        try:
            settle_format(tables, self._path, self._migrations)
            check_copied(tables.record(COPY_KEY) is not None)
        except StoreError:
            tables.close()
            raise
        except Exception as error:
            tables.close()
            raise open_error(self._path, error) from error
        return tables
