"""Says what a view is, and plans it over empty tables: whether its SQL can be, and what it needs.

A slot is calculated from all rows of the source that fall into it. Where a column of the slot is
`date_trunc(unit, column)`, these rows lie in a range of that column, and files outside of it need
not be read. The planner itself tells: it is asked for one value of the slot's column, and where it
looks for the value in each scan of the source by itself, no other row matters.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import DeltaError

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta_log import arrow_schema_of, open_table
from rillnode.node.spark.files import local_path
from rillnode.node.spark.tables import BRONZE_SCHEMA, DERIVED, SILVER_SCHEMA, GoldTable
from rillnode.node.spark.typed.arrays import table_schema
from rillnode.node.spark.typed.columns import unfit_name
from rillnode.node.spark.typed.schemas import load_schema
from rillnode.node.spark.views import SILVER

if TYPE_CHECKING:
    from rillnode.node.spark.table_config import TypedTable

REPEATS: Final = "repeats"
"""In SQL, the Streamr entries of bronze that silver has left out, because they had come before."""
BEFORE: Final = "before"
"""In SQL, a gold table's own rows of the day before the slots that are calculated."""
MEMORY: Final = timedelta(days=1)
"""A chain that was silent for longer begins anew: its first message opens no gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view.

    Attributes:
        name: what it is called.
        sql: one `select`.
        slot: columns of the select by which rows are replaced together.
        dir: directory or URI of its table.
        gold: which gold table it is; None for one that is configured.
    """

    name: str
    sql: str
    slot: tuple[str, ...]
    dir: str
    gold: GoldTable | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns that it must have; None where its SQL decides."""
        return None if self.gold is None else self.gold.schema


def gold_views(gold: str) -> list[View]:
    """The gold tables that are made of silver.

    Args:
        gold: directory or URI of all of them.
    """
    return [
        View(
            name=one.name,
            sql=files("rillnode.node.spark.views")
            .joinpath(f"{one.name}.sql")
            .read_text(encoding="utf-8"),
            slot=one.slot,
            dir=f"{gold.rstrip('/')}/{one.name}",
            gold=one,
        )
        for one in DERIVED
    ]


SILVER_RELATIONS: Final = {SILVER: SILVER_SCHEMA, REPEATS: BRONZE_SCHEMA}
"""What the SQL of a view of silver may select from."""


def check_view(name: str, sql: str, slot: tuple[str, ...], table: "TypedTable | None") -> None:
    """Check a view.

    Args:
        name: what it is called.
        sql: its SQL.
        slot: the columns of its slots.
        table: the typed table that it is made of; None for silver.

    Raises:
        ConfigError: it cannot be, as `plan` says.
    """
    view = View(name=name, sql=sql, slot=slot, dir="")
    if table is None:
        plan(view, SILVER_RELATIONS, "stream")
        return
    check_syntax(view)
    schema = _schema_of(table)
    if schema is not None:
        plan(view, {table.called: schema}, "_stream")


def _schema_of(table: "TypedTable") -> pa.Schema | None:
    """A typed table's columns; None where only its sink's job knows them."""
    if table.dir is None or local_path(table.dir) is None:
        return None
    # It may have got columns since it was declared.
    present = open_table(table.dir)
    if present is not None:
        return arrow_schema_of(present)
    if table.source.class_name:
        return None
    try:
        columns = load_schema(table.source).columns
    except ConfigError:  # the table's own problem, which it tells itself
        return None
    return table_schema(columns, rest=table.evolve == "freeze")


UNITS: Final = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
_ANY_TIME: Final = UNITS[:2]
"""Units to which any time can be cut off."""
YEARS: Final = (-9_214_560_000_000_000, 9_214_646_400_000_000)
"""The years 1678 to 2261, in microseconds since 1970: what `date_trunc` can cut off to all units,
as nanoseconds can tell it."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_MARK_TIME: Final = "timestamp '2001-02-03T04:05:06Z'"
_MARK_MICROSECONDS: Final = 981_173_106_000_000
_MARK_TEXT: Final = "rillnode mark"
_MESSAGE_MAX: Final = 600
PLANS_MAX: Final = 256
"""Plans that a process keeps: to make one takes as long as a step of its view."""
_SYNTAX: Final = "SQL error: "
"""How the errors of a parser begin."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The column of a slot that is a time of its rows, cut off.

    Attributes:
        column: the column of the view.
        unit: what it is cut off to.
        source: the column of the source.
        stream: the column of the view that is the source's stream; empty where a slot has rows of
            all streams.
    """

    column: str
    unit: str
    source: str
    stream: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a view, before it is run.

    Attributes:
        schema: its columns.
        tick: None where slots may need any row of the source.
        cut: times of the source that the SQL cuts off, of which DataFusion can do so with those of
            `YEARS` alone. Rows with others have no slot.
    """

    schema: pa.Schema
    tick: Tick | None
    cut: tuple[str, ...] = ()


def plan(view: View, relations: Mapping[str, pa.Schema], stream: str) -> Plan:
    """Plan a view.

    Args:
        view: the view.
        relations: what its SQL may select from, and the columns of each.
        stream: the column that is the stream in each of them.

    Raises:
        ConfigError: `view.sql`, its SQL cannot be; `view.slot`, it gives no such column;
            `view.column`, no table can have its columns.
    """
    columns = tuple((name, _storable(schema)) for name, schema in relations.items())
    return _plan(replace(view, dir=""), columns, stream)


@lru_cache(maxsize=PLANS_MAX)
def _plan(view: View, columns: tuple[tuple[str, pa.Schema], ...], stream: str) -> Plan:
    """The plan of a view, which is the same wherever its table lies and whatever rows there are."""
    relations = dict(columns)
    own = {} if view.gold is None else {BEFORE: _storable(view.gold.schema)}
    with tempfile.TemporaryDirectory() as directory:
        builder = QueryBuilder()
        for name, schema in {**relations, **own}.items():
            place = f"{directory}/{name}"
            builder.register(name, DeltaTable.create(place, Schema.from_arrow(schema)))
        # By itself first: within another query an error would tell of another line, or of none.
        execute(builder, view, f"explain {view.sql}")
        found = execute(builder, view, select(view)).schema
        schema = _columns(view, found)
        if view.gold is not None:
            # Its SQL asks for its own earlier rows, so that nobody else can tell what it needs.
            return Plan(schema, Tick("minute", "minute", "received_at", "stream"))
        tick = _tick(builder, view, schema, list(relations), stream)
        return Plan(schema, tick, _cut(builder, view, relations))


def check_syntax(view: View) -> None:
    """Refuse what is no SQL, whatever it selects from.

    Raises:
        ConfigError: `view.sql`.
    """
    try:
        execute(QueryBuilder(), view, f"explain {view.sql}")
    except ConfigError as error:
        if _SYNTAX in error.text:
            raise


def select(view: View, condition: str = "", columns: str = "v.*") -> str:
    """A query for rows of a view."""
    return f"select {columns} from (\n{view.sql.rstrip().rstrip(';')}\n) as v {condition}"


def execute(builder: QueryBuilder, view: View, sql: str) -> pa.Table:
    """Run a query for a view.

    Raises:
        ConfigError: `view.sql`, it cannot be.
        DeltaError: it fails for some rows, or these cannot be read.
    """
    try:
        reader = builder.execute(sql)
    except DeltaError as error:
        text = " ".join(str(error).split())[:_MESSAGE_MAX]
        raise ConfigError("view.sql", f"the sql of view {view.name}: {text}") from error
    return pa.table(reader.read_all())


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as a table has them."""
    pairs = zip(rows.columns, schema, strict=True)
    return pa.table([column.cast(one.type) for column, one in pairs], schema=schema)


