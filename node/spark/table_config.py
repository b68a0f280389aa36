"""The table `[[table]]` of `node.toml`, of typed tables and the catalogs that they may be in."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from rillnode.actors.core.patterns import may_share
from rillnode.codecs.errors import ConfigError
from rillnode.node.config.kinds import Days, Name, TableLocation
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import unfit_pattern
from rillnode.node.config.tables import Config
from rillnode.node.spark.config import Span, TableSink, maker_problems, sinks_of, taken_places
from rillnode.node.spark.installed import is_installed
from rillnode.node.spark.typed.columns import Columns
from rillnode.node.spark.typed.layout import (
    EXPECTATIONS_MAX,
    LATE_SECONDS,
    Expectation,
    Layout,
    read_expectation,
)
from rillnode.node.spark.typed.schemas import (
    STREAM,
    Evolve,
    Reject,
    SchemaSource,
    load_schema,
    place_of,
)
from rillnode.node.spark.views import SILVER

Format = Literal["delta", "iceberg"]

_CHARACTERS: Final = r"[^\s.\"'`/\\]"
_IDENTIFIER: Final = re.compile(rf"{_CHARACTERS}+(\.{_CHARACTERS}+)+")
_SECRETS: Final = re.compile(r"(password|secret|token)=", re.IGNORECASE)
_UNFIT: Final = re.compile(r"[%#?]")


class Catalog(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The catalog of an Iceberg table, and the table's name in it.

    Attributes:
        type: `sql`: a database. `rest`: a service that speaks Iceberg's REST protocol.
        table: The table's name with its namespace. The rejects are `<table>_rejects`. With
            `{stream}` in it, each stream has a table.
        uri: An SQLite file, or the URL of another database or of the service, without
            credentials: those come from the environment. Default: from the environment.
        name: The catalog's name, for other readers of a SQL catalog and in the environment:
            `PYICEBERG_CATALOG__<NAME>__TOKEN`.
        warehouse: The service's warehouse. Default: the service decides.
    """

    type: Annotated[Literal["sql", "rest"], Meta(examples=["sql"])]
    table: Annotated[Name, Meta(examples=["sensors.readings"])]
    uri: Annotated[
        Location | None,
        Meta(
            title='a file, or a URL such as "https://catalog.example.org"',
            examples=["data/catalog.db"],
        ),
    ] = None
    name: Name = "rillnode"
    warehouse: Annotated[Name | None, Meta(examples=["lake"])] = None

    @property
    def url(self) -> str:
        """Where it is, as a URL; empty where only the environment says it."""
        if self.uri is None:
            return ""
        return str(self.uri) if self.uri.path is None else f"sqlite:///{self.uri.path}"

    @property
    def identifiers(self) -> tuple[str, ...]:
        """What tells the table and its rejects apart from all others."""
        owner = f"{self.type} {self.url} {self.name if self.type == 'sql' else self.warehouse}"
        return (f"{owner} {self.table}", f"{owner} {self.table}_rejects")


class TypedTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table with a column for each field of a schema, made from what a sink has landed.

    Attributes:
        name: The table's name. Default: the last part of `dir`, or of its name in the catalog.
        streams: Patterns of the names of its streams, out of those that the sink has.
        dir: Directory of the table, or its URL in an object store. Entries that do not fit go to
            `<dir>_rejects` beside it. With `{stream}` in it, each stream has a table. Not needed
            if a REST catalog decides where its tables are.
        format: `delta`, or `iceberg`, which needs a `catalog`.
        catalog: The catalog of an Iceberg table, and the table's name in it.
        schema: The application's msgspec class, as `module:Class`, or the file of a JSON Schema.
        columns: The columns themselves, in place of `schema`.
        evolve: What happens to fields that the schema does not have. `add`: they become columns.
            `widen`: likewise, and an `int` column becomes `float` when it gets a number that is not
            whole. `freeze`: they go into the column `_rest`, as JSON. `pause`: the table waits.
        reject: What happens to an entry that does not fit. `table`: it goes to the rejects.
            `pause`: the table waits.
        key: Columns that identify a row: the table has one row for each key, from its latest
            entry. Within a partition the higher index is later, across partitions the later `time`.
        delete_when: SQL predicate over a row's columns. If it is true of a key's latest entry, the
            table has no row for that key.
        time: The column with the time of the event itself, a timestamp or a date.
        late_seconds: Rows received more than this after their time are counted as late.
        partition_by: Columns that partition the files, or `day(column)`, `hour(column)` or
            `month(column)` of a time, which become the columns `_<column>_day` and so on.
        keep_days: Days for which rows are kept after their `time`, or without one after they were
            received. Older entries are counted and not landed.
        expect: Named SQL predicates over the columns that each row should meet, each a text or a
            table with `sql` and `action`. `warn` (default): rows that fail are counted. `reject`:
            they are counted and rejected.
        sink: The sink that makes it, `[[sink.spark]]` or `[[sink.python]]`. Not needed if there is
            only one.
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
        taken = taken_places(sinks_of(config))
        names: dict[str, int] = {}
        identifiers: dict[str, int] = {}
        for at, one in enumerate(config.each(cls)):
            path: KeyPath = ("table", at)
            for position, pattern in enumerate(one.streams):
                yield from unfit_pattern((*path, "streams", position), pattern)
            yield from one._sink_problems(path, sinks)
            yield from one._stream_problems(path, sinks)
            yield from one._schema_problems(path)
            yield from _catalog_problems(path, one.format, one.catalog, one.dir)
            for key in one._of_delta:
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
            clashes = (
                f"must lie apart from {owner}, {other_place}"
                for owner, other_place in taken.items()
                if any(place.overlaps(other_place) for place in mine.values())
            )
            if text := next(clashes, ""):
                yield Problem((*path, "dir"), "config.conflict", text)
            taken |= mine

    @property
    def _of_delta(self) -> list[str]:
        """The settings that it has, and Iceberg tables do not."""
        keys = ("key", "delete_when", "partition_by", "keep_days")
        return [one for one in keys if self.format == "iceberg" and getattr(self, one)]

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
        yield from maker_problems(path, self.sink, names, "sink of tables", none)

    def _stream_problems(self, path: KeyPath, sinks: Sequence[TableSink]) -> Iterator[Problem]:
        """Which streams the table would wait for in vain."""
        makers = [one for one in sinks if self.sink in (None, one.name)]
        if len(makers) != 1:
            return
        (sink,) = makers
        for position, pattern in enumerate(self.streams):
            if not any(may_share(pattern, one) for one in sink.streams):
                text = f"{pattern!r}: none of them is landed by sink {sink.name!r}, which has"
                landed = ", ".join(sink.streams)
                where = (*path, "streams", position)
                yield Problem(where, "config.conflict", f"{text} {landed}")

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
            if name not in self._of_delta:
                yield Problem((*path, name), "table.layout", text)
        if layout.delete_when and not problems and not self._of_delta and is_installed():
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


def tables_of(config: Config, sink: str) -> tuple[TypedTable, ...]:
    """The typed tables that a sink makes."""
    return tuple(one for one in config.each(TypedTable) if one.sink in (None, sink))


def _catalog_problems(
    path: KeyPath, form: Format, catalog: Catalog | None, place: Location | None
) -> Iterator[Problem]:
    """What is wrong with where a table lies.

    Args:
        path: of the table.
        form: its `format`.
        catalog: its `catalog`.
        place: its `dir`.
    """
    if form == "delta":
        if catalog is not None:
            text = 'is of Iceberg tables: set format = "iceberg"'
            yield Problem((*path, "catalog"), "config.conflict", text)
        if place is None:
            yield Problem((*path, "dir"), "config.missing", "missing: the table's directory")
        return
    if catalog is None:
        text = 'missing: an Iceberg table needs one, such as { type = "sql", uri = "catalog.db", '
        yield Problem((*path, "catalog"), "config.missing", f'{text}table = "sensors.readings" }}')
        return
    here: KeyPath = (*path, "catalog")
    if not _IDENTIFIER.fullmatch(catalog.table):
        text = f'{catalog.table!r}: expected a name with its namespace, as "sensors.readings"'
        yield Problem((*here, "table"), "config.value", text)
    yield from _uri_problems((*here, "uri"), catalog)
    if catalog.type == "sql":
        if place is None:
            text = "missing: where the files of the table lie"
            yield Problem((*path, "dir"), "config.missing", text)
        if catalog.warehouse is not None:
            text = "is of services: the tables of a SQL catalog lie in their `dir`"
            yield Problem((*here, "warehouse"), "config.conflict", text)
    if place is not None:
        if (STREAM in place) != (STREAM in catalog.table):
            text = f"{STREAM} must be in both `dir` and `catalog.table`, or in neither"
            yield Problem((*here, "table"), "config.conflict", text)
        if place.path is not None and (found := _UNFIT.search(place)):
            text = f"has {found[0]!r}, which the paths of Iceberg tables cannot have"
            yield Problem((*path, "dir"), "config.value", text)


def _uri_problems(path: KeyPath, catalog: Catalog) -> Iterator[Problem]:
    """What is wrong with a URI. An error never shows it: it may hold what it must not."""
    uri = catalog.uri or ""
    environment = f"PYICEBERG_CATALOG__{catalog.name.upper()}__"
    parts = urlsplit(uri)
    if parts.password is not None or _SECRETS.search(uri):
        text = f"holds credentials: put it into the environment, as {environment}URI"
        yield Problem(path, "config.value", text)
    elif catalog.type == "rest" and uri and parts.scheme not in ("http", "https"):
        yield Problem(path, "config.value", "expected the URL of a service, https://...")
    elif parts.scheme == "sqlite" and not parts.path.startswith("//"):
        text = 'nobody knows what it is relative to: give the file itself, as "data/catalog.db"'
        yield Problem(path, "config.value", text)
