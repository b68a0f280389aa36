"""Erases what a predicate names from all tables that one bronze table's entries are in.

Bronze is looked through entry by entry, decoded as the typed table would, and so are its rejects,
column by column, and the table itself: an entry is found that is not landed yet, that did not fit,
or whose key has a newer row.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs

from rillnode.actors.core.patterns import matcher
from rillnode.node.entries import Readers
from rillnode.node.spark import maintenance, upsert
from rillnode.node.spark.bronze import read_file, streams_in
from rillnode.node.spark.delta_log import (
    ERASURE,
    LogFile,
    Numbered,
    TableLog,
    open_table,
    saved_position,
)
from rillnode.node.spark.erasure import PLACES, Erased, Erasures, applied, counted, ranges_of, sweep
from rillnode.node.spark.explaining import FAILURES, explain
from rillnode.node.spark.files import filesystem, remove_files
from rillnode.node.spark.job_config import DerivedConfig, TypedConfig, ViewConfig
from rillnode.node.spark.querying import connect
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import DERIVED, GOLD
from rillnode.node.spark.typed.arrays import REJECTS
from rillnode.node.spark.typed.columns import Columns, written_columns
from rillnode.node.spark.typed.decode import Lander, Plan, said_by
from rillnode.node.spark.typed.delta_store import REWRITTEN_KEEP_HOURS, stores_of
from rillnode.node.spark.typed.judging import Flags, Predicates
from rillnode.node.spark.typed.query import Pairs
from rillnode.node.spark.typed.store import present_columns
from rillnode.node.spark.typed.tables import of_stream

if TYPE_CHECKING:  # few have what it needs
    from rillnode.node.spark.typed.iceberg_store import IcebergStore

SWEEP_SECONDS: Final = 20.0
"""Time between two looks at whether an erasure was left undone."""
_WHERE: Final = "where"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The tables that the entries of one bronze table are in.

    Attributes:
        bronze: directory or URI of the bronze table.
        derived: silver and gold; None where there are none.
        typed: the typed tables.
        views: the views of typed tables.
    """

    bronze: str
    derived: DerivedConfig | None
    typed: tuple[TypedConfig, ...]
    views: tuple[ViewConfig, ...] = ()

    @property
    def silver(self) -> str | None:
        """Directory or URI of silver."""
        return None if self.derived is None else self.derived.silver_dir

    def gold(self, *, followers: bool = False) -> list[str]:
        """The gold tables and the views of silver; only those that follow bronze, or all."""
        if self.derived is None:
            return []
        views = [one.dir for one in self.derived.views]
        if self.derived.gold_dir is None:
            return views
        root = self.derived.gold_dir.rstrip("/")
        return [*(f"{root}/{one.name}" for one in (DERIVED if followers else GOLD)), *views]

    def typed_of(self, streams: Sequence[str]) -> Iterator[TypedConfig]:
        """The typed tables that may have entries of some streams, those of single streams too."""
        for config in self.typed:
            matches = [matcher(one) for one in config.streams]
            mine = [name for name in streams if any(one(name) for one in matches)]
            if not config.of_each_stream:
                yield from [config] if mine else []
            else:
                yield from (of_stream(config, name) for name in mine)

    def views_of(self, streams: Sequence[str]) -> dict[str, str]:
        """The views of typed tables that may have entries of some streams, with these tables."""
        tables = {one.name: one.dir for one in self.typed_of(streams)}
        return {one.dir: tables[one.of] for one in self.views if one.of in tables}

    def iceberg_of(self, streams: Sequence[str]) -> "Iterator[IcebergStore]":
        """The Iceberg tables that may have entries of some streams, and their rejects."""
        for config in self.typed_of(streams):
            if config.catalog is not None:
                yield from cast("tuple[IcebergStore, IcebergStore]", stores_of(config))


@dataclass(frozen=True, slots=True)
class Match:
    """The entries that a predicate names.

    Attributes:
        ranges: their places.
        entries: how many there are.
        unread: rejects of the table whose columns cannot be read, so that no predicate on them
            finds them.
    """

    ranges: pa.Table
    entries: int
    unread: int


