"""Keeps a view up with what it is made of, slot by slot.

A step looks at what the source got since the last one, takes the slots that this touches, and
calculates these slots anew. The query's checkpoint is in the view's own log: the transaction of a
step's rows says how far in the source they reach. What a crash leaves undone is done again with the
same outcome, and there is no other state that could be lost. `docs/decisions/0005` says why it is
no Spark query, and why DataFusion runs the SQL.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, Schema, Transaction

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta import open_to_write
from rillnode.node.spark.delta_log import Position, mark, open_table, sizes
from rillnode.node.spark.schema_upgrade import described
from rillnode.node.spark.upsert import Replaced, make_anew, upsert, values_of
from rillnode.node.spark.views.planning import (
    BEFORE,
    MEMORY,
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
from rillnode.node.spark.views.source import Change, Source, Where, run

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
_TIME: Final = pa.timestamp("us", tz="UTC")
_MICROSECONDS: Final = 'Timestamp(Microsecond, Some("UTC"))'


@dataclass(frozen=True, slots=True)
class _Table:
    """The table of a view, as `upsert` has it."""

    slot: tuple[str, ...]
    schema: pa.Schema


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
        target = open_table(self.view.dir)
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
        relations, target = self._source.relations(), open_table(self.view.dir)
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
        table = open_table(self.view.dir)
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
        table = _Table(self.view.slot, planned.schema)
        upsert(self.view.dir, table, shaped(rows, planned.schema), positions, replaced)

    def _make_anew(self, planned: Plan, positions: Sequence[Transaction]) -> None:
        rows, _ = self._of_all(QueryBuilder())
        table = _Table(self.view.slot, planned.schema)
        make_anew(self.view.dir, table, shaped(rows, planned.schema), positions)

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
