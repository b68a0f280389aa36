"""Makes and changes the table that entries are landed in, and keeps the history of its schemas.

Columns only come: at the table's end, or within a struct. Files keep what they have, and readers
find nulls in the place of what they lack. That whole numbers become floating-point ones is the one
change that writes the files anew, in one transaction; readers of older versions go on.

Each schema is a file `_schemas/N.json` in the table's directory, written before the table changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from pyarrow import fs

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta import (
    add_actions,
    committing,
    create_table,
    sync_log,
    upgrade_statistics,
)
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.files import local_path, replace_file
from rillnode.node.spark.parquet import filesystem, remove_files, write_files
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.statistics import arrow_schema_of, names_its_statistics
from rillnode.node.spark.typed.arrays import REST, arrow_field, columns_of, table_schema
from rillnode.node.spark.typed.columns import (
    Column,
    Columns,
    check_columns,
    merge_columns,
    unfit_name,
    walk,
    widened,
    written_columns,
)
from rillnode.node.spark.typed.schemas import Schema as Declared

_READ_ROWS: Final = 8_192
_ATTEMPTS: Final = 3


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One schema of a table's history.

    Attributes:
        version: its number, from 1.
        at: since when.
        why: what has changed it.
        columns: its columns, as in TOML.
    """

    version: int
    at: datetime
    why: str
    columns: dict[str, Any]


def present_columns(table: DeltaTable | None) -> Columns:
    """The columns that a table has now; none where there is no table yet.

    Raises:
        ConfigError: `table.schema`, it is no typed table.
    """
    if table is None:
        return ()
    schema = arrow_schema_of(table)
    if "_stream" not in schema.names:
        text = f"{table.table_uri} is a table of another kind: give this one a dir of its own"
        raise ConfigError("table.schema", text)
    return columns_of(schema)


def usable(present: Columns, found: Columns) -> Columns:
    """Those of some new columns that a table can take in."""
    taken: list[Column] = []
    for one in _without_unfit(found):
        try:
            check_columns(merge_columns(present, (*taken, one), widen=False))
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
        location: the table's directory or URI.
        widen: whether whole numbers may become floating-point ones.
        rest: whether `_rest` is kept.
    """

    def __init__(self, location: str, *, widen: bool, rest: bool) -> None:
        self._location = location
        self._widen = widen
        self._rest = rest
        self._history: list[SchemaVersion] | None = None
        self._declared: Columns = ()

    def open(self) -> DeltaTable | None:
        """The table as of now; None before it is made."""
        return open_table(self._location)

    def present(self) -> Columns:
        """The columns that it has now."""
        return present_columns(self.open())

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, the present one last."""
        if self._history is None:
            self._history = list(read_history(self._location))
        return self._history

    def declare(self, declared: Declared, why: str) -> tuple[DeltaTable, Columns]:
        """Make the table, or let it become what is declared; gives it with its columns.

        Raises:
            ConfigError: a column would have to change its type.
        """
        self._declared = declared.columns
        return self._become(declared.columns, why)

    def take_in(self, found: Columns, wide: Sequence[Sequence[str]]) -> tuple[DeltaTable, Columns]:
        """Let the table have what entries have been found to have.

        Raises:
            ConfigError: it cannot be so.
        """
        present = present_columns(self.open())
        wanted = widened(merge_columns(present, self._declared, widen=self._widen), wide)
        names = [one.name for one in found] + [".".join(filter(None, one)) for one in wide]
        why = f"entries had {', '.join(names)}"[:500]
        return self._become(merge_columns(wanted, found, widen=False), why)

    def _become(self, wanted: Columns, why: str) -> tuple[DeltaTable, Columns]:
        table = self.open()
        present = present_columns(table)
        merged = merge_columns(present, wanted, widen=self._widen)
        # What is declared says which columns every entry has; the table itself does not know.
        merged = merge_columns(merged, self._declared, widen=self._widen)
        check_columns(merged)
        self._note(merged, why)
        had_rest = table is not None and REST.name in arrow_schema_of(table).names
        schema = table_schema(merged, rest=self._rest or had_rest)
        if table is None:
            return create_table(self._location, Schema.from_arrow(schema)), merged
        target = columns_of(schema)
        if _widens(present, target):
            self._rewrite(schema)
        else:
            self._add(table, present, target, rest=self._rest and not had_rest)
        table = DeltaTable(self._location)
        if not names_its_statistics(table):
            upgrade_statistics(self._location)
            table.update_incremental()
        return table, merged

    def _add(self, table: DeltaTable, present: Columns, target: Columns, *, rest: bool) -> None:
        had = {one.name: one for one in present}
        fields = [arrow_field(one) for one in target if had.get(one.name) != one]
        if rest:
            fields.append(REST)
        if fields:
            before = table.version()
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(fields)).fields))
            table.update_incremental()
            sync_log(self._location, before, table.version())

    def _rewrite(self, schema: pa.Schema) -> None:
        """Write all files anew with other types, in one transaction.

        Raises:
            StoreError: somebody else commits all the time.
        """
        for _ in range(_ATTEMPTS):
            table = DeltaTable(self._location)
            before = table.version()
            ordered = _ordered(arrow_schema_of(table), schema)
            files = list(write_files(self._location, _rows(table, ordered)))
            with committing(self._location):
                table.update_incremental()
                if table.version() == before:
                    table.create_write_transaction(
                        add_actions(files, data_change=True),
                        "overwrite",
                        Schema.from_arrow(ordered),
                        commit_properties=CommitProperties(max_commit_retries=0),
                    )
                    table.update_incremental()
                    sync_log(self._location, before, table.version())
                    return
            remove_files(self._location, [one.name for one in files])
        text = f"{self._location} is written by others all the time, and cannot be widened"
        raise StoreError("table.busy", text)

    def _note(self, columns: Columns, why: str) -> None:
        history = self.history()
        written = written_columns(columns)
        if history and history[-1].columns == written:
            return
        number = history[-1].version + 1 if history else 1
        noted = SchemaVersion(version=number, at=datetime.now(UTC), why=why, columns=written)
        _write(f"{self._location}/_schemas/{number:06}.json", msgspec.json.encode(noted))
        history.append(noted)


def read_history(location: str) -> Iterator[SchemaVersion]:
    """All schemas that the table of a directory or URI has had, in order."""
    system, root = filesystem(location)
    selector = fs.FileSelector(f"{root}/_schemas", allow_not_found=True)
    for one in sorted(system.get_file_info(selector), key=lambda info: str(info.path)):
        if one.base_name.endswith(".json"):
            with system.open_input_stream(one.path) as stream:
                yield msgspec.json.decode(stream.read(), type=SchemaVersion)


def _write(location: str, content: bytes) -> None:
    local = local_path(location)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        replace_file(local, content)
        return
    system, path = filesystem(location)
    with system.open_output_stream(path) as stream:
        stream.write(content)


def _widens(present: Columns, target: Columns) -> bool:
    kinds = {path: one.kind for path, one in walk(present)}
    return any(kinds.get(path, one.kind) != one.kind for path, one in walk(target))


def _ordered(present: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The fields of a schema in the order in which a table has them, new ones last."""
    names = [one for one in present.names if one in wanted.names]
    names += [one for one in wanted.names if one not in present.names]
    return pa.schema([wanted.field(one) for one in names])


def _rows(table: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for uri in table.file_uris():
        system, path = filesystem(uri)
        with pq.ParquetFile(path, filesystem=system) as parquet:
            for rows in parquet.iter_batches(batch_size=_READ_ROWS):
                yield conform(rows, schema)