def find(lake: Lake, typed: TypedConfig, predicate: str) -> Match:
    """The entries that a predicate on a typed table's columns is true for.

    Raises:
        ConfigError: `table.predicate`, it is no condition on them; or the schema does not load.
    """
    stores = stores_of(typed)
    table, rejects = (one.open() for one in stores)
    rest = table is not None and "_rest" in table.arrow_schema.names
    present = present_columns(table, stores[0].name)
    plan = Plan(
        source=typed.source,
        table=written_columns(present),
        rest=rest,
        # Whatever it has besides, an entry that fits is one.
        evolve="freeze",
        settled=True,
        key_files=typed.key_files,
    )
    lander = Lander(plan)
    predicates = Predicates(lander.schema, {_WHERE: predicate})
    finder = _Finder(lander, predicates, Readers(typed.key_files))
    bronze = open_table(lake.bronze)
    matches = [matcher(one) for one in typed.streams]
    for uri in bronze.file_uris() if bronze is not None else ():
        for rows in read_file(uri):
            names = cast("list[str]", pc.unique(rows.column("stream")).to_pylist())
            mine = [name for name in names if any(one(name) for one in matches)]
            if mine:
                chosen = pc.is_in(rows.column("stream"), value_set=pa.array(mine, pa.string()))
                finder.look_in_bronze(rows.filter(chosen))
    for rows in table.rows() if table is not None else ():
        finder.look(conform(rows, lander.schema))
    unread = 0
    for rows in rejects.rows() if rejects is not None else ():
        unread += finder.look_in_rejects(conform(rows, REJECTS))
    ranges = ranges_of(finder.places)
    entries = pc.sum(pc.subtract(ranges.column("until"), ranges.column("start"))).as_py() or 0
    return Match(ranges, entries, unread)


