"""The tables of `node.toml` that say where streams are landed."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.kinds import (
    Count,
    Days,
    Memory,
    Name,
    Seconds,
    SparkMaster,
    TableLocation,
)
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import duplicates, unfit_name, unfit_pattern
from rillnode.node.config.tables import Config
from rillnode.node.spark.catalog_config import Catalog, Format, catalog_problems
from rillnode.node.spark.installed import is_installed
from rillnode.node.spark.typed.columns import Columns
from rillnode.node.spark.typed.expectations import (
    EXPECTATIONS_MAX,
    Expectation,
    read_expectation,
)
from rillnode.node.spark.typed.layout import LATE_SECONDS, Layout
from rillnode.node.spark.typed.schemas import (
    STREAM,
    Evolve,
    Reject,
    SchemaSource,
    load_schema,
    place_of,
)

_TABLE_URL: Final = re.compile(r"s3://[^\s/@?#]+(?:/[^\s@?#]*)?")


class SparkSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job that writes streams into a Delta table, exactly once.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        table_dir: Directory of the table, or its URL in an object store, whose credentials come
            from the environment.
        checkpoint_dir: Directory of the query's checkpoint. Default: `_checkpoints/<name>` in
            `table_dir`, which must be a directory then.
        silver_dir: Directory of the silver table: every event once, decoded. Without it there is
            none.
        gold_dir: Directory of the gold tables: what happened per minute. It needs `silver_dir`.
        duplicate_seconds: How long silver remembers an event, to leave it out if it comes again.
        master: Spark's master URL.
        driver_memory: Heap of the job's Java virtual machine.
        trigger_seconds: Time between two micro-batches.
        batch_rows_max: Rows of one micro-batch.
        hold_bytes_max: Bytes kept for the sink beyond retention; beyond that, entries are trimmed
            and a gap row is recorded.
        key_file: Key of the job on a cluster. Default: a short-lived key that the node makes.
        external: Somebody else starts the job, with `key_file`; the node answers it, and keeps what
            it has not committed.
    """

    name: Annotated[Name, Meta(examples=["bronze"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    table_dir: Annotated[TableLocation, Meta(examples=["data/tables"])]
    checkpoint_dir: Annotated[Path | None, Meta(examples=["data/checkpoints/bronze"])] = None
    silver_dir: Annotated[TableLocation | None, Meta(examples=["data/silver"])] = None
    gold_dir: Annotated[TableLocation | None, Meta(examples=["data/gold"])] = None
    duplicate_seconds: Seconds = 600.0
    master: SparkMaster = "local[2]"
    driver_memory: Memory = "1g"
    trigger_seconds: Seconds = 5.0
    batch_rows_max: Count = 100_000
    hold_bytes_max: Count = 5_000_000_000
    key_file: Annotated[Path | None, Meta(examples=["data/bronze.key"])] = None
    external: bool = False

    @property
    def checkpoint_path(self) -> Path:
        """Where the query's checkpoint lies."""
        return self.checkpoint_dir or Path(self.table_dir, "_checkpoints", self.name)

    @property
    def silver_checkpoint_path(self) -> Path | None:
        """Where the silver query's checkpoint lies; None without silver."""
        if self.silver_dir is None:
            return None
        if self.silver_dir.path is None:
            # Spark cannot write to an object store by itself.
            return self.checkpoint_path.with_name(f"{self.checkpoint_path.name}-silver")
        return self.silver_dir.path / "_checkpoints" / "silver"


class FilesSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that writes streams to files, for a Spark cluster that cannot reach the node.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        directory: Where the files go, to be carried to the cluster from there.
        bytes_max: Bytes of files that may lie there; no more are written until some are taken away.
        trigger_seconds: How often new entries are looked for.
        hold_bytes_max: The same as of a Spark sink, for what is not in files.
    """

    name: Annotated[Name, Meta(examples=["remote"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    directory: Annotated[Path, Meta(examples=["data/outgoing"])]
    bytes_max: Count = 10_000_000_000
    trigger_seconds: Seconds = 5.0
    hold_bytes_max: Count = 5_000_000_000


class SinkTables(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sinks, by kind.

    Attributes:
        spark: Spark sinks.
        files: Sinks into files.
    """

    table: ClassVar[str] = "sink"
    plug_in: ClassVar[str] = "spark"

    spark: tuple[SparkSink, ...] = ()
    files: tuple[FilesSink, ...] = ()

    @property
    def all(self) -> tuple[SparkSink | FilesSink, ...]:
        """The sinks of every kind."""
        return (*self.spark, *self.files)

    @property
    def asks(self) -> bool:
        """Whether there are any."""
        return bool(self.all)

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with sinks, each by itself and beside the others."""
        for table in config.each(cls):
            if table.all and not config.noise.enabled:
                text = "must be true: the jobs of sinks read over this listener"
                yield Problem(("noise", "enabled"), "config.conflict", text)
            yield from _spark_sinks(table.spark)
            # What is wrong with a URL comes alone: other errors would show it.
            yield from list(_table_urls(table.spark)) or _table_dirs(table.spark)
            yield from _files_sinks(table)

    def in_effect(self, config: Config) -> Self:
        """The sinks with the directories of their checkpoints."""
        sinks = tuple(replace(sink, checkpoint_dir=sink.checkpoint_path) for sink in self.spark)
        return replace(self, spark=sinks)


class TypedTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table with the columns of a schema, made of what a Spark sink has landed.

    Attributes:
        name: What it is called. Default: the last part of `dir`, or of its name in the catalog.
        streams: Patterns of the streams that are landed in it, of those that its sink has.
        dir: Directory of the table, or its URL in an object store. Entries that do not fit lie
            beside it, in `<dir>_rejects`. `{stream}` in it makes a table for each stream. Where a
            REST catalog says itself where its tables lie it may be left out.
        format: `delta`, or `iceberg`, which needs a `catalog`.
        catalog: The catalog of an Iceberg table, and the table's name in it.
        schema: The application's msgspec class, as `module:Class`, or the file of a JSON Schema.
        columns: The columns themselves, in place of `schema`.
        evolve: What is done about fields that the schema does not have. `add`: they become
            columns. `widen`: so do they, and whole numbers become floating-point ones where such
            come. `freeze`: they go into the column `_rest`, as JSON. `pause`: the table waits.
        reject: What is done about an entry that does not fit. `table`: it goes to the rejects.
            `pause`: the table waits.
        key: Columns of which the table has one row for each value: the latest entry's. A later
            index of a partition is later; of two partitions' entries the one with the later `time`.
        delete_when: A SQL predicate over a row's columns. Where it is true of the latest entry of
            a key the table has no row of that key.
        time: The column that says when what an entry tells has happened, a timestamp or a date.
        late_seconds: A row is counted as late if it was received later than this after its time.
        partition_by: What files are parted by: columns, or `day(column)`, `hour(column)` or
            `month(column)` of a time, which are the columns `_<column>_day` and so on.
        keep_days: How many days rows are kept after their `time`, or after they were received
            where there is none. Entries that come later than that are counted and not landed.
        expect: What is expected of each row: SQL predicates over the columns, by name, each a text
            or a table with `sql` and `action`. `warn` (default): rows that do not meet it are
            counted. `reject`: they are counted, and are rejects.
        sink: The Spark sink that makes it. Left out where there is one.
    """

    table: ClassVar[str] = "table"
    plug_in: ClassVar[str] = "spark"
    repeated: ClassVar[bool] = True

    name: Annotated[Name | None, Meta(examples=["readings"])] = None
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    dir: Annotated[TableLocation | None, Meta(examples=["data/readings"])] = None
    format: Format = "delta"
    catalog: Catalog | None = None
    # A class's name is no path, and a path is relative to the file.
    schema: Annotated[
        Location | None,
        Meta(
            title='a class such as "app.events:Reading", or the file of a JSON Schema',
            examples=["app.events:Reading"],
        ),
    ] = None
    columns: Annotated[
        dict[str, Any], Meta(title='a table of columns such as { id = "int", temp = "float?" }')
    ] = field(default_factory=dict[str, Any])
    evolve: Evolve = "add"
    reject: Reject = "table"
    expect: Annotated[
        dict[str, Any],
        Meta(title='a table of SQL predicates such as { sane = "temp between -80 and 80" }'),
    ] = field(default_factory=dict[str, Any])
    key: Annotated[tuple[Name, ...], Meta(title="a list of columns", examples=[["id"]])] = ()
    delete_when: Annotated[str, Meta(title="SQL", examples=["op = 'D'"])] = ""
    time: Annotated[Name | None, Meta(examples=["at"])] = None
    late_seconds: Seconds = LATE_SECONDS
    partition_by: Annotated[
        tuple[Name, ...], Meta(title="a list of columns", examples=[["day(at)"]])
    ] = ()
    keep_days: Annotated[Days | None, Meta(examples=[400])] = None
    sink: Annotated[Name | None, Meta(examples=["bronze"])] = None

    @property
    def called(self) -> str:
        """Its name."""
        place = self.dir or (self.catalog.table.replace(".", "/") if self.catalog else "")
        parts = [one for one in place.split("/") if one and STREAM not in one]
        return self.name or (parts[-1] if parts else "")

    @property
    def source(self) -> SchemaSource:
        """Where its schema comes from."""
        return SchemaSource(schema=str(self.schema or ""), columns=self.columns)

    @property
    def layout(self) -> Layout:
        """How its rows are kept."""
        return Layout(
            key=self.key,
            delete_when=self.delete_when,
            time=self.time or "",
            late_seconds=self.late_seconds,
            partition_by=self.partition_by,
            keep_days=self.keep_days,
        )

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        """What is expected of its rows.

        Raises:
            ConfigError: `table.expect`, one of them is no expectation.
        """
        return tuple(read_expectation(name, said) for name, said in self.expect.items())

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with typed tables, each by itself and beside the others."""
        sinks = sinks_of(config).spark
        taken: dict[str, Location] = {}
        for at, sink in enumerate(sinks):
            for key in ("table_dir", "silver_dir", "gold_dir"):
                if (place := getattr(sink, key)) is not None:
                    taken[f"sink.spark[{at}].{key}"] = place
        names: dict[str, int] = {}
        identifiers: dict[str, int] = {}
        for at, one in enumerate(config.each(cls)):
            path: KeyPath = ("table", at)
            for position, pattern in enumerate(one.streams):
                yield from unfit_pattern((*path, "streams", position), pattern)
            yield from one._sink_problems(path, sinks)
            yield from one._schema_problems(path)
            yield from catalog_problems(path, one.format, one.catalog, one.dir)
            for key in ("key", "delete_when", "partition_by", "keep_days"):
                if one.format == "iceberg" and getattr(one, key):
                    text = 'is of Delta tables: leave it out, or set format = "delta"'
                    yield Problem((*path, key), "config.conflict", text)
            if (other := names.setdefault(one.called, at)) != at:
                text = f"{one.called!r} is the name of table[{other}]: give this one a `name`"
                yield Problem((*path, "name"), "config.conflict", text)
            for name in one.catalog.identifiers if one.catalog is not None else ():
                if (other := identifiers.setdefault(name, at)) != at:
                    text = f"is the name of table[{other}], or of its rejects"
                    yield Problem((*path, "catalog", "table"), "config.conflict", text)
            mine = dict(one._places(f"table[{at}]"))
            for place in mine.values():
                for owner, other_place in taken.items():
                    if place.overlaps(other_place):
                        text = f"must lie apart from {owner}, {other_place}"
                        yield Problem((*path, "dir"), "config.conflict", text)
            taken |= mine

    def _places(self, owner: str) -> Iterator[tuple[str, Location]]:
        """Where the table and its rejects lie, and as what, each by the key that says so."""
        if self.dir is not None:
            if STREAM in self.dir:
                # Any stream may come, and have the name of what lies beside it.
                yield f"{owner}.dir", Location(place_of(self.dir))
            else:
                yield f"{owner}.dir", self.dir
                yield f"{owner}.dir's rejects", Location(f"{self.dir}_rejects")

    def _sink_problems(self, path: KeyPath, sinks: Sequence[SparkSink]) -> Iterator[Problem]:
        names = [one.name for one in sinks]
        if not names:
            text = "needs a [[sink.spark]], which lands what it is made of"
            yield Problem((*path, "sink"), "config.missing", text)
        elif not self.sink and len(names) > 1:
            text = f"missing: name the sink that makes it: {', '.join(names)}"
            yield Problem((*path, "sink"), "config.missing", text)
        elif self.sink and self.sink not in names:
            text = f"no [[sink.spark]] is named {self.sink!r}; there is {', '.join(names)}"
            yield Problem((*path, "sink"), "config.value", text)

    def _schema_problems(self, path: KeyPath) -> Iterator[Problem]:
        if (self.schema is None) == (not self.columns):
            text = (
                "missing: give schema or columns; `rillnode table infer STREAM` prints what "
                "entries have"
                if self.schema is None
                else "give schema or columns, not both"
            )
            code = "config.missing" if self.schema is None else "config.conflict"
            yield Problem((*path, "schema"), code, text)
            return
        columns = None
        # Only the sink's job loads what belongs to an application.
        if not self.source.class_name:
            try:
                columns = load_schema(self.source).columns
            except ConfigError as error:
                key = "columns" if self.columns else "schema"
                yield Problem((*path, key), error.code, error.text)
                return
            yield from self._layout_problems(path, columns)
        yield from self._expect_problems(path, columns)

    def _layout_problems(self, path: KeyPath, columns: Columns) -> Iterator[Problem]:
        layout = self.layout
        problems = list(layout.problems(columns))
        for name, text in problems:
            yield Problem((*path, name), "table.layout", text)
        if layout.delete_when and not problems and is_installed():
            # Only here, because it needs what the extra installs.
            from rillnode.node.spark.typed.keys import check_delete_when

            try:
                check_delete_when(layout, columns, rest=self.evolve == "freeze")
            except ConfigError as error:
                text = error.text.removeprefix("delete_when: ")
                yield Problem((*path, "delete_when"), error.code, text)

    def _expect_problems(self, path: KeyPath, columns: Columns | None) -> Iterator[Problem]:
        if len(self.expect) > EXPECTATIONS_MAX:
            text = f"{len(self.expect)} are more than the {EXPECTATIONS_MAX} that a table may have"
            yield Problem((*path, "expect"), "table.expect", text)
            return
        for name, said in self.expect.items():
            try:
                one = read_expectation(name, said)
                if columns is not None and is_installed():
                    # Only here, because it needs what the extra installs.
                    from rillnode.node.spark.typed.judging import check_expectation

                    check_expectation(one, columns, rest=self.evolve == "freeze")
            except ConfigError as error:
                yield Problem((*path, "expect", name), error.code, error.text)


def sinks_of(config: Config) -> SinkTables:
    """The sinks of a configuration; none where it has no such table."""
    return config.table(SinkTables) or SinkTables()


def tables_of(config: Config, sink: str) -> tuple[TypedTable, ...]:
    """The typed tables that a sink makes."""
    return tuple(one for one in config.each(TypedTable) if one.sink in (None, sink))


def _spark_sinks(sinks: Sequence[SparkSink]) -> Iterator[Problem]:
    yield from duplicates("sink.spark", (sink.name for sink in sinks))
    checkpoints: dict[str, SparkSink] = {}
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        yield from unfit_name((*path, "name"), sink.name)
        for position, pattern in enumerate(sink.streams):
            yield from unfit_pattern((*path, "streams", position), pattern)
        if sink.external and sink.key_file is None:
            text = "missing: the node knows a job that somebody else starts by its key"
            yield Problem((*path, "key_file"), "config.missing", text)
        other = checkpoints.setdefault(str(sink.checkpoint_path), sink)
        if other is not sink and other.name != sink.name:
            yield Problem(
                (*path, "checkpoint_dir"),
                "config.conflict",
                f"{sink.checkpoint_path} is the checkpoint of sink {other.name!r}",
            )


def _files_sinks(table: SinkTables) -> Iterator[Problem]:
    names = {sink.name for sink in table.spark}
    directories: dict[Path, str] = {}
    for at, sink in enumerate(table.files):
        path: KeyPath = ("sink", "files", at)
        yield from unfit_name((*path, "name"), sink.name)
        for position, pattern in enumerate(sink.streams):
            yield from unfit_pattern((*path, "streams", position), pattern)
        if sink.name in names:
            text = f"{sink.name!r} is the name of another sink"
            yield Problem((*path, "name"), "config.conflict", text)
        names.add(sink.name)
        other = directories.setdefault(sink.directory, sink.name)
        if other != sink.name:
            text = f"{sink.directory} is the directory of sink {other!r}"
            yield Problem((*path, "directory"), "config.conflict", text)


def _table_urls(sinks: Sequence[SparkSink]) -> Iterator[Problem]:
    """What can be done with a URL. An error never shows it: it may hold what it must not."""
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        for key in ("table_dir", "silver_dir", "gold_dir"):
            location: Location | None = getattr(sink, key)
            if location is None or location.path is not None:
                continue
            if not _TABLE_URL.fullmatch(location):
                text = 'expected a URL such as "s3://bucket/tables", without credentials'
                yield Problem((*path, key), "config.value", text)
            if sink.checkpoint_dir is None:
                text = f"missing; {key} is a URL, and Spark needs a directory for its checkpoints"
                yield Problem((*path, "checkpoint_dir"), "config.missing", text)
                break


def _table_dirs(sinks: Sequence[SparkSink]) -> Iterator[Problem]:
    """Tables that lie in each other would remove each other's files."""
    taken: dict[Location, str] = {
        sink.table_dir: f"sink.spark[{at}].table_dir" for at, sink in enumerate(sinks)
    }
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        if sink.gold_dir is not None and sink.silver_dir is None:
            text = "is made of silver: set silver_dir, too"
            yield Problem((*path, "gold_dir"), "config.conflict", text)
        for key, directory in (("silver_dir", sink.silver_dir), ("gold_dir", sink.gold_dir)):
            if directory is None:
                continue
            for other, owner in taken.items():
                if directory.overlaps(other):
                    text = f"must lie apart from {owner}, {other}"
                    yield Problem((*path, key), "config.conflict", text)
            taken[directory] = f"sink.spark[{at}].{key}"