def _columns(view: View, found: pa.Schema) -> pa.Schema:
    """The columns of a view's table.

    Raises:
        ConfigError: `view.column` or `view.slot`.
    """
    if view.schema is not None:
        return view.schema
    taken: dict[str, str] = {}
    for one in found:
        if why := unfit_name(one.name):
            text = f"view {view.name}: column {one.name!r} {why}; name it with `as`"
            raise ConfigError("view.column", text)
        if one.name.lower() in taken:
            other = taken[one.name.lower()]
            text = f"view {view.name}: columns {other!r} and {one.name!r} have one name"
            raise ConfigError("view.column", f"{text}; readers do not tell cases apart")
        taken[one.name.lower()] = one.name
    for name in view.slot:
        if name not in found.names:
            text = f"view {view.name}: its sql gives no column {name!r}, which its slot names"
            raise ConfigError("view.slot", f"{text}; it gives {', '.join(found.names)}")
        if pa.types.is_nested(found.field(name).type):
            text = f"view {view.name}: column {name!r} is nested, and no slot can be told by it"
            raise ConfigError("view.slot", text)
    return pa.schema([pa.field(one.name, _type(view, one.name, one.type)) for one in found])


def _type(view: View, name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a table's column for that of a query's."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        return _TIME
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_type(view, name, kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _type(view, name, one.type)) for one in kind])
    plain = (
        pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_string,
        pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128,
    )  # fmt: skip
    if any(one(kind) for one in plain):
        return kind
    text = f"view {view.name}: column {name!r} is of type {kind}, which no table has"
    raise ConfigError("view.column", f"{text}; cast it")


