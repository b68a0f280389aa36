"""The source of a view, silver or a typed table, and which of its rows are new."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, Transaction

from rillnode.node.spark.delta_log import PLACE, Position, TableLog, saved_position
from rillnode.node.spark.erasure import Erasures, applied
from rillnode.node.spark.parquet import file_rows
from rillnode.node.spark.statistics import arrow_schema_of
from rillnode.node.spark.views import SILVER
from rillnode.node.spark.views.planning import REPEATS, SILVER_RELATIONS, quoted

_TIME: Final = pa.timestamp("us", tz="UTC")
STEP_ROWS_MAX: Final = 5_000_000
"""Rows of a source whose slots one step calculates, about."""
Where = Callable[[str], str]
"""A condition in SQL on the rows that a name stands for."""


@dataclass(frozen=True, slots=True)
class Change:
    """A part of what a view has not taken in.

    Attributes:
        start: where it begins.
        end: where it ends.
        come: the files that rows have come in, as URIs.
        gone: the files that rows have gone with.
    """

    start: Position
    end: Position
    come: list[str]
    gone: list[str]

    @property
    def files(self) -> list[str]:
        """All files that rows have come in or gone with."""
        return self.come + self.gone


@dataclass(frozen=True, slots=True)
class Gone:
    """Entries that were erased of the source.

    Attributes:
        places: their streams and times, in columns `stream` and `time`.
        mark: what a transaction says of the view that no longer counts them.
    """

    places: pa.Table
    mark: Transaction


class Source(Protocol):
    """The table that a view is made of.

    Attributes:
        stream: the column that is a row's stream.
        received_at: the column that says when a row's entry was taken.
        followed: directory or URI of the table whose log tells what is new.
    """

    stream: str
    received_at: str
    followed: str

    def relations(self) -> Mapping[str, pa.Schema]:
        """What SQL may select from; nothing while it is not there."""
        ...

    def change(self, target: DeltaTable | None) -> Change | None:
        """What a view's table has not taken in; None for nothing."""
        ...

    def erased(self, target: DeltaTable | None) -> Gone | None:
        """What a view's table still counts of what was erased, where its log does not tell."""
        ...

    def register(self, builder: QueryBuilder, where: Where, at: int | None = None) -> None:
        """Let SQL select from it, as it is now.

        Args:
            builder: runs the SQL.
            where: a condition on the rows that are to be seen.
            at: a version to be seen in place of the latest, where there is only one table.
        """
        ...

    def times(self, files: Sequence[str], column: str) -> Iterator[pa.Table]:
        """Stream and time of the rows in files of a change, in columns `stream` and `time`.

        Raises:
            FileNotFoundError: a file is gone, so that nobody knows.
        """
        ...


class SilverSource:
    """Silver, and what it has left out of bronze.

    A step ends where silver's own position in bronze is, and begins with what bronze got: of what
    had come before, silver has no row.
    """

    stream, received_at = "stream", "received_at"

    def __init__(self, bronze: str, silver: str) -> None:
        self.followed = bronze
        self._bronze = TableLog(bronze)
        self._silver = TableLog(silver)
        self._covered = Position("")
        self._erasures = Erasures(bronze)

    def relations(self) -> Mapping[str, pa.Schema]:
        """Silver's columns, and bronze's."""
        if self._bronze.open() is None or self._silver.open() is None:
            return {}
        return SILVER_RELATIONS

    def change(self, target: DeltaTable | None) -> Change | None:
        """What bronze got since, as far as silver covers it.

        Raises:
            StoreError: bronze's log does not reach back to where the view has come.
        """
        bronze = self._bronze.open()
        if bronze is None:
            return None
        source = str(bronze.metadata().id)
        self._covered = covered = saved_position(self._silver.open(), source)
        start = saved_position(target, source)
        if start.base < 0:
            start = start._replace(base=covered.base)
        # What silver still lacks of the version that it began with would look left out.
        if start[1:4] == covered[1:4] or self._bronze.rows_left_of_base(covered):
            return None
        end = self._bronze.plan(start, STEP_ROWS_MAX, covered.version)
        if end.base == covered.base and end[2:4] > covered[2:4]:
            end = covered
        if end == start:
            return None
        files = self._bronze.uris(self._bronze.files_between(start, end))
        return Change(start, end, files, [])

    def erased(self, target: DeltaTable | None) -> Gone | None:
        """What was erased of silver and bronze since; nothing before both are rid of it."""
        erased, known = self._erasures.erased(), applied(target)
        rid = min(applied(self._bronze.open()), applied(self._silver.open()))
        if target is None or known >= erased.number or rid < erased.number:
            return None
        slots = erased.slots(known)
        places = pa.table({"stream": slots.column("stream"), "time": slots.column("minute")})
        return Gone(places, erased.mark())

    def register(self, builder: QueryBuilder, where: Where, at: int | None = None) -> None:
        """Let SQL select from silver's events and from the repeats."""
        bronze, silver = self._bronze.open(), self._silver.open()
        if bronze is None or silver is None:
            return
        for name, table in (("_bronze", bronze), ("_silver", silver)):
            run(builder, f"drop table if exists {name}")
            builder.register(name, table)
        there = ""
        if bronze.version() > self._covered.version:
            # Neither what has come later nor what was deleted since was left out.
            run(builder, "drop table if exists _covered")
            builder.register("_covered", self._bronze.at(self._covered.version))
            there = f"and {_exists('_covered', where)}"
        run(builder, f"create or replace view {SILVER} as select r.* from _silver r "
            f"where r.kind <> 'gap' and r.received_at is not null and {where('r')}")  # fmt: skip
        # The condition is about stream and time alone, which an entry has in both tables.
        run(builder, f"create or replace view {REPEATS} as select r.* from _bronze r where "
            f"r.kind = 'streamr' and {where('r')} {there} and not {_exists(SILVER)}")  # fmt: skip

    def times(self, files: Sequence[str], column: str) -> Iterator[pa.Table]:
        """Stream and time of what bronze got."""
        for uri in files:
            for rows in _read(uri, ["stream", column, "kind"]):
                times = rows.column(column)
                is_event = pc.and_(pc.not_equal(rows.column("kind"), "gap"), pc.is_valid(times))
                yield (
                    rows.filter(is_event)
                    .select(["stream", column])
                    .rename_columns(["stream", "time"])
                )


