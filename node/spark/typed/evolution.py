"""Makes and changes the table that entries are landed in, and keeps the history of its schemas.

Columns only come: at the table's end, or within a struct. Files keep what they have, and readers
find nulls in the place of what they lack. That whole numbers become floating-point ones is the one
change that writes the files anew, in one transaction; readers of older versions go on.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.typed.arrays import REST, columns_of, table_schema
from rillnode.node.spark.typed.columns import (
    Column,
    Columns,
    check_columns,
    merge_columns,
    unfit_name,
    widened,
    written_columns,
)
from rillnode.node.spark.typed.layout import PLAIN, Layout
from rillnode.node.spark.typed.schemas import Schema as Declared
from rillnode.node.spark.typed.store import OpenTable, SchemaVersion, TableStore
from rillnode.node.spark.typed.times import partition_fields


def present_columns(table: OpenTable | None, name: str) -> Columns:
    """The columns that a table has now; none where there is no table yet.

    Raises:
        ConfigError: `table.schema`, it is no typed table.
    """
    if table is None:
        return ()
    schema = table.arrow_schema
    if "_stream" not in schema.names:
        text = f"{name} is a table of another kind: give this one a place of its own"
        raise ConfigError("table.schema", text)
    return columns_of(schema)


def usable(present: Columns, found: Columns, store: TableStore) -> Columns:
    """Those of some new columns that a table can take in."""
    taken: list[Column] = []
    for one in _without_unfit(found):
        try:
            merged = merge_columns(present, (*taken, one), widen=False)
            check_columns(merged)
            store.check(merged)
        except ConfigError:
            continue  # its entries become rejects, which say so
        taken.append(one)
    return tuple(taken)


def _without_unfit(columns: Columns) -> Columns:
    """Columns without those in them whose names no column can have."""
    kept: dict[str, Column] = {}
    for one in columns:
        if one.name and unfit_name(one.name):
            continue
        inner = _without_unfit(one.columns)
        if inner or not one.columns:
            kept.setdefault(one.name.lower(), replace(one, columns=inner))
    return tuple(kept.values())


class TableSchema:
    """A typed table's schema.

    Args:
        store: the table.
        widen: whether whole numbers may become floating-point ones.
        rest: whether `_rest` is kept.
        layout: how its rows are kept.
    """

    def __init__(
        self, store: TableStore, *, widen: bool, rest: bool, layout: Layout = PLAIN
    ) -> None:
        self._layout = layout
        self._store = store
        self._widen = widen
        self._rest = rest
        self._history: list[SchemaVersion] | None = None
        self._declared: Columns = ()

    def present(self) -> Columns:
        """The columns that it has now."""
        return present_columns(self._store.open(), self._store.name)

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, the present one last."""
        if self._history is None:
            self._history = self._store.history()
        return self._history

    def declare(self, declared: Declared, why: str) -> tuple[OpenTable, Columns]:
        """Make the table, or let it become what is declared; gives it with its columns.

        Raises:
            ConfigError: a column would have to change its type.
        """
        self._declared = declared.columns
        return self._become(declared.columns, why)

    def take_in(self, found: Columns, wide: Sequence[Sequence[str]]) -> tuple[OpenTable, Columns]:
        """Let the table have what entries have been found to have.

        Raises:
            ConfigError: it cannot be so.
        """
        present = self.present()
        wanted = widened(merge_columns(present, self._declared, widen=self._widen), wide)
        names = [one.name for one in found] + [".".join(filter(None, one)) for one in wide]
        why = f"entries had {', '.join(names)}"[:500]
        return self._become(merge_columns(wanted, found, widen=False), why)

    def _become(self, wanted: Columns, why: str) -> tuple[OpenTable, Columns]:
        table = self._store.open()
        if table is None:
            self._history = None  # of one that was removed
        merged = merge_columns(present_columns(table, self._store.name), wanted, widen=self._widen)
        # What is declared says which columns every entry has; the table itself does not know.
        merged = merge_columns(merged, self._declared, widen=self._widen)
        check_columns(merged)
        self._store.check(merged)
        had_rest = table is not None and REST.name in table.arrow_schema.names
        self._layout.check(merged)
        own = partition_fields(self._layout)
        schema = table_schema(merged, rest=self._rest or had_rest, own=own)
        noted = self._noted(merged, why)
        table = self._store.become(schema, noted)
        if noted is not None:
            self.history().append(noted)
        return table, merged

    def _noted(self, columns: Columns, why: str) -> SchemaVersion | None:
        """What the history is to say; None where it says so already."""
        history = self.history()
        written = written_columns(columns)
        if history and history[-1].columns == written:
            return None
        number = history[-1].version + 1 if history else 1
        return SchemaVersion(version=number, at=datetime.now(UTC), why=why, columns=written)
