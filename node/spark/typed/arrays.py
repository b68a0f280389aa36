"""Arrow's side of typed tables: schemas of their files, and arrays of decoded values."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import tables
from rillnode.node.spark.typed.columns import (
    SECONDS_MAX,
    SECONDS_MIN,
    Column,
    Columns,
    attribute,
)

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
PLACE_COLUMNS: Final = (
    tables.Column("_stream", pa.string(), "the stream's name"),
    tables.Column("_partition", pa.int32(), "the partition; in Iceberg tables `_stream_partition`"),
    tables.Column("_index", pa.int64(), "where the entry stands in the partition"),
    tables.Column("_received_at", TIMESTAMP, "when the node took it"),
    tables.Column("_created_at", TIMESTAMP, "when the stream was created"),
)
PLACE: Final = tables.arrow_schema(PLACE_COLUMNS)
"""Where a row's entry stands; all of it together is unique."""
ICEBERG_NAMES: Final = {"_partition": "_stream_partition"}
"""What columns are called in Iceberg's tables whose names Iceberg keeps for itself."""
OWN_NAMES: Final = {other: name for name, other in ICEBERG_NAMES.items()}
REST: Final = pa.field("_rest", pa.string())
"""The fields of an entry that the schema does not have, as JSON, where they are kept."""
REJECT_COLUMNS: Final = (
    tables.Column("kind", pa.string(), "as in bronze"),
    tables.Column("data", pa.binary(), "as in bronze"),
    tables.Column("reason", pa.string(), "why the entry does not fit, with the path in it"),
    tables.Column("schema_version", pa.int32(), "number of the schema that it did not fit"),
    tables.Column("rejected_at", TIMESTAMP, "when"),
)
REJECTS: Final = tables.arrow_schema((*PLACE_COLUMNS, *REJECT_COLUMNS))
"""Entries that did not fit, as they are in bronze."""

KIND: Final = b"rillnode.kind"
"""Metadata of a field that says its kind where its type does not."""
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(38, 18),
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "timestamp_ms": TIMESTAMP,
    "date": pa.date32(),
    "binary": pa.binary(),
    "json": pa.string(),
}
_FIRST, _LAST = 1_000_000 * SECONDS_MIN, 1_000_000 * (SECONDS_MAX + 1)
_CHECKS: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_decimal, "decimal"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
)


def table_schema(columns: Columns, *, rest: bool, own: Sequence[pa.Field] = ()) -> pa.Schema:
    """The schema of a typed table; all columns may be null.

    Args:
        columns: the columns, which come after where rows come from.
        rest: whether there is `_rest`.
        own: what else is of the table's own.
    """
    parts = [*PLACE, *([REST] if rest else []), *own]
    return pa.schema([*parts, *(arrow_field(one) for one in columns)])


def arrow_field(column: Column) -> pa.Field:
    """A column as a field of Arrow's."""
    metadata = {KIND: b"json"} if column.kind == "json" else None
    return pa.field(column.name, _arrow_type(column), metadata=metadata)


def _arrow_type(column: Column) -> pa.DataType:
    match column.kind:
        case "list":
            return pa.list_(pa.field("element", _arrow_type(column.columns[0])))
        case "map":
            return pa.map_(pa.string(), _arrow_type(column.columns[0]))
        case "struct":
            return pa.struct([arrow_field(one) for one in column.columns])
        case scalar:
            return _ARROW[scalar]


def columns_of(schema: pa.Schema) -> Columns:
    """The columns of a table that has this schema.

    Raises:
        ConfigError: `table.schema`, it has columns that no typed table has.
    """
    return tuple(_column_of(one) for one in schema if not one.name.startswith("_"))