def _storable(schema: pa.Schema) -> pa.Schema:
    """The columns of a source without what its fields say beside their types."""
    return pa.schema([pa.field(one.name, one.type) for one in schema])


def _tick(
    builder: QueryBuilder, view: View, schema: pa.Schema, relations: Sequence[str], stream: str
) -> Tick | None:
    """The column of the slot that tells which rows of the source matter."""
    streams = [
        name
        for name in view.slot
        if pa.types.is_string(schema.field(name).type)
        and _scanned(builder, view, f"{quoted(name)} = {literal(_MARK_TEXT)}", relations,
                     rf'{re.escape(stream)} = Utf8(?:View)?\("{_MARK_TEXT}"\)')
    ]  # fmt: skip
    for name in view.slot:
        if not pa.types.is_timestamp(schema.field(name).type):
            continue
        units = "|".join(UNITS)
        found = _scanned(
            builder, view, f"{quoted(name)} = {_MARK_TIME}", relations,
            rf'date_trunc\(Utf8\("({units})"\), (?:\w|[."-])*?\.(\w+)\) = '
            rf'TimestampMicrosecond\({_MARK_MICROSECONDS}, Some\("[^"]+"\)\)',
        )  # fmt: skip
        if len(found) == 1:
            ((unit, column),) = found
            # Of silver only this column tells which of its rows belong to new ones of bronze.
            if SILVER not in relations or column == "received_at":
                return Tick(name, unit, column, streams[0] if streams else "")
    return None


def _cut(builder: QueryBuilder, view: View, relations: Mapping[str, pa.Schema]) -> tuple[str, ...]:
    """The columns, of all relations, that the SQL cuts off to a unit that not every time has."""
    units = "|".join(one for one in UNITS if one not in _ANY_TIME)
    text = _logical_plan(builder, view, select(view))
    found = re.findall(rf'date_trunc\(Utf8\("(?:{units})"\), [^(),]*?(?:CAST\()?([^(), ]+)', text)
    names = dict.fromkeys(one.rpartition(".")[2].strip('"') for one in found)
    return tuple(
        one
        for one in names
        if all(
            one in schema.names and pa.types.is_temporal(schema.field(one).type)
            for schema in relations.values()
        )
    )


def _logical_plan(builder: QueryBuilder, view: View, sql: str) -> str:
    """How a query is run, as the planner tells it."""
    plans: list[dict[str, str]] = execute(builder, view, f"explain {sql}").to_pylist()
    return next(one["plan"] for one in plans if one["plan_type"] == "logical_plan")


def _scanned(
    builder: QueryBuilder, view: View, condition: str, relations: Sequence[str], wanted: str
) -> set[tuple[str, ...]]:
    """How each scan of a source looks for a value by itself; nothing where one does not."""
    text = _logical_plan(builder, view, select(view, f"where v.{condition}"))
    found: set[tuple[str, ...]] = set()
    for line in text.splitlines():
        scan, _, filters = line.strip().partition(" projection=")
        if not scan.startswith("TableScan: "):
            continue
        alone = [
            match.groups() or ("",)
            for one in _conjuncts(filters)
            if (match := re.fullmatch(rf"(?:(?:\w|[.\"-])*?\.)?{wanted}", one))
        ]
        if not alone:
            return set()
        found.update(alone)
    return found


def _conjuncts(filters: str) -> list[str]:
    """The conditions that a scan has, all of which its rows meet."""
    _, _, text = filters.partition("_filters=[")
    parts: list[str] = []
    depth, is_text, start = 0, False, 0
    for at, sign in enumerate(text):
        if sign == '"':
            is_text = not is_text
        elif is_text:
            continue
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth < 0:
                parts.append(text[start:at])
                break
        elif sign == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [one.strip() for one in parts]
