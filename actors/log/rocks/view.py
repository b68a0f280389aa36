"""Shows readers the store as it was after the last sync.

A write is visible in RocksDB before it is synced, and the binding's snapshots do not hold for
iterators. So before a group's first write the writer makes a set of cursors, and readers read from
these, one after the other, until the sync is done; at any other time all that is written is
durable, and a reader makes its own. When a sync fails the old cursors stay until the store is
opened again.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from rillnode.actors.log.rocks.tables import Cursors, Tables
from rillnode.codecs.errors import StoreError


class _Frozen(NamedTuple):
    """Cursors from before a write, and who moves them."""

    cursors: Cursors
    turn: Lock


class DurableView:
    """The tables as one writer thread changes and some reader threads read them."""

    def __init__(self, readers: int) -> None:
        self._tables: Tables | None = None
        self._frozen: _Frozen | None = None
        self._freezes = 0
        # One for each reader, held while it reads, so that replacing the tables can wait for all.
        self._gates = tuple(Lock() for _ in range(readers))

    @contextmanager
    def replaced(self) -> Generator[None, None, None]:
        """Keep readers out, and forget their cursors, which would keep the database open."""
        for gate in self._gates:
            gate.acquire()
        try:
            self._tables = self._frozen = None
            yield
        finally:
            for gate in self._gates:
                gate.release()

    def show(self, tables: Tables) -> None:
        """Let readers in; everything in the tables is durable."""
        self._frozen = None
        self._tables = tables

    def freeze(self) -> None:
        """Show what is there now until `thaw`: called before the first write of a group."""
        assert self._tables is not None
        self._frozen = _Frozen(self._tables.cursors(), Lock())
        self._freezes += 1

    def thaw(self) -> None:
        """Show everything: the group is durable."""
        self._frozen = None

    def read(self, reader: int, work: Callable[[Cursors], None]) -> None:
        """Let the reader of this number work with cursors over what is durable.

        Raises:
            StoreError: the store is being repaired.
            Exception: whatever the work raises.
        """
        with self._gates[reader]:
            found = self._cursors()
            if isinstance(found, _Frozen):
                with found.turn:
                    work(found.cursors)
            else:
                work(found)

    def _cursors(self) -> Cursors | _Frozen:
        while True:
            freezes = self._freezes
            tables, frozen = self._tables, self._frozen
            if frozen is not None:
                return frozen
            if tables is None:
                raise StoreError("store.repair", "the store is being repaired: ask again")
            cursors = tables.cursors()
            # A group may have begun meanwhile, and then these show it too early.
            if freezes == self._freezes:
                return cursors
