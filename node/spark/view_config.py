"""The table `[[view]]` of `node.toml`: tables that SQL makes of silver or of typed tables."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, ClassVar

from msgspec import Meta

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.kinds import Name, TableLocation
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.tables import Config
from rillnode.node.spark.config import SparkSink, maker_problems, sinks_of, taken_places
from rillnode.node.spark.table_config import TypedTable, tables_of
from rillnode.node.spark.typed.schemas import STREAM
from rillnode.node.spark.views import SILVER


class ViewTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Delta table that SQL computes from silver or a typed table, kept up to date.

    Attributes:
        name: The view's name. Default: the last part of `dir`.
        sql: One `select` in DataFusion's SQL, from `silver` or from the typed table by its name.
        slot: Columns of the select, such as `["stream", "minute"]`. Rows that agree in them form a
            slot, recalculated from all rows of the source and replaced whenever it gets new ones.
        of: Its source: `silver`, or the name of a typed table.
        dir: Directory of the view's table, or its URL in an object store.
        sink: The Spark sink that makes it. Not needed if there is only one, or for a view of a
            typed table, which that table's sink makes.
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
        taken = taken_places(sinks_of(config))
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
        problems = list(maker_problems(path, self.sink, names, "[[sink.spark]]", none))
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