def _column_of(field: pa.Field) -> Column:
    kind = field.type
    if pa.types.is_struct(kind):
        inner = tuple(_column_of(kind.field(at)) for at in range(kind.num_fields))
        return Column(field.name, "struct", True, inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Column(field.name, "list", True, (_column_of(pa.field("", kind.value_type)),))
    if pa.types.is_map(kind):
        return Column(field.name, "map", True, (_column_of(pa.field("", kind.item_type)),))
    if told := (field.metadata or {}).get(KIND):
        return Column(field.name, told.decode(), True)
    for check, name in _CHECKS:
        if check(kind):
            return Column(field.name, name, True)
    text = f"column {field.name!r} of the table is {kind}, which no typed table has"
    raise ConfigError("table.schema", f"{text}: another writer changed it; give this one a new dir")


def object_arrays(columns: Columns, objects: Sequence[object]) -> list[pa.Array]:
    """One array for each column, of decoded objects or None.

    Raises:
        pa.ArrowException, OverflowError, ValueError: a value does not fit its column, or JSON that
            was not decoded is not plainly a list of numbers.
    """
    may_lack = any(one is None for one in objects)
    arrays: list[pa.Array] = []
    for at, column in enumerate(columns):
        value = attrgetter(attribute(column, at))
        values = [None if one is None else value(one) for one in objects] if may_lack else None
        arrays.append(value_array(column, values or list(map(value, objects))))
    return arrays


def value_array(column: Column, values: list[Any]) -> pa.Array:
    """An array of decoded values of one column, some of which may be None.

    Raises:
        pa.ArrowException, OverflowError, ValueError: as of `object_arrays`.
    """
    if column.optional and column.hint is not None:
        values = [None if one is msgspec.UNSET else one for one in values]
    match column.kind:
        case "struct":
            arrays = object_arrays(column.columns, values)
            fields = [arrow_field(one) for one in column.columns]
            mask = pa.array([one is None for one in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
        case "list" if isinstance(_first(values), msgspec.Raw):
            return _numbers(column, values)
        case "list":
            flat = [item for one in values if one is not None for item in one]
            items = value_array(column.columns[0], flat)
            return pa.ListArray.from_arrays(_offsets(values), items, type=_arrow_type(column))
        case "map":
            keys = [key for one in values if one is not None for key in one]
            flat = [item for one in values if one is not None for item in one.values()]
            items = value_array(column.columns[0], flat)
            return pa.MapArray.from_arrays(_offsets(values), pa.array(keys, pa.string()), items)
        case "timestamp":
            times = pa.array(values, TIMESTAMP)
            _check_years(times)
            return times
        case "timestamp_ms":
            return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        case "json":
            return pa.array([_json_text(one) for one in values], pa.string())
        case "string" | "int":
            try:
                return pa.array(values, _ARROW[column.kind])
            except pa.ArrowException:
                return pa.array([_plain(one) for one in values], _ARROW[column.kind])
        case "decimal":
            try:
                return pa.array(values, _ARROW[column.kind])
            except pa.ArrowException as error:
                text = "Expected a decimal of at most 20 digits before the point and 18 after it"
                raise pa.ArrowException(text) from error
        case scalar:
            return pa.array(values, _ARROW[scalar])


def _numbers(column: Column, values: Sequence[msgspec.Raw | None]) -> pa.Array:
    """An array of lists of numbers that are JSON still, without an object for each number.

    Arrow reads a number that is one by JSON as msgspec does. All else it refuses, but for what is
    infinite here and out of range there, and for `-0`, which is 0 there.

    Raises:
        pa.ArrowException, ValueError: something is not plainly a number.
    """
    (item,) = column.columns
    lists = pa.array([None if one is None else bytes(one) for one in values], pa.binary())
    if column.optional:
        lists = pc.if_else(pc.equal(lists, b"null"), None, lists)
    if pc.all(pc.starts_with(lists, "[")).as_py() is False:
        raise ValueError("not plainly lists")
    is_null, lists = pc.is_null(lists), pc.if_else(pc.equal(lists, b"[]"), None, lists)
    within = pc.binary_slice(lists, 1, -1).cast(pa.string())
    is_spaced = pc.any(pc.match_substring(within, ", ")).as_py()
    parts = pc.split_pattern(within, ", " if is_spaced else ",")
    items = parts.values
    if item.optional:
        items = pc.if_else(pc.equal(items, "null"), None, items)
    numbers = items.cast(_ARROW[item.kind])
    if item.kind == "float":
        plain = numbers.drop_null().to_numpy()
        if not np.isfinite(plain).all() or (np.signbit(plain) & (plain == 0)).any():
            raise ValueError("not plainly numbers")
    return pa.ListArray.from_arrays(parts.offsets, numbers, type=_arrow_type(column), mask=is_null)


def _first(values: Iterable[Any]) -> Any:
    """The first value that is not None; None where all are."""
    return next((one for one in values if one is not None), None)


def _check_years(times: pa.Array) -> None:
    """Refuse times that no reader can show: those of other zones may end outside of these years.

    Raises:
        OverflowError: one of them is.
    """
    bounds: dict[str, int | None] = pc.min_max(times.cast(pa.int64())).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is not None and high is not None and (low < _FIRST or high >= _LAST):
        raise OverflowError("in UTC the time is not in the years 1 to 9999")


def _offsets(values: Iterable[Any]) -> pa.Array:
    """Where each list begins, and the last one ends; null where there is none."""
    offsets: list[int | None] = []
    end = 0
    for one in values:
        offsets.append(None if one is None else end)
        end += 0 if one is None else len(one)
    return pa.array([*offsets, end], pa.int32())


def _plain(value: Any) -> Any:
    """A text or a number, also of what has one: a member of an enumeration, a UUID."""
    if value is None or type(value) in (str, int):
        return value
    return value.value if isinstance(value, enum.Enum) else str(value)


def _json_text(value: object) -> str | None:
    raw = value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    text = bytes(raw).decode()
    return None if text == "null" else text
