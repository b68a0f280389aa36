"""The tables of `node.toml` that say where streams are landed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
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
    SparkMaster,
    TableLocation,
)
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath, format_path
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
from rillnode.node.spark.views import SILVER

ModuleName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", title='a module such as "app.tables"')
]
Span = Annotated[float, Meta(gt=0, le=10_000_000_000, title="a number of seconds")]
"""Centuries at most: what is without end cannot be told to a job."""
_TABLE_URL: Final = re.compile(r"s3://[^\s/@?#]+(?:/[^\s@?#]*)?")


class TableSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that writes streams into a Delta table, exactly once.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        table_dir: Directory of the table, or its URL in an object store, whose credentials come
            from the environment.
        trigger_seconds: Time between two micro-batches.
        batch_rows_max: Rows of one micro-batch.
        hold_bytes_max: Bytes kept for the sink beyond retention; beyond that, entries are trimmed
            and a gap row is recorded.
    """

    name: Annotated[Name, Meta(examples=["bronze"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    table_dir: Annotated[TableLocation, Meta(examples=["data/tables"])]
    trigger_seconds: Span = 5.0
    batch_rows_max: Count = 100_000
    hold_bytes_max: Count = 5_000_000_000


class SparkSink(TableSink, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job that writes streams into a Delta table, exactly once.

    Attributes:
        checkpoint_dir: Directory of the query's checkpoint. Default: `_checkpoints/<name>` in
            `table_dir`, which must be a directory then.
        silver_dir: Directory of the silver table: every event once, decoded. Without it there is
            none.
        gold_dir: Directory of the gold tables: what happened per minute. It needs `silver_dir`.
        duplicate_seconds: How long silver remembers an event, to leave it out if it comes again.
        master: Spark's master URL.
        driver_memory: Heap of the job's Java virtual machine.
        modules: Modules of the application whose functions make tables (`rillnode.table`). The job
            imports them.
        key_file: Key of the job on a cluster. Default: a short-lived key that the node makes.
        external: Somebody else starts the job, with `key_file`; the node answers it, and keeps what
            it has not committed.
    """

    kind: ClassVar[str] = "spark"

    checkpoint_dir: Annotated[Path | None, Meta(examples=["data/checkpoints/bronze"])] = None
    silver_dir: Annotated[TableLocation | None, Meta(examples=["data/silver"])] = None
    gold_dir: Annotated[TableLocation | None, Meta(examples=["data/gold"])] = None
    duplicate_seconds: Span = 600.0
    master: SparkMaster = "local[2]"
    driver_memory: Memory = "1g"
    modules: Annotated[
        tuple[ModuleName, ...],
        Meta(title='a list of modules such as "app.tables"', examples=[["app.tables"]]),
    ] = ()
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


class PythonSink(TableSink, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that does the same without Spark and Java, in one process: for small nodes."""

    kind: ClassVar[str] = "python"
    unfit: ClassVar[Mapping[str, str]] = {
        "checkpoint_dir": "it has none: the table's own log says how far it has come",
        "silver_dir": "silver is made by Spark: use [[sink.spark]], or a [[table]]",
        "gold_dir": "gold is made by Spark: use [[sink.spark]], or a [[table]]",
        "duplicate_seconds": "it is a matter of silver, which Spark makes: use [[sink.spark]]",
        "master": "it runs without Spark",
        "driver_memory": "it runs without Java, and takes what its batches need: about 200 MiB",
        "key_file": "its job runs beside the node, which makes its keys",
        "external": "its job runs beside the node, which starts it",
    }

    # Examples of their own: a file with all examples is a valid one.
    name: Annotated[Name, Meta(examples=["small"])]
    table_dir: Annotated[TableLocation, Meta(examples=["data/small"])]


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

    kind: ClassVar[str] = "files"

    name: Annotated[Name, Meta(examples=["remote"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    directory: Annotated[Path, Meta(examples=["data/outgoing"])]
    bytes_max: Count = 10_000_000_000
    trigger_seconds: Span = 5.0
    hold_bytes_max: Count = 5_000_000_000


Sink = SparkSink | PythonSink | FilesSink


class SinkTables(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sinks, by kind.

    Attributes:
        spark: Spark sinks.
        python: Sinks into tables without Spark.
        files: Sinks into files.
    """

    table: ClassVar[str] = "sink"
    plug_in: ClassVar[str] = "spark"

    spark: tuple[SparkSink, ...] = ()
    python: tuple[PythonSink, ...] = ()
    files: tuple[FilesSink, ...] = ()

    @property
    def all(self) -> tuple[Sink, ...]:
        """The sinks of every kind."""
        return (*self.spark, *self.python, *self.files)

    @property
    def of_tables(self) -> tuple[SparkSink | PythonSink, ...]:
        """The sinks that land tables."""
        return (*self.spark, *self.python)

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
            yield from _python_sinks(table)
            # What is wrong with a URL comes alone: other errors would show it.
            yield from list(_table_urls(table)) or _table_dirs(table)
            yield from _files_sinks(table)

    def in_effect(self, config: Config) -> Self:
        """The sinks with the directories of their checkpoints."""
        sinks = tuple(replace(sink, checkpoint_dir=sink.checkpoint_path) for sink in self.spark)
        return replace(self, spark=sinks)


class TypedTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table with the columns of a schema, made of what a sink has landed.

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
        sink: The sink that makes it, `[[sink.spark]]` or `[[sink.python]]`. Left out where there is
            one.
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
    late_seconds: Span = LATE_SECONDS
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
        sinks = sinks_of(config).of_tables
        taken = _taken(sinks_of(config))
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
            if one.called == SILVER:
                text = f"{SILVER!r} is what views call silver: give this one another `name`"
                yield Problem((*path, "name"), "config.conflict", text)
            for name in one.catalog.identifiers if one.catalog is not None else ():
                if (other := identifiers.setdefault(name, at)) != at:
                    text = f"is the name of table[{other}], or of its rejects"
                    yield Problem((*path, "catalog", "table"), "config.conflict", text)
            mine = one.places(at)
            for place in mine.values():
                for owner, other_place in taken.items():
                    if place.overlaps(other_place):
                        text = f"must lie apart from {owner}, {other_place}"
                        yield Problem((*path, "dir"), "config.conflict", text)
            taken |= mine

    def places(self, at: int) -> dict[str, Location]:
        """Where it lies, by what says so; it is the configuration's number `at`."""
        if self.dir is None:
            return {}
        if STREAM in self.dir:
            # Any stream may come, and have the name of what lies beside it.
            return {f"table[{at}].dir": Location(place_of(self.dir))}
        rejects = Location(f"{self.dir}_rejects")
        return {f"table[{at}].dir": self.dir, f"table[{at}].dir's rejects": rejects}

    def _sink_problems(self, path: KeyPath, sinks: Sequence[TableSink]) -> Iterator[Problem]:
        none = "needs a [[sink.spark]] or [[sink.python]], which lands what it is made of"
        names = [one.name for one in sinks]
        yield from _maker_problems(path, self.sink, names, "sink of tables", none)

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


class ViewTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Delta table that SQL makes of silver or of a typed table, and that is kept up with it.

    Attributes:
        name: What it is called. Default: the last part of `dir`.
        sql: One `select` in DataFusion's SQL, from `silver` or from the typed table by its name.
        slot: Columns of the select, such as `["stream", "minute"]`. Rows that agree in them are
            calculated together, of all rows of the source, whenever there are new ones among these,
            and put in the place of the old ones.
        of: What it is made of: `silver`, or the name of a typed table.
        dir: Directory of the view's table, or its URL in an object store.
        sink: The Spark sink that makes it. Left out where there is one, and for a view of a typed
            table, which its table's sink makes.
    """

    table: ClassVar[str] = "view"
    plug_in: ClassVar[str] = "spark"
    repeated: ClassVar[bool] = True

    name: Annotated[Name | None, Meta(examples=["per_minute"])] = None
    sql: Annotated[
        str,
        Meta(
            min_length=1,
            title="a select",
            examples=[
                "select stream, date_trunc('minute', received_at) as minute, count(*) as n "
                "from silver group by 1, 2"
            ],
        ),
    ]
    slot: Annotated[
        tuple[str, ...],
        Meta(min_length=1, title="a list of at least one column", examples=[["stream", "minute"]]),
    ]
    of: Name = SILVER
    dir: Annotated[TableLocation, Meta(examples=["data/per_minute"])]
    sink: Annotated[Name | None, Meta(examples=["bronze"])] = None

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or str(self.dir).rstrip("/").rpartition("/")[2]

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with views, each by itself and beside the others."""
        views = config.each(cls)
        tables = {one.called: one for one in config.each(TypedTable)}
        taken = _taken(sinks_of(config))
        for at, table in enumerate(config.each(TypedTable)):
            taken |= table.places(at)
        names: dict[str, int] = {}
        for at, one in enumerate(views):
            path: KeyPath = ("view", at)
            if (other := names.setdefault(one.called, at)) != at:
                text = f"{one.called!r} is the name of view[{other}]: give this one a `name`"
                yield Problem((*path, "name"), "config.conflict", text)
            for owner, place in taken.items():
                if one.dir.overlaps(place):
                    text = f"must lie apart from {owner}, {place}"
                    yield Problem((*path, "dir"), "config.conflict", text)
            taken[f"view[{at}].dir"] = one.dir
            problems = list(one._source_problems(path, sinks_of(config).spark, tables))
            yield from problems
            if not problems:
                yield from one._sql_problems(path, tables.get(one.of))

    def _source_problems(
        self, path: KeyPath, sinks: Sequence[SparkSink], tables: Mapping[str, TypedTable]
    ) -> Iterator[Problem]:
        if self.of != SILVER:
            table = tables.get(self.of)
            if table is None:
                there = ", ".join((SILVER, *tables))
                text = f"there is no typed table {self.of!r}; there is {there}"
                yield Problem((*path, "of"), "config.value", text)
            elif table.dir is None or table.format != "delta":
                text = f"{self.of!r} is an Iceberg table, and views are made of Delta's"
                yield Problem((*path, "of"), "config.conflict", text)
            elif STREAM in table.dir:
                text = f"{self.of!r} is a table for each stream, and a view is of one table"
                yield Problem((*path, "of"), "config.conflict", text)
            elif self.sink not in (None, table.sink or self.sink):
                text = f"{self.of!r} is made by {table.sink!r}, which makes its views: leave it out"
                yield Problem((*path, "sink"), "config.conflict", text)
            return
        none = "needs a [[sink.spark]] with silver_dir, of which it is made"
        names = [one.name for one in sinks]
        problems = list(_maker_problems(path, self.sink, names, "[[sink.spark]]", none))
        yield from problems
        if problems:
            return
        if next(one for one in sinks if self.sink in (None, one.name)).silver_dir is None:
            text = "is made of silver: set silver_dir of its sink, too"
            yield Problem((*path, "of"), "config.conflict", text)

    def _sql_problems(self, path: KeyPath, table: TypedTable | None) -> Iterator[Problem]:
        """What the SQL's planner has to say, where it is installed and columns are known."""
        if find_spec("deltalake") is None or find_spec("pyarrow") is None:
            return
        # A configuration is read without what the extra `spark` installs, too.
        from rillnode.node.spark.views.planning import check_view

        try:
            check_view(self.called, self.sql, self.slot, table)
        except ConfigError as error:
            key = "slot" if error.code == "view.slot" else "sql"
            yield Problem((*path, key), error.code, error.text)


def views_of(config: Config, sink: str) -> tuple[ViewTable, ...]:
    """The views that a sink makes."""
    tables = {one.called for one in tables_of(config, sink)}
    if sink in (one.name for one in sinks_of(config).spark):
        tables.add(SILVER)  # of several sinks with Spark, a view of silver names its own
    return tuple(
        one
        for one in config.each(ViewTable)
        if one.of in tables and (one.of != SILVER or one.sink in (None, sink))
    )


def sinks_of(config: Config) -> SinkTables:
    """The sinks of a configuration; none where it has no such table."""
    return config.table(SinkTables) or SinkTables()


def tables_of(config: Config, sink: str) -> tuple[TypedTable, ...]:
    """The typed tables that a sink makes."""
    return tuple(one for one in config.each(TypedTable) if one.sink in (None, sink))


def application_of(config: Config, sink: str) -> str:
    """The name of the process that runs a sink's job, and of its log.

    Spark sinks with the same settings share one, which is called as the first of them.
    """
    spark = {
        one.name: (one.master, one.driver_memory)
        for one in sinks_of(config).spark
        if not one.external
    }
    return next((name for name in spark if spark[name] == spark.get(sink)), sink)


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


def _python_sinks(table: SinkTables) -> Iterator[Problem]:
    names = {sink.name for sink in table.spark}
    for at, sink in enumerate(table.python):
        path: KeyPath = ("sink", "python", at)
        yield from unfit_name((*path, "name"), sink.name)
        for position, pattern in enumerate(sink.streams):
            yield from unfit_pattern((*path, "streams", position), pattern)
        if sink.name in names:
            text = f"{sink.name!r} is the name of another sink"
            yield Problem((*path, "name"), "config.conflict", text)
        names.add(sink.name)


def _maker_problems(
    path: KeyPath, sink: str | None, names: Sequence[str], kind: str, none: str
) -> Iterator[Problem]:
    """What is wrong with the `sink` of a table or view, of those that could make it."""
    if not names:
        yield Problem((*path, "sink"), "config.missing", none)
    elif not sink and len(names) > 1:
        text = f"missing: name the sink that makes it: {', '.join(names)}"
        yield Problem((*path, "sink"), "config.missing", text)
    elif sink and sink not in names:
        text = f"no {kind} is named {sink!r}; there is {', '.join(names)}"
        yield Problem((*path, "sink"), "config.value", text)


def _files_sinks(table: SinkTables) -> Iterator[Problem]:
    names = {sink.name for sink in table.of_tables}
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


def _places(table: SinkTables) -> Iterator[tuple[KeyPath, str, Location]]:
    """Where the tables of sinks lie: the sink's path in the file, the key and the place."""
    for at, one in enumerate(table.python):
        yield ("sink", "python", at), "table_dir", one.table_dir
    for at, sink in enumerate(table.spark):
        for key in ("table_dir", "silver_dir", "gold_dir"):
            if (place := getattr(sink, key)) is not None:
                yield ("sink", "spark", at), key, place


def _taken(table: SinkTables) -> dict[str, Location]:
    """Where nothing else may lie, by what says so: tables of sinks, and what is beside them."""
    taken = {format_path((*path, key)): place for path, key, place in _places(table)}
    return taken | {
        f"{said}'s erasures": Location(f"{place}_erasures")
        for said, place in taken.items()
        if said.endswith(".table_dir")
    }


def _table_urls(table: SinkTables) -> Iterator[Problem]:
    """What can be done with a URL. An error never shows it: it may hold what it must not."""
    without: set[KeyPath] = set()
    for path, key, location in _places(table):
        if location.path is not None:
            continue
        if not _TABLE_URL.fullmatch(location):
            text = 'expected a URL such as "s3://bucket/tables", without credentials'
            yield Problem((*path, key), "config.value", text)
        is_spark = path[1] == "spark"
        if is_spark and table.spark[int(path[2])].checkpoint_dir is None and path not in without:
            without.add(path)
            text = f"missing; {key} is a URL, and Spark needs a directory for its checkpoints"
            yield Problem((*path, "checkpoint_dir"), "config.missing", text)


def _table_dirs(table: SinkTables) -> Iterator[Problem]:
    """Tables that lie in each other would remove each other's files."""
    for at, sink in enumerate(table.spark):
        if sink.gold_dir is not None and sink.silver_dir is None:
            text = "is made of silver: set silver_dir, too"
            yield Problem(("sink", "spark", at, "gold_dir"), "config.conflict", text)
    taken: dict[Location, KeyPath] = {}
    for path, key, place in sorted(_places(table), key=lambda one: one[1] != "table_dir"):
        for other, owner in taken.items():
            # Sinks of Spark may share a bronze table.
            shared = key == owner[-1] == "table_dir" and path[1] == owner[1] == "spark"
            if place.overlaps(other) and not shared:
                text = f"must lie apart from {format_path(owner)}, {other}"
                yield Problem((*path, key), "config.conflict", text)
        taken[place] = (*path, key)
