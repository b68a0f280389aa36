"""Keeps one row for each key of a typed table, the latest, and none where that one deletes it.

Tasks write what they have landed to files that no commit adds. Whoever commits reads of them which
entry of each key is the latest, the table's own row and what was deleted before included, and lets
delta-rs merge these: in one transaction with how far the table has come.

Of two entries of one partition the later index is the latest. Of two partitions' it is that of the
partition that has had the later time of the key, or else later receipt; then the higher partition.
So the table is the same in whatever order partitions are read. An entry that comes after a later
one changes nothing, and is counted as *superseded*. What has been deleted is remembered for some
days, beside the table: an older entry of another partition does not bring it back. So is the time
that a row's partition has had, where the row itself has an older one.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from pyarrow import fs

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta import read_rows, sync_commits
from rillnode.node.spark.delta_log import arrow_schema_of
from rillnode.node.spark.erasure import Erased
from rillnode.node.spark.files import filesystem, local_path, remove_files, sync_files
from rillnode.node.spark.parquet import TableFile, file_rows
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.typed.arrays import table_schema
from rillnode.node.spark.typed.columns import Columns
from rillnode.node.spark.typed.judging import SUPERSEDED, Predicates, counted
from rillnode.node.spark.typed.layout import RECEIVED, Layout
from rillnode.node.spark.typed.store import Conflict
from rillnode.node.spark.typed.times import order_times

DELETED: Final = "_deleted"
"""The column, of files that are to be merged only, that says whether a row deletes its key."""
REMEMBER_DAYS: Final = 7
REMEMBERED_MAX: Final = 1_000_000
"""Keys that were deleted which are remembered, about; and as many times of others."""

_FILES_MAX: Final = 64
_SMALL_ROWS: Final = 10_000
_DELETES: Final = "_deletes"
_TIMES: Final = "_times"
_TIME: Final = "_time"
_WHERE: Final = ("_stream", "_created_at", "_partition", "_index")


class Marker:
    """Marks the rows that delete their key.

    Args:
        layout: how the table is kept.
        schema: its columns.

    Raises:
        ConfigError: `table.layout`, `delete_when` is no condition on these columns.
    """

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self._layout = layout
        wanted = {DELETED: layout.delete_when} if layout.delete_when else {}
        try:
            self._predicates = Predicates(schema, wanted) if wanted else None
        except ConfigError as error:
            raise ConfigError("table.layout", f"delete_when: {error.text}") from error

    def mark(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they are merged."""
        if not self._layout.key:
            return rows
        deletes = pa.repeat(pa.scalar(False), rows.num_rows)
        if self._predicates is not None:
            deletes = pa.array(self._predicates.true(rows)[DELETED], pa.bool_())
        return rows.append_column(DELETED, deletes)


def check_delete_when(layout: Layout, columns: Columns, *, rest: bool) -> None:
    """Check that a table of these columns can have its `delete_when`.

    Raises:
        ConfigError: `table.layout`, it is no condition on them.
    """
    Marker(layout, table_schema(columns, rest=rest))


def null_keys(rows: pa.RecordBatch, layout: Layout) -> dict[int, str]:
    """The rows that have no key, by number, and what they lack."""
    found: dict[int, str] = {}
    for name in reversed(layout.key):
        column = rows.column(name)
        if column.null_count:
            numbers: list[int] = pc.indices_nonzero(pc.is_null(column)).to_pylist()
            found |= dict.fromkeys(numbers, f"the key {name} is null")
    return found


class _Entry(NamedTuple):
    """What is known of the latest entry of a key.

    Attributes:
        log: its stream, when that was created, and its partition.
        number: its index there.
        time: the latest time that the key has had in this log until then, in microseconds.
        deletes: whether it deletes the key.
        at: which of the rows to merge it is; -1 where it is in the table, or was.
        is_behind: whether its own time is an older one.
    """

    log: tuple[str, Any, int]
    number: int
    time: int
    deletes: bool
    at: int
    is_behind: bool = False

    def is_before(self, other: "_Entry") -> bool:
        """Whether an entry of the same key is later."""
        if self.log == other.log:
            return self.number < other.number
        return self._order < other._order

    def after(self, other: "_Entry") -> "_Entry":
        """The entry as the latest, where another one of its key was until then."""
        if self.log == other.log and self.time < other.time:
            return self._replace(time=other.time, is_behind=True)
        return self

    @property
    def _order(self) -> tuple[int, int, str, str]:
        stream, created_at, partition = self.log
        return self.time, partition, stream, str(created_at)


