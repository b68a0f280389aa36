"""Commits rows to a typed table and to its rejects, both or neither, whatever is killed.

They are two tables, and no transaction spans both. So a *pair* is decided by the transaction of the
rejects, which says what the other table is to get: its files and its positions. Who finds that the
rejects are a pair ahead commits the other half first. Where there are no rejects one transaction is
all there is.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta import add_actions, committing, open_to_write, sync_log
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.erasure import Erasures, sweep
from rillnode.node.spark.parquet import TableFile, remove_files
from rillnode.node.spark.typed.arrays import REJECTS
from rillnode.node.spark.typed.judging import METADATA, Unexpected
from rillnode.node.spark.typed.work import table_files

_PAIR: Final = "rillnode.pair"
"""As what both tables' transactions number pairs."""


class Pairs:
    """A typed table and its rejects.

    Args:
        table: directory or URI of the table.
        rejects: that of its rejects.
        erasures: what was erased of that of which the table is made.
    """

    def __init__(self, table: str, rejects: str, erasures: Erasures) -> None:
        self.table = table
        self.rejects = rejects
        self._erasures = erasures

    def recover(self) -> None:
        """Commit the half that a killed process has left.

        Raises:
            StoreError: `table.pair`, the log of the rejects no longer tells it.
        """
        with committing(self.table):
            self._recover()

    def sweep(self) -> int:
        """Take out of both tables what was erased; returns how many rows that were.

        Raises:
            StoreError: as `recover` and `erasure.sweep`.
        """
        # What a killed process has left may bring erased rows.
        self.recover()
        erased = self._erasures.erased()
        return sum(sweep(one, erased, self.table) for one in (self.table, self.rejects))

    def commit(
        self,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
        *,
        start: Sequence[Transaction] = (),
        end: Sequence[Transaction] = (),
        retried: Sequence[str] | None = None,
        unexpected: Unexpected | None = None,
    ) -> bool:
        """Commit files that are written, and how far the table has come.

        Args:
            files: of the table.
            rejects: of the rejects.
            start: where the table must be still; elsewhere another process has done the work.
            end: where it is then.
            retried: files of the rejects that these ones are made of, and that go.
            unexpected: how many rows did not meet an expectation.

        Returns:
            Whether it was done; where it was not the files are removed.
        """
        with committing(self.table):
            table = self._recover()
            if table is None or not (
                _is_at(table, start) and (retried is None or self._has(retried))
            ):
                remove_files(self.table, [one.name for one in files])
                remove_files(self.rejects, [one.name for one in rejects])
                return False
            files = self._erasures.keep_out(self.table, files)
            rejects = self._erasures.keep_out(self.rejects, rejects)
            if not rejects and retried is None:
                actions = add_actions(files, data_change=True)
                commit_files(self.table, table, actions, list(end), _told(unexpected))
                return True
            log = open_to_write(self.rejects, Schema.from_arrow(REJECTS))
            number = (log.transaction_version(_PAIR) or 0) + 1
            actions = add_actions(rejects, data_change=True)
            now_ms = time.time_ns() // 1_000_000
            actions += [
                RemoveAction(one, data_change=True, deletion_timestamp=now_ms)
                for one in retried or ()
            ]
            pair = {
                "number": number,
                "files": [asdict(one) for one in files],
                "positions": [[one.app_id, one.version] for one in end],
                METADATA: unexpected or {},
            }
            commit_files(self.rejects, log, actions, [Transaction(_PAIR, number)], {"pair": pair})
            self._finish(table, pair)
            return True

    def _recover(self) -> DeltaTable | None:
        table, rejects = open_table(self.table), open_table(self.rejects)
        if table is None or rejects is None:
            return table
        number = rejects.transaction_version(_PAIR) or 0
        if number <= (table.transaction_version(_PAIR) or 0):
            return table
        for commit in rejects.history():
            pair = cast("dict[str, Any]", commit.get("pair") or {})
            if pair.get("number") == number:
                self._finish(table, pair)
                return table
        text = f"the log of {self.rejects} no longer tells what {self.table} was to get with it"
        raise StoreError("table.pair", f"{text}: remove both directories, and they are made anew")

    def _finish(self, table: DeltaTable, pair: dict[str, Any]) -> None:
        positions = [Transaction(name, version) for name, version in pair["positions"]]
        positions.append(Transaction(_PAIR, pair["number"]))
        files = table_files(pair["files"])
        actions = add_actions(files, data_change=True)
        commit_files(self.table, table, actions, positions, _told(pair.get(METADATA)))

    def _has(self, names: Sequence[str]) -> bool:
        """Whether the rejects still have files."""
        rejects = open_table(self.rejects)
        return rejects is not None and set(names) <= set(paths_of(rejects))


def paths_of(table: DeltaTable) -> list[str]:
    """The paths of a table's files, as its log has them."""
    return cast("list[str]", pa.table(table.get_add_actions()).column("path").to_pylist())


def _told(unexpected: Unexpected | None) -> dict[str, Any]:
    return {METADATA: unexpected} if unexpected else {}


def _is_at(table: DeltaTable, start: Sequence[Transaction]) -> bool:
    return all(table.transaction_version(one.app_id) in (None, one.version) for one in start)


def commit_files(
    location: str,
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    positions: list[Transaction],
    metadata: dict[str, Any] | None = None,
) -> None:
    """Commit one of the two tables; it is durable when this returns.

    Args:
        location: where the table is.
        table: the table; as of now afterwards.
        actions: what becomes of its files.
        positions: what its transactions are to say.
        metadata: what they say beside: what the other table is to get with this, and counts.
    """
    before = table.version()
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        commit_properties=CommitProperties(app_transactions=positions, custom_metadata=metadata),
    )
    table.update_incremental()
    sync_log(location, before, table.version())