class _Finder:
    """Collects the places of rows that a predicate is true for."""

    def __init__(self, lander: Lander, predicates: Predicates, readers: Readers) -> None:
        self.places: list[pa.RecordBatch] = []
        self._lander = lander
        self._predicates = predicates
        self._now = datetime.datetime.now(datetime.UTC)
        self._lenient = _Lenient(lander.columns, lander.schema, readers)

    def look_in_bronze(self, rows: pa.RecordBatch) -> None:
        landed = self._lander.land(rows, self._now)
        self.look(landed.rows)
        self.look_in_rejects(landed.rejects)

    def look_in_rejects(self, rejects: pa.RecordBatch) -> int:
        """Look at rows that did not fit; returns how many of them cannot be read."""
        if not rejects.num_rows:
            return 0
        rows, unread = self._lenient.rows(rejects)
        self.look(rows)
        return unread

    def look(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        found: Flags = self._predicates.true(rows)[_WHERE]
        if found.any():
            chosen = rows.filter(pa.array(found))
            arrays = [chosen.column(f"_{one.name}").cast(one.type) for one in PLACES]
            self.places.append(pa.RecordBatch.from_arrays(arrays, schema=PLACES))


class _Lenient:
    """Reads of entries that do not fit what can be read: column by column, else null."""

    def __init__(self, columns: Columns, schema: pa.Schema, readers: Readers) -> None:
        self._readers = readers
        self._schema = schema
        self._kinds = {one.name: one.kind for one in columns}
        self._database = connect()
        self._database.register("wanted", pa.Table.from_batches([], schema=schema))
        described = self._database.execute("DESCRIBE wanted").fetchall()
        types = {str(one[0]): str(one[1]) for one in described}
        self._sql = ", ".join(self._column(name, types[name]) for name in schema.names)

    def rows(self, rejects: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Rejects as rows of the table, and how many of them cannot be read at all."""
        kinds, items = (rejects.column(name).to_pylist() for name in ("kind", "data"))
        entries = zip(kinds, items, strict=True)
        said = [said_by(kind, data or b"", self._readers) for kind, data in entries]
        texts = [None if one is None else msgspec.json.encode(one).decode() for one in said]
        place = [name for name in rejects.schema.names if name in self._schema.names]
        arrays = [rejects.column(name) for name in place]
        table = pa.table([*arrays, pa.array(texts, pa.string())], [*place, "_json"])
        self._database.register("entries", table)
        found: Any = self._database.sql(f"SELECT {self._sql} FROM entries")
        rows = cast("pa.Table", found.to_arrow_table()).cast(self._schema).combine_chunks()
        return rows.to_batches()[0], said.count(None)

    def _column(self, name: str, type_: str) -> str:
        quoted = '"' + name.replace('"', '""') + '"'
        if name not in self._kinds:
            return f"NULL::{type_} AS {quoted}" if name == "_rest" else quoted
        path = "'$.\"" + name.replace("'", "''").replace('"', '\\"') + "\"'"
        text, json = f"(_json ->> {path})", f"(_json::JSON -> {path})"
        match self._kinds[name]:
            case "struct" | "list" | "map":
                value = f"try_cast({json} AS {type_})"
            case "json":
                value = f"{json}::VARCHAR"
            case "timestamp_ms":
                value = f"try(to_timestamp(try_cast({text} AS DOUBLE) / 1000))"
            case "int":
                # A cast would round.
                value = f"try_cast(nullif(regexp_extract({text}, '^-?[0-9]+$'), '') AS BIGINT)"
            case "binary":
                value = f"try(from_base64({text}))"
            case _:
                value = f"try_cast({text} AS {type_})"
        return f"{value} AS {quoted}"


Say = Callable[[str], None]


def sweep_all(lake: Lake, erasures: Erasures, say: Say = lambda _: None) -> None:
    """Take what was erased out of bronze, silver and all typed tables.

    Gold is calculated anew by who makes it.

    Raises:
        StoreError: a table is rewritten by others all the time, or its log is damaged.
    """
    erased = erasures.erased()
    if not erased:
        return

    def tell(place: str, removed: int) -> None:
        if removed:
            say(f"{place}: {removed} rows erased")

    for place in filter(None, (lake.bronze, lake.silver)):
        tell(place, sweep(place, erased))
    for config in lake.typed_of(erased.streams):
        tell(stores_of(config)[0].name, Pairs(*stores_of(config), erasures).sweep())


class Sweeps:
    """Goes on, in a sink's job, with erasures that were begun.

    Args:
        lake: the job's tables.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._erasures = Erasures(lake.bronze)
        self._done, self._due_at = 0, 0.0

    def step(self, now: float, say: Say) -> None:
        """Look for erasures that a table was not swept of, and sweep it; seldom takes long.

        Args:
            now: the monotonic clock's time.
            say: is told what was done, or why it could not be.
        """
        if now < self._due_at:
            return
        self._due_at = now + SWEEP_SECONDS
        try:
            number = self._erasures.erased().number
            if number != self._done:
                sweep_all(self._lake, self._erasures, say)
                self._done = number
        except FAILURES as error:
            say(f"an erasure waits, next attempt in {SWEEP_SECONDS:g} s: {explain(error)[0]}")


def tables_of(lake: Lake, streams: Sequence[str]) -> list[str]:
    """All Delta tables that entries of some streams are in, or figures made of them."""
    return [*_tables_of_rows(lake, streams), *lake.gold(), *lake.views_of(streams)]


def _tables_of_rows(lake: Lake, streams: Sequence[str]) -> list[str]:
    delta = (one for one in lake.typed_of(streams) if one.catalog is None)
    typed = [place for one in delta for place in (one.dir, one.rejects)]
    return [*filter(None, (lake.bronze, lake.silver)), *typed]


def counts(lake: Lake, erased: Erased) -> dict[str, int]:
    """How many rows of each table stand at erased places; gold and views have none."""
    places = _tables_of_rows(lake, erased.streams)
    iceberg = {one.name: one.counted(erased) for one in lake.iceberg_of(erased.streams)}
    return {place: counted(place, erased) for place in places} | iceberg


@dataclass(frozen=True, slots=True)
class Held:
    """The files of a table that are no longer in it, and still on the disk.

    Attributes:
        table: its directory or URI, or its name in a catalog.
        is_swept: whether all that was erased is no longer in it.
        files: old files, which hold what was erased, or may.
        bytes: their sizes.
        until: when they may be removed by the table's own maintenance; None where there are none,
            or where the table was not swept yet.
    """

    table: str
    is_swept: bool
    files: int
    bytes: int
    until: datetime.datetime | None


def held(lake: Lake, erased: Erased) -> Iterator[Held]:
    """What each table's old versions still hold."""
    lag, views = set(lake.gold()) - set(lake.gold(followers=True)), lake.views_of(erased.streams)
    hours = {place: upsert.KEEP_HOURS for place in (*lake.gold(), *views)}
    keyed = (one.dir for one in lake.typed_of(erased.streams) if one.layout.key)
    hours |= dict.fromkeys(keyed, REWRITTEN_KEEP_HOURS)
    for place in tables_of(lake, erased.streams):
        table = open_table(place)
        if table is None or place in lag:
            continue
        sizes = _old_files(place, table)
        is_swept = (
            _has_followed(table, views[place], erased)
            if place in views
            else applied(table) >= erased.number
        )
        until = None
        if sizes and is_swept:
            kept = datetime.timedelta(hours=hours.get(place, maintenance.KEEP_HOURS))
            until = _erased_at(table) + kept
        yield Held(place, is_swept, len(sizes), sum(sizes.values()), until)
    for store in lake.iceberg_of(erased.streams):
        if (iceberg := store.open()) is not None:
            old = iceberg.old_files(erased.number)
            is_swept = applied(iceberg) >= erased.number
            until = None
            if old.newest is not None and is_swept:
                until = old.newest + datetime.timedelta(hours=maintenance.KEEP_HOURS)
            yield Held(store.name, is_swept, len(old.sizes), sum(old.sizes.values()), until)


def _erased_at(table: DeltaTable) -> datetime.datetime:
    """When rows were last erased in a table; of figures, when they were last calculated."""
    history = table.history()
    found = [one["timestamp"] for one in history if ERASURE in one] or [history[0]["timestamp"]]
    return datetime.datetime.fromtimestamp(max(found) / 1_000, datetime.UTC)


def _has_followed(view: DeltaTable, source: str, erased: Erased) -> bool:
    """Whether a view has come to where its table was rid of what was erased."""
    table = open_table(source)
    if table is None or applied(table) < erased.number:
        return False
    erasing = max((one["version"] for one in table.history() if ERASURE in one), default=-1)
    return saved_position(view, str(table.metadata().id)).version >= erasing


def forget_old_files(lake: Lake, erased: Erased) -> tuple[int, dict[str, str]]:
    """Remove the old files of all tables, except those that something has yet to read.

    Who reads an older version of a table then fails.

    Returns:
        How many were removed, and for each table that old files are kept of, what waits for them.
    """
    old = {
        place: set(_old_files(place, table))
        for place in tables_of(lake, erased.streams)
        if (table := open_table(place)) is not None
    }
    kept: dict[str, str] = {}
    # Looked at after the files: what is gone from the table by now nobody begins to read.
    for follower, files in _still_read(lake):
        if waiting := old.get(lake.bronze, set()) & {one.path for one in files}:
            old[lake.bronze] -= waiting
            kept[lake.bronze] = f"{follower} has yet to read {len(waiting)} of them"
    for place, names in old.items():
        remove_files(place, sorted(names))
    iceberg = sum(one.forget() for one in lake.iceberg_of(erased.streams))
    return sum(map(len, old.values())) + iceberg, kept


def _still_read(lake: Lake) -> Iterator[tuple[str, list[LogFile]]]:
    """The files of bronze that each table which is made of it has yet to read."""
    log = TableLog(lake.bronze)
    bronze = log.open()
    if bronze is None:
        return
    source = str(bronze.metadata().id)
    makes = (lake.silver, *lake.gold(followers=True))
    followers: dict[str, Numbered | None] = {one: open_table(one) for one in makes if one}
    for config in lake.typed_of(sorted(streams_in(bronze.file_uris()))):
        store, _ = stores_of(config)
        followers[store.name] = store.open()
    for place, table in followers.items():
        position = saved_position(table, source)
        if position.base >= 0:
            files = log.files_between(position, log.plan(position, None))
            if place == lake.silver and lake.gold():
                # Gold counts what bronze had where silver is.
                files += log.files_at(position)
            yield place, files


def _old_files(place: str, table: DeltaTable) -> dict[str, int]:
    """Files of a local table or one in a store that are no longer in it, with their sizes."""
    names = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    system, root = filesystem(place)
    found = system.get_file_info([f"{root}/{name}" for name in names]) if names else []
    return {
        name: int(info.size)
        for name, info in zip(names, found, strict=True)
        if info.type == fs.FileType.File
    }
