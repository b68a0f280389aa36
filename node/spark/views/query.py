"""Keeps a view up with what it is made of, silver or a typed table, slot by slot.

A step looks at what the source got since the last one, takes the slots that this touches, and
calculates these slots anew. The query's checkpoint is in the view's own log: the transaction of a
step's rows says how far in the source they reach. What a crash leaves undone is done again with the
same outcome, and there is no other state that could be lost. `docs/decisions/0005` says why it is
no Spark query, and why DataFusion runs the SQL.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, Schema, Transaction

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta import open_to_write
from rillnode.node.spark.delta_log import (
    PLACE,
    LiveTable,
    Position,
    TableLog,
    arrow_schema_of,
    mark,
    saved_position,
    sizes,
)
from rillnode.node.spark.erasure import Erasures, applied
from rillnode.node.spark.parquet import file_rows
from rillnode.node.spark.schema_upgrade import described
from rillnode.node.spark.upsert import Replaced, make_anew, upsert, values_of
from rillnode.node.spark.views import SILVER
from rillnode.node.spark.views.planning import (
    BEFORE,
    MEMORY,
    REPEATS,
    SILVER_RELATIONS,
    YEARS,
    Plan,
    Tick,
    View,
    execute,
    literal,
    plan,
    quoted,
    select,
    shaped,
)

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


TICKS_MAX: Final = 10_000
"""Slots' times that one query names one by one; of more it takes all between the first and last."""
_SQL: Final = "rillnode.view"
"""As what a view's transactions say by which SQL, and of what, its rows were calculated."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OUT_OF_RANGE: Final = re.compile(r"Timestamp (-?\d+) out of range")
_RANGE_REMEDY: Final = (
    "and date_trunc takes those of the years 1678 to 2261: leave others out, such as with "
    "`where at between '1970-01-01' and '2262-01-01'`"
)
OUTSIDE: Final = "rows_outside"
"""Rows that no slot has, because their time cannot be cut off as its SQL says."""
_OUTSIDE: Final = f"rillnode.{OUTSIDE}"
_EVER: Final = (-(2**62), 2**62)
_MICROSECONDS: Final = 'Timestamp(Microsecond, Some("UTC"))'


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Which slots are calculated anew, by their time; times are in microseconds since 1970.

    Attributes:
        low: the first time.
        until: the time after the last one.
        values: streams and times; empty for all between them.
        has_null: whether there are rows without a time, too.
    """

    low: int
    until: int
    values: frozenset[tuple[str, int]] = frozenset()
    has_null: bool = False


