"""Commits rows to a typed table and to its rejects, both or neither, whatever is killed.

They are two tables, and no transaction spans both. So a *pair* is decided by the transaction of the
rejects, which says what the other table is to get: its files and its positions. Who finds that the
rejects are a pair ahead commits the other half first. Where there are no rejects one transaction is
all there is.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.arrays import REJECTS
from rillnode.node.spark.typed.judging import METADATA, Unexpected
from rillnode.node.spark.typed.store import Conflict, OpenTable, TableStore
from rillnode.node.spark.typed.work import table_files

_ATTEMPTS: Final = 5
_PAIR: Final = "rillnode.pair"
"""As what both tables' transactions number pairs."""


class Pairs:
    """A typed table and its rejects.

    Args:
        table: the table.
        rejects: its rejects.
        erasures: what was erased of that of which the table is made.
    """

    def __init__(self, table: TableStore, rejects: TableStore, erasures: Erasures) -> None:
        self.table = table
        self.rejects = rejects
        self._erasures = erasures

    def recover(self) -> None:
        """Commit the half that a killed process has left.

        Raises:
            StoreError: `table.pair`, the log of the rejects no longer tells it, or the table is
                another than theirs.
        """
        with self.table.committing():
            self._recover()

    def sweep(self) -> int:
        """Take out of both tables what was erased; returns how many rows that were.

        Raises:
            StoreError: as `recover` and `erasure.sweep`.
        """
        # What a killed process has left may bring erased rows.
        self.recover()
        erased = self._erasures.erased()
        return sum(one.erase(erased, self.table.committing) for one in (self.table, self.rejects))

    def commit(
        self,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
        *,
        start: Sequence[Transaction] = (),
        end: Sequence[Transaction] = (),
        retried: Sequence[str] | None = None,
        unexpected: Unexpected | None = None,
        columns: pa.Schema | None = None,
    ) -> bool:
        """Commit files that are written, and how far the table has come.

        Args:
            files: of the table.
            rejects: of the rejects.
            start: where the table must be still; elsewhere another process has done the work.
            end: where it is then.
            retried: files of the rejects that these ones are made of, and that go.
            unexpected: how many rows did not meet an expectation.
            columns: those that the table had when its files were written.

        Returns:
            Whether it was done; where it was not the files are removed.

        Raises:
            ConfigError: `table.schema`, another writer has changed or removed columns; the files
                are removed.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Conflict), self.table.committing():
                # Files that hold what was erased are gone then, also for the next attempt.
                files = self.table.allowed(files, self._erasures)
                rejects = self.rejects.allowed(rejects, self._erasures)
                if files and columns is not None:
                    self._refuse_others(columns, files, rejects)
                return self._commit(files, rejects, start, end, retried, unexpected)
        raise self._busy()

    def _commit(
        self,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
        start: Sequence[Transaction],
        end: Sequence[Transaction],
        retried: Sequence[str] | None,
        unexpected: Unexpected | None,
    ) -> bool:
        table = self._recover()
        if table is None or not (_is_at(table, start) and (retried is None or self._has(retried))):
            self.table.remove([one.name for one in files])
            self.rejects.remove([one.name for one in rejects])
            return False
        if not rejects and retried is None:
            table.commit(files, end, noted=_told(unexpected))
            return True
        log = self.rejects.become(REJECTS, None)
        # Of the rejects, too, somebody may have removed what there was.
        number = max(one.transaction_version(_PAIR) or 0 for one in (table, log)) + 1
        pair = {
            "number": number,
            "table": table.id,
            "files": [asdict(one) for one in files],
            "positions": [[one.app_id, one.version] for one in end],
            METADATA: unexpected or {},
        }
        log.commit(rejects, [Transaction(_PAIR, number)], removed=retried or (), pair=pair)
        try:
            _finish(table, pair)
        except Conflict:
            self._recover()
        return True

    def _refuse_others(
        self, columns: pa.Schema, files: Sequence[TableFile], rejects: Sequence[TableFile]
    ) -> None:
        """Keep files out of a table that has no longer the columns that they have."""
        table = self.table.open()
        present = None if table is None else table.arrow_schema
        if present is None:
            return
        kinds = {one.name: one.type for one in present}
        other = [one.name for one in columns if kinds.get(one.name) != one.type]
        if other:
            self.table.remove([one.name for one in files])
            self.rejects.remove([one.name for one in rejects])
            text = f"another writer has changed or removed columns of {self.table.name}"
            raise ConfigError("table.schema", f"{text}: {', '.join(other)}"[:500])

    def _recover(self) -> OpenTable | None:
        for _ in range(_ATTEMPTS):
            table, rejects = self.table.open(), self.rejects.open()
            number = 0 if rejects is None else rejects.transaction_version(_PAIR) or 0
            if number <= (0 if table is None else table.transaction_version(_PAIR) or 0):
                return table
            if not (pair := self.rejects.pair(number)):
                text = f"{self.rejects.name} no longer tells what {self.table.name} was to get"
                raise StoreError("table.pair", f"{text}: remove both, and they are made anew")
            if table is None or pair["table"] != table.id:
                text = f"{self.table.name} was removed, and {self.rejects.name} was not"
                raise StoreError("table.pair", f"{text}: remove both, and they are made anew")
            with suppress(Conflict):
                _finish(table, pair)
                return table
        raise self._busy()

    def _busy(self) -> StoreError:
        return StoreError("table.busy", f"{self.table.name} is written by others all the time")

    def _has(self, files: Sequence[str]) -> bool:
        """Whether the rejects still have files."""
        rejects = self.rejects.open()
        return rejects is not None and set(files) <= set(rejects.files())


def _finish(table: OpenTable, pair: dict[str, Any]) -> None:
    positions = [Transaction(name, version) for name, version in pair["positions"]]
    positions.append(Transaction(_PAIR, pair["number"]))
    noted = _told(pair.get(METADATA))
    table.commit(table_files(pair["files"]), positions, noted=noted)


def _told(unexpected: Unexpected | None) -> dict[str, Any]:
    return {METADATA: unexpected} if unexpected else {}


def _is_at(table: OpenTable, start: Sequence[Transaction]) -> bool:
    return all(table.transaction_version(one.app_id) in (None, one.version) for one in start)