_Key = tuple[Any, ...]


class Keyed:
    """Merges rows into one table by their key.

    Args:
        location: the table's directory or URI.
        layout: how its rows are kept.
    """

    def __init__(self, location: str, layout: Layout) -> None:
        self._location = location
        self._layout = layout
        self._deletes = _Remembered(f"{location}/{_DELETES}")
        self._times = _Remembered(f"{location}/{_TIMES}")

    def merge(
        self,
        table: DeltaTable,
        files: Sequence[TableFile],
        numbers: Sequence[Transaction],
        noted: Mapping[str, Any],
    ) -> None:
        """Merge the rows of files, in one transaction; it is durable when this returns.

        Args:
            table: the table; as of now afterwards.
            files: files that no commit has added, which go.
            numbers: what the transaction leaves.
            noted: what it says beside.

        Raises:
            Conflict: another writer was first, and nothing was done.
            StoreError: `table.pair`, one of the files is gone; `table.key`, another writer has
                added rows of keys that there are.
        """
        schema = arrow_schema_of(table)
        latest, superseded = self._latest(table, files, schema)
        left = list(numbers)
        if superseded:
            left += counted(table, {SUPERSEDED: superseded})[1]
        self._remember(latest, files, schema)
        properties = CommitProperties(
            custom_metadata=dict(noted) or None, max_commit_retries=0, app_transactions=left
        )
        before = table.version()
        try:
            if latest:
                self._merge(table, self._rows(files, latest, schema), schema, properties)
            if table.version() == before:
                # Nothing was there that could change, and delta-rs makes no transaction of that.
                table.create_write_transaction(
                    [], "append", table.schema(), commit_properties=properties
                )
                table.update_incremental()
        except CommitFailedError as error:
            raise Conflict("table.busy", f"{self._location}: {error}") from error
        sync_commits(self._location, before, table.version())
        remove_files(self._location, [one.name for one in files])

    def _merge(
        self,
        table: DeltaTable,
        rows: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        properties: CommitProperties,
    ) -> None:
        marked = schema.append(pa.field(DELETED, pa.bool_()))
        same = " AND ".join(f't."{name}" = s."{name}"' for name in self._layout.key)
        stays = f's."{DELETED}" = false'
        table.merge(
            pa.RecordBatchReader.from_batches(marked, rows),
            same,
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        ).when_matched_delete(f's."{DELETED}" = true').when_matched_update_all(
            stays, except_cols=[DELETED]
        ).when_not_matched_insert_all(stays, except_cols=[DELETED]).execute()

    def erase(self, erased: Erased) -> None:
        """Forget what is remembered of erased entries."""
        self._deletes.erase(erased)
        self._times.erase(erased)

    def _latest(
        self, table: DeltaTable, files: Sequence[TableFile], schema: pa.Schema
    ) -> tuple[dict[int, _Entry], int]:
        """The rows of the files to merge, by number; and how many others came after a later one."""
        wanted = self._wanted(schema)
        read = list(self._read(files, wanted.append(pa.field(DELETED, pa.bool_()))))
        if not read:
            return {}, 0
        among = {
            name: pc.unique(pa.chunked_array([rows.column(name) for rows in read]))
            for name in self._layout.key
        }
        asked = {key for rows in read for key in self._keys(rows)}
        latest: dict[_Key, _Entry] = {}
        present = (conform(rows, wanted) for rows in read_rows(self._location, table, wanted.names))
        held: set[_Key] = set()
        for rows in self._with_times(present):
            found = _among(rows, among)
            self._refuse_doubles(held, found, asked)
            self._take(latest, found, asked)
        for rows in self._times.read():
            self._put_later(latest, _among(rows, among))
        for rows in self._deletes.read():
            self._take(latest, _among(rows, among), asked, deletes=True)
        new: list[tuple[_Key, _Entry]] = []
        at = superseded = 0
        for rows in self._with_times(read):
            new += self._entries(rows, at)
            at += rows.num_rows
        # Files come in any order, and an entry gives its time to the later ones of its log.
        new.sort(key=lambda item: item[1].number)
        for key, one in new:
            if (other := latest.get(key)) is not None and one.is_before(other):
                superseded += 1
            else:
                latest[key] = one if other is None else one.after(other)
        return {one.at: one for one in latest.values() if one.at >= 0}, superseded

    def _take(
        self,
        latest: dict[_Key, _Entry],
        rows: pa.RecordBatch,
        asked: set[_Key],
        *,
        deletes: bool = False,
    ) -> None:
        for key, one in self._entries(rows, None, deletes=deletes):
            # What another writer has added is no entry: whatever comes is later.
            is_entry = None not in (*one.log, one.number, one.time)
            if key not in asked or not is_entry:
                continue
            if (other := latest.get(key)) is None or other.is_before(one):
                latest[key] = one

    def _put_later(self, latest: dict[_Key, _Entry], rows: pa.RecordBatch) -> None:
        """Let rows of the table have the times that their partitions have had before."""
        for key, one in self._entries(rows, None):
            other = latest.get(key)
            if other is not None and (one.log, one.number) == (other.log, other.number):
                latest[key] = other.after(one)

    def _refuse_doubles(self, held: set[_Key], rows: pa.RecordBatch, asked: set[_Key]) -> None:
        """Refuse a second row of a key, which a merge would make like the first one.

        Raises:
            StoreError: `table.key`.
        """
        for key in self._keys(rows):
            if key in held:
                said = ", ".join(
                    f"{name} = {value!r:.80}"
                    for name, value in zip(self._layout.key, key, strict=True)
                )
                raise StoreError(
                    "table.key",
                    f"{self._location} has two rows of the key {said}, of which another writer "
                    "has added one: delete it, and the table goes on",
                )
            if key in asked:
                held.add(key)

    def _keys(self, rows: pa.RecordBatch) -> Iterator[_Key]:
        return zip(*(rows.column(name).to_pylist() for name in self._layout.key), strict=True)

    def _entries(
        self, rows: pa.RecordBatch, first: int | None, *, deletes: bool = False
    ) -> Iterator[tuple[_Key, _Entry]]:
        stream, created_at, partition, index = (rows.column(one).to_pylist() for one in _WHERE)
        logs = zip(stream, created_at, partition, strict=True)
        times = rows.column(_TIME).to_pylist()
        marks = [deletes] * rows.num_rows
        if first is not None:
            marks = rows.column(DELETED).to_pylist()
        for at, (key, log, one, time, mark) in enumerate(
            zip(self._keys(rows), logs, index, times, marks, strict=True)
        ):
            yield key, _Entry(log, one, time, mark, -1 if first is None else first + at)

    def _with_times(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield rows.append_column(_TIME, order_times(rows, self._layout))

    def _wanted(self, schema: pa.Schema) -> pa.Schema:
        """The columns that say which entry of a key is the latest."""
        names = dict.fromkeys((*self._layout.key, *_WHERE, RECEIVED, self._layout.time))
        return pa.schema([schema.field(name) for name in names if name])

    def _read(self, files: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in files:
            try:
                for rows in file_rows(self._location, file.name, schema.names):
                    yield conform(rows, schema)
            except FileNotFoundError as error:
                text = f"{file.name}, which {self._location} was to get, is gone"
                raise StoreError(
                    "table.pair", f"{text}: remove it and its rejects, and they are made anew"
                ) from error

    def _rows(
        self, files: Sequence[TableFile], latest: Mapping[int, _Entry], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows of files that are to be merged, by number."""
        wanted = pa.array(list(latest), pa.int64())
        at = 0
        for rows in self._read(files, schema.append(pa.field(DELETED, pa.bool_()))):
            numbers = pa.array(range(at, at + rows.num_rows), pa.int64())
            yield rows.filter(pc.is_in(numbers, value_set=wanted))
            at += rows.num_rows

    def _remember(
        self, latest: Mapping[int, _Entry], files: Sequence[TableFile], schema: pa.Schema
    ) -> None:
        """Remember the keys that are deleted, before they are, and times that no row tells."""
        deletes = {at: one for at, one in latest.items() if one.deletes}
        behind = {at: one for at, one in latest.items() if one.is_behind and not one.deletes}
        names = [*self._layout.key, *(one for one in _WHERE if one not in self._layout.key)]
        for what, chosen in ((self._deletes, deletes), (self._times, behind)):
            if chosen:
                rows = self._rows(files, chosen, self._wanted(schema))
                found = pa.Table.from_batches([one.select(names) for one in rows if one.num_rows])
                times = pa.array([chosen[at].time for at in sorted(chosen)], pa.int64())
                what.add(found.append_column(_TIME, times))


def _among(rows: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Rows of which each column has one of some values; most others are left out by that."""
    for name, some in values.items():
        rows = rows.filter(pc.is_in(rows.column(name), value_set=some))
    return rows


class _Remembered:
    """Remembers entries of keys for some days, in files that only ever come and go whole.

    A file says nothing but what is in bronze. So it does not matter whether the transaction that it
    was written for has come to be: it is made again, and comes to the same.

    Args:
        location: a directory or URI.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._known: dict[str, pa.Table] = {}

    def read(self) -> Iterator[pa.RecordBatch]:
        """The keys and entries, each with a time."""
        self._load()
        for table in self._known.values():
            yield from table.to_batches()

    def add(self, rows: pa.Table) -> None:
        """Remember more; they are durable when this returns."""
        self._write(rows, datetime.now(UTC))
        self._tidy()

    def erase(self, erased: Erased) -> None:
        """Forget erased entries."""
        self._load()
        for name, rows in list(self._known.items()):
            left = [one.filter(pa.array(~erased.mask(one))) for one in rows.to_batches()]
            kept = pa.Table.from_batches(left, rows.schema)
            if kept.num_rows < rows.num_rows:
                if kept.num_rows:
                    self._write(kept, datetime.fromisoformat(name[:10]).replace(tzinfo=UTC))
                remove_files(self._location, [name])

    def _load(self) -> None:
        system, root = filesystem(self._location)
        selector = fs.FileSelector(root, allow_not_found=True)
        infos = system.get_file_info(selector)
        names = sorted(one.base_name for one in infos if one.base_name.endswith(".parquet"))
        self._known = {
            name: self._known[name]
            if name in self._known
            else pq.read_table(f"{root}/{name}", filesystem=system)
            for name in names
        }

    def _write(self, rows: pa.Table, now: datetime) -> None:
        system, root = filesystem(self._location)
        system.create_dir(root, recursive=True)
        name = f"{now:%Y-%m-%dT%H%M%S.%f}-{uuid.uuid4()}.parquet"
        path = f"{root}/{name}"
        pq.write_table(rows, path, filesystem=system, compression="zstd")
        if local_path(self._location) is not None:
            sync_files([Path(path), Path(root)])

    def _tidy(self) -> None:
        """Forget what is old or too much, and keep a day's in few files."""
        self._load()
        oldest = f"{datetime.now(UTC) - timedelta(days=REMEMBER_DAYS):%Y-%m-%dT%H%M%S.%f}"
        total = 0
        gone: list[str] = []
        for name in sorted(self._known, reverse=True):
            total += self._known[name].num_rows
            if name < oldest or (total > REMEMBERED_MAX and total > self._known[name].num_rows):
                gone.append(name)
        small = [
            name
            for name, rows in self._known.items()
            if rows.num_rows < _SMALL_ROWS and name not in gone
        ]
        for day in {name[:10] for name in small}:
            files = [name for name in small if name.startswith(day)]
            if len(files) > _FILES_MAX:
                merged = pa.concat_tables([self._known[name] for name in files])
                self._write(merged, datetime.fromisoformat(max(files)[:10]).replace(tzinfo=UTC))
                gone += files
        remove_files(self._location, gone)