class ViewQuery:
    """Makes one view.

    Args:
        view: which.
        source: what it is made of.

    Attributes:
        position: how far in the source's log the view has come, as the last step saw it.
    """

    def __init__(self, view: View, source: Source) -> None:
        self.view = view
        self.position: Position | None = None
        self._source = source
        self._live = LiveTable(view.dir)
        self._cut: tuple[str, ...] = ()

    @property
    def followed(self) -> str:
        """Directory or URI of the table by whose log the position is told."""
        return self._source.followed

    def step(self) -> bool:
        """Take in the next part of what the source has; returns whether there was any.

        Raises:
            ConfigError: its SQL cannot be run or is another than before, or another table lies
                where the view is to be.
            StoreError: the source's log does not reach back to where the view has come.
        """
        try:
            return self._step()
        except Exception as error:
            # The reader of rows raises nothing more special.
            if (found := _OUT_OF_RANGE.search(str(error))) is None:
                raise
            text = f"the sql of view {self.view.name}: a row has the time {found[1]} us since 1970"
            raise ConfigError("view.sql", f"{text}, {_RANGE_REMEDY}") from error

    def _step(self) -> bool:
        relations = self._source.relations()
        if not relations:
            return False
        target = self._live.open()
        if (gone := self._source.erased(target)) is not None:
            self.again(gone.places, [gone.mark])
            return True
        change = self._source.change(target)
        if change is None:
            return False
        self.position = change.start
        planned = self._planned(relations)
        positions = change.end.transactions()
        if self.view.gold is None:
            positions.append(self._made_by(change, target))
            if outside := self._outside(change):
                positions.append(Transaction(_OUTSIDE, max(0, _outside_of(target) + outside)))
        if self._has_other_columns(target, planned):
            self._make_anew(planned, positions)
        else:
            self._replace(planned, *self._calculated(change, planned), positions)
        self.position = change.end
        return True

    def again(self, places: pa.Table, positions: Sequence[Transaction] = ()) -> None:
        """Calculate the slots anew that entries fall into, such as those that were erased.

        Args:
            places: `stream` and `time`, when it was received, of each.
            positions: what the transaction says beside.

        Raises:
            ConfigError: its SQL cannot be run.
        """
        relations, target = self._source.relations(), self._live.open()
        if not relations or target is None:
            return
        self._source.change(target)
        planned = self._planned(relations)
        tick = planned.tick
        if self._has_other_columns(target, planned):
            self._make_anew(planned, positions)
        elif tick is None or tick.source != self._source.received_at:
            # In which slots the entries were nobody can tell any more.
            self._replace(planned, *self._of_all(QueryBuilder()), positions)
        elif (ticks := _ticks([places], tick, self._cut)) is not None:
            self._replace(planned, *self._of_ticks(QueryBuilder(), tick, ticks), positions)

    def figures(self) -> dict[str, object]:
        """How many rows the view has, how many of the source have no slot, and how large it is."""
        table = self._live.open()
        if table is None:
            return {}
        return {"rows": table.count(), OUTSIDE: _outside_of(table), **sizes(table)}

    def _planned(self, relations: Mapping[str, pa.Schema]) -> Plan:
        planned = plan(self.view, relations, self._source.stream)
        self._cut = planned.cut
        return planned

    def _register(self, builder: QueryBuilder, where: Where, at: int | None = None) -> None:
        """Let the SQL select from the source, without rows whose times it cannot cut off."""

        def with_slot(row: str) -> str:
            parts = [where(row)]
            for one in self._cut:
                column = f"{row}.{quoted(one)}"
                time = f"arrow_cast({column}, '{_MICROSECONDS}')"
                low, until = map(_at, YEARS)
                parts.append(f"({column} is null or {time} >= {low} and {time} < {until})")
            return " and ".join(parts)

        self._source.register(builder, with_slot, at)

    def _outside(self, change: Change) -> int:
        """How many rows more than before have no slot."""
        counted = 0
        for column in self._cut:
            for files, sign in ((change.come, 1), (change.gone, -1)):
                # Of a file that is gone nobody knows.
                with suppress(FileNotFoundError):
                    for rows in self._source.times(files, column):
                        can_be: list[bool | None] = _can_be_cut(rows.column("time")).to_pylist()
                        counted += sign * can_be.count(False)
        return counted

    def _has_other_columns(self, target: DeltaTable | None, planned: Plan) -> bool:
        """Whether the same SQL has other columns than before, as what it selects from has."""
        if target is None or self.view.gold is not None:
            return False
        return described(target.schema()) != described(Schema.from_arrow(planned.schema))

    def _replace(
        self, planned: Plan, rows: pa.Table, replaced: Replaced, positions: Sequence[Transaction]
    ) -> None:
        fitting = shaped(rows, planned.schema)
        upsert(self.view.dir, self.view.slot, fitting, positions, replaced)

    def _make_anew(self, planned: Plan, positions: Sequence[Transaction]) -> None:
        rows, _ = self._of_all(QueryBuilder())
        make_anew(self.view.dir, self.view.slot, shaped(rows, planned.schema), positions)

    def _calculated(self, change: Change, planned: Plan) -> tuple[pa.Table, Replaced]:
        builder, tick = QueryBuilder(), planned.tick
        if tick is None:
            return self._by_slots(builder, change)
        try:
            times = self._source.times(change.files, tick.source)
            ticks = _ticks(times, tick, self._cut)
        except FileNotFoundError:
            ticks = _Ticks(*_EVER, has_null=True)
        if ticks is None:
            return planned.schema.empty_table(), Replaced.of(self.view.slot, set())
        return self._of_ticks(builder, tick, ticks)

    def _of_ticks(
        self, builder: QueryBuilder, tick: Tick, ticks: _Ticks
    ) -> tuple[pa.Table, Replaced]:
        """Rows of the slots of some times, of the rows of the source that fall into them."""
        self._register_before(builder, ticks)
        if ticks.values:
            rows = ", ".join(f"({literal(name)}, {at})" for name, at in ticks.values)
            run(builder, f"create table _ticks as select * from (values {rows}) as t(stream, at)")
        self._register(builder, lambda row: self._within(row, tick, ticks))
        found = execute(builder, self.view, select(self.view))
        return found, _replaced(tick, ticks)

    def _by_slots(self, builder: QueryBuilder, change: Change) -> tuple[pa.Table, Replaced]:
        """Rows of the slots that a change touches, of all rows of the source."""
        found = self._received(change)
        if found is None:
            return self._of_all(builder)
        low, high = found
        column = quoted(self._source.received_at)
        slots = ", ".join(f"v.{quoted(one)}" for one in self.view.slot)
        touched = select(self.view, columns=f"distinct {slots}")
        # The slots of rows that have gone are those that they were in before.
        versions = [None, max(change.start.version, 0)] if change.gone else [None]
        for at, version in enumerate(versions):
            self._register(
                builder,
                lambda row: f"{row}.{column} between {_at(low)} and {_at(high)}",
                version,
            )
            execute(builder, self.view, f"explain {touched}")
            run(builder, f"create table _touched{at} as {touched}")
        same = " and ".join(
            f"t.{quoted(one)} is not distinct from v.{quoted(one)}" for one in self.view.slot
        )
        self._register(builder, lambda _: "true")
        wanted = " or ".join(
            f"exists (select 1 from _touched{at} t where {same})" for at in range(len(versions))
        )
        rows = execute(builder, self.view, select(self.view, f"where {wanted}"))
        known = [
            execute(builder, self.view, f"select * from _touched{at}")
            for at in range(len(versions))
        ]
        keys = {one for table in known for one in values_of(table, self.view.slot)}
        return rows, Replaced.of(self.view.slot, keys)

    def _of_all(self, builder: QueryBuilder) -> tuple[pa.Table, Replaced]:
        """All rows of the view."""
        self._register(builder, lambda _: "true")
        rows = execute(builder, self.view, select(self.view))
        return rows, Replaced(self.view.slot, lambda _: True, {})

    def _within(self, row: str, tick: Tick, ticks: _Ticks) -> str:
        """The condition that a row of the source falls into one of the slots."""
        column = f"{row}.{quoted(tick.source)}"
        condition = f"{column} >= {_at(ticks.low)} and {column} < {_at(ticks.until)}"
        if ticks.values:
            at = f"cast(date_trunc({literal(tick.unit)}, {column}) as bigint)"
            stream = f" and t.stream = {row}.{quoted(self._source.stream)}" if tick.stream else ""
            condition += f" and exists (select 1 from _ticks t where t.at = {at}{stream})"
        return f"({column} is null or {condition})" if ticks.has_null else condition

    def _received(self, change: Change) -> tuple[int, int] | None:
        """When the first and the last of the rows in a change were received; None: who knows."""
        found: list[int] = []
        try:
            for rows in self._source.times(change.files, self._source.received_at):
                times = rows.column("time").cast(pa.int64())
                found += [one.as_py() for one in (pc.min(times), pc.max(times)) if one.is_valid]
        except FileNotFoundError:
            return None
        return (min(found), max(found)) if found else (0, -1)

    def _register_before(self, builder: QueryBuilder, ticks: _Ticks) -> None:
        """Let the SQL of a gold table select from its own rows of the day before the slots."""
        gold = self.view.gold
        if gold is None:
            return
        own = open_to_write(self.view.dir, Schema.from_arrow(gold.schema))
        builder.register("_own", own)
        low = max(ticks.low - MEMORY // timedelta(microseconds=1), _EVER[0])
        run(builder, f"create view {BEFORE} as select r.* from _own r "
            f"where r.minute >= {_at(low)} and r.minute < {_at(ticks.until)}")  # fmt: skip

    def _made_by(self, change: Change, target: DeltaTable | None) -> Transaction:
        """By what a view's rows are calculated.

        Raises:
            ConfigError: `view.changed`, those that it has were calculated otherwise.
        """
        said = "\0".join((self.view.sql, *self.view.slot, change.start.table))
        made_by = mark(_SQL, said)
        known = None if target is None else target.transaction_version(_SQL)
        if known not in (None, made_by.version):
            raise ConfigError(
                "view.changed",
                f"the sql or the slot of view {self.view.name} has changed, or what it is made of "
                f"was made anew: remove {self.view.dir}, and the view is made anew; or give it "
                "another dir",
            )
        return made_by


def _ticks(parts: Iterable[pa.Table], tick: Tick, cut: Sequence[str]) -> _Ticks | None:
    """The slots that rows fall into, by their streams and times; None for none."""
    values: set[tuple[str, int]] = set()
    spans: list[int] = []
    has_null = False
    for part in parts:
        has_null = has_null or part.column("time").null_count > 0
        rows = part.filter(pc.is_valid(part.column("time")))
        if tick.source in cut:
            rows = rows.filter(_can_be_cut(rows.column("time")))
        if not rows.num_rows:
            continue
        times = pc.floor_temporal(rows.column("time").cast(_TIME), unit=tick.unit)
        spans += [pc.min(times).cast(pa.int64()).as_py(), _after(pc.max(times), tick.unit)]
        # Of too many, only the ends are of interest.
        if len(values) <= TICKS_MAX:
            values |= _pairs(rows.column("stream") if tick.stream else None, times)
    if not spans:
        return _Ticks(0, 0, has_null=True) if has_null else None
    few = frozenset(values) if len(values) <= TICKS_MAX and not has_null else frozenset[Any]()
    return _Ticks(min(spans), max(spans), few, has_null)


def _can_be_cut(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether `date_trunc` can cut off each of some times to any unit."""
    at = times.cast(_TIME).cast(pa.int64())
    low, until = map(pa.scalar, YEARS)
    return pc.and_(pc.greater_equal(at, low), pc.less(at, until))


def _outside_of(target: DeltaTable | None) -> int:
    return 0 if target is None else target.transaction_version(_OUTSIDE) or 0


def _replaced(tick: Tick, ticks: _Ticks) -> Replaced:
    """The rows of a view that its slots have."""
    if ticks.values:
        found = {(name, _datetime(at)) for name, at in ticks.values}
        if tick.stream:
            return Replaced.of((tick.stream, tick.column), found)
        return Replaced.of((tick.column,), {(at,) for _, at in found})

    def takes(values: tuple[datetime | None, ...]) -> bool:
        (at,) = values
        if at is None:
            return ticks.has_null
        return ticks.low <= (at - _EPOCH) // timedelta(microseconds=1) < ticks.until

    is_known = not ticks.has_null
    ranges = {tick.column: (_datetime(ticks.low), _datetime(ticks.until - 1))} if is_known else {}
    return Replaced((tick.column,), takes, ranges)


def _pairs(streams: pa.ChunkedArray | None, times: pa.ChunkedArray) -> set[tuple[str, int]]:
    """The different pairs of a stream and a time."""
    at = times.cast(pa.int64())
    if streams is None:
        return {("", one) for one in pc.unique(at).to_pylist()}
    found = pa.table({"stream": streams, "at": at}).group_by(["stream", "at"]).aggregate([])
    return set(zip(*(found.column(one).to_pylist() for one in ("stream", "at")), strict=True))


def _after(time: "pa.Scalar[Any]", unit: str) -> int:
    """The beginning of the next unit, in microseconds."""
    after = pc.ceil_temporal(time, unit=unit, ceil_is_strictly_greater=True)
    return int(after.cast(pa.int64()).as_py())


def _at(microseconds: int) -> str:
    """A time as SQL has it; a literal would be in nanoseconds, and end in the year 2262."""
    return f"arrow_cast({microseconds}, '{_MICROSECONDS}')"


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