class TypedSource:
    """A typed table, followed by its own log: what is landed again, merged and deleted, too.

    Args:
        name: what the table is called, also in SQL.
        dir: its directory or URI.
    """

    stream, received_at = "_stream", "_received_at"

    def __init__(self, name: str, dir: str) -> None:  # noqa: A002 - as the key is called
        self.followed = dir
        self._name = name
        self._log = TableLog(dir, takes_rewrites=True)

    def relations(self) -> Mapping[str, pa.Schema]:
        """The table's columns."""
        table = self._log.open()
        return {} if table is None else {self._name: arrow_schema_of(table)}

    def change(self, target: DeltaTable | None) -> Change | None:
        """What has changed in the table since.

        Raises:
            StoreError: the table's log does not reach back to where the view has come.
        """
        table = self._log.open()
        if table is None:
            return None
        start = saved_position(target, str(table.metadata().id))
        end = self._log.plan(start, STEP_ROWS_MAX)
        if end == start:
            return None
        come: list[str] = []
        gone: list[str] = []
        if start.files < end.files:
            until = end._replace(version=end.base)
            come = [one.path for one in self._log.files_between(start, until)]
        for number in range(max(start.version, end.base) + 1, end.version + 1):
            version = self._log.version(number)
            come += version.come
            gone += version.gone
        root = self.followed.rstrip("/")
        return Change(
            start, end, [f"{root}/{one}" for one in come], [f"{root}/{one}" for one in gone]
        )

    def erased(self, target: DeltaTable | None) -> Gone | None:
        """Nothing: the table's log tells of it as of any rows that go."""
        return None

    def register(self, builder: QueryBuilder, where: Where, at: int | None = None) -> None:
        """Let SQL select from the table."""
        table = self._log.open() if at is None else self._log.at(at)
        if table is not None:
            version = f"_at{table.version()}"
            run(builder, f"drop table if exists {version}")
            builder.register(version, table)
            run(builder, f"create or replace view {quoted(self._name)} as select r.* "
                f"from {version} r where {where('r')}")  # fmt: skip

    def times(self, files: Sequence[str], column: str) -> Iterator[pa.Table]:
        """Stream and time of the rows in files that have changed."""
        for uri in files:
            for rows in _read(uri, ["_stream", column]):
                yield rows.rename_columns(["stream", "time"])


def run(builder: QueryBuilder, sql: str) -> None:
    """Run a statement that has no rows."""
    builder.execute(sql).read_all()


def _exists(table: str, where: Where = lambda _: "true") -> str:
    """The condition that a table has the entry of a row `r`."""
    same = " and ".join(f"o.{quoted(one)} = r.{quoted(one)}" for one in PLACE)
    return f"exists (select 1 from {table} o where {same} and {where('o')})"


def _read(uri: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    for batch in file_rows(uri, columns=columns):
        rows = pa.Table.from_batches([batch])
        for one in columns:  # a column that the table got later
            if one not in rows.column_names:
                rows = rows.append_column(one, pa.nulls(rows.num_rows, _TIME))
        # Of views of texts, which other writers' files have, not every function knows.
        found = [rows.column(one).type for one in columns]
        kinds = [pa.string() if _is_text(one) else one for one in found]
        yield rows.select(list(columns)).cast(pa.schema(zip(columns, kinds, strict=True)))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_large_string(kind)
