"""Columns of a typed table: declared, inferred, merged, and as types that decode entries.

A column's *kind* is one of `SCALARS`, or `struct`, `list` or `map` with the columns in it. In TOML:

    columns = { id = "int", at = "timestamp", temp = "float?", tags = ["string"],
                pos = { lat = "float", lon = "float" }, counts = { "*" = "int" } }

A `?` at the end of a kind, or of the name of a list, struct or map, lets the field be left out or
null. `{ "*" = kind }` is a map of texts. What entries hold is inferred for `rillnode table infer`
and for new fields. This module is pure and needs neither Arrow nor Spark.
"""

import datetime
import decimal
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from rillnode.codecs.errors import ConfigError

COLUMNS_MAX: Final = 1_000
"""Columns of a table, those within structs counted too. Readers of wider ones become slow."""
DEPTH_MAX: Final = 20
SECONDS_MIN: Final = -62_135_596_800
SECONDS_MAX: Final = 253_402_300_799
"""The first and the last second of the years 1 to 9999, which columns of times can hold."""

_INT64: Final = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_MILLISECONDS: Final = Annotated[int, Meta(ge=1_000 * SECONDS_MIN, le=1_000 * SECONDS_MAX + 999)]
SCALARS: Final[Mapping[str, Any]] = {
    "bool": bool,
    "int": _INT64,
    "float": float,
    "decimal": decimal.Decimal,
    "string": str,
    "timestamp": datetime.datetime,
    "timestamp_ms": _MILLISECONDS,
    "date": datetime.date,
    "binary": bytes,
    "json": msgspec.Raw,
}
"""Kinds of columns that hold one value, and the types that msgspec decodes them as."""

_SAME: Final = ({"timestamp", "timestamp_ms"}, {"string", "json"})
"""Kinds that are one type in a table."""
# The first of them Delta does not take, nor JSON's decoder the last two.
_UNFIT: Final = re.compile(r"""[\x00-\x1f ,;{}()=`?*"\\]""")


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what a list, struct or map holds.

    Attributes:
        name: as in the entries and in the table; empty for what a list or map holds.
        kind: see the module.
        optional: whether it may be left out or null.
        columns: the columns in a struct, or the one thing that a list or map holds.
        attribute: the field of the decoded object that has its value.
        hint: the type that an application's class gives the field, None where it is none's.
        struct: the application's class of a struct.
        default: the default of the class's field, as arguments of `msgspec.field`.
    """

    name: str
    kind: str
    optional: bool = False
    columns: "tuple[Column, ...]" = ()
    attribute: str = field(default="", compare=False)
    hint: Any = field(default=None, compare=False)
    struct: type | None = field(default=None, compare=False)
    default: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    def count(self) -> int:
        """How many columns it is, with those in it."""
        return 1 + sum(one.count() for one in self.columns)


Columns = tuple[Column, ...]


def read_columns(declared: Mapping[str, Any]) -> Columns:
    """Read columns as they stand in TOML; `check_columns` tells whether a table can have them.

    Raises:
        ConfigError: `table.column`, a kind that cannot be; the text says which.
    """
    return tuple(_read(name, value, name, 1) for name, value in declared.items())


def _read(key: str, value: object, path: str, depth: int) -> Column:
    name, optional = (key[:-1], True) if key.endswith("?") else (key, False)
    if depth > DEPTH_MAX:
        raise unfit(path, f"is nested more than {DEPTH_MAX} deep")
    match value:
        case str():
            kind = value.removesuffix("?")
            if kind not in SCALARS:
                kinds = ", ".join(SCALARS)
                raise unfit(path, f"{value!r} is no kind of column; there is {kinds}")
            return Column(name, kind, optional or value.endswith("?"))
        case list() if len(items := cast("list[object]", value)) == 1:
            inner = _read("", items[0], f"{path}[]", depth + 1)
            return Column(name, "list", optional, (inner,))
        case dict() if value:
            fields = cast("dict[str, object]", value)
            if fields.keys() == {"*"}:
                inner = _read("", fields["*"], f"{path}.*", depth + 1)
                return Column(name, "map", optional, (inner,))
            columns = tuple(
                _read(one, kind, f"{path}.{one}", depth + 1) for one, kind in fields.items()
            )
            return Column(name, "struct", optional, columns)
        case _:
            raise unfit(
                path,
                'expected a kind such as "int", a list of one such as ["int"], or a table of '
                f"columns, not {value!r}",
            )


def written_columns(columns: Columns) -> dict[str, Any]:
    """Columns as `read_columns` reads them."""
    return {_key(one): _written(one) for one in columns}


def _key(column: Column) -> str:
    mark = "?" if column.optional and column.kind not in SCALARS else ""
    return column.name + mark


def _written(column: Column) -> Any:
    match column.kind:
        case "list":
            return [_written(column.columns[0])]
        case "map":
            return {"*": _written(column.columns[0])}
        case "struct":
            return written_columns(column.columns)
        case kind:
            return f"{kind}?" if column.optional else kind


def check_columns(columns: Columns) -> None:
    """Refuse what no table can have.

    Raises:
        ConfigError: `table.column`, a name is reserved, taken or unfit, or there are too many.
    """
    total = sum(one.count() for one in columns)
    if total > COLUMNS_MAX:
        text = f"{total:,} columns are more than the {COLUMNS_MAX:,} that a table may have"
        raise ConfigError("table.column", f"{text}; declare what varies as a map, or as json")
    if not columns:
        raise ConfigError("table.column", "a table needs at least one column")
    for name in (one.name for one in columns):
        if name.startswith("_"):
            raise unfit(name, "is reserved: names with _ at their beginning are of the table's own")
    _check_names(columns, "")


def _check_names(columns: Columns, path: str) -> None:
    taken: dict[str, str] = {}
    for one in columns:
        where = f"{path}{one.name}"
        if why := unfit_name(one.name):
            raise unfit(where, why)
        if other := taken.get(one.name.lower()):
            raise unfit(where, f"is the same name as {other!r}: readers do not tell cases apart")
        taken[one.name.lower()] = one.name
        inner = one.columns
        while len(inner) == 1 and not inner[0].name:
            inner = inner[0].columns
        _check_names(inner, f"{where}.")


def unfit_name(name: str) -> str:
    """Why no column can have this name; empty where one can."""
    if not name:
        return "is empty: a column needs a name"
    if found := _UNFIT.search(name):
        return f"has {found[0]!r} in its name, which columns cannot have"
    return ""


def unfit(path: str, why: str) -> ConfigError:
    """The error that something about a column cannot be."""
    return ConfigError("table.column", f"column {path!r} {why}")


def object_type(
    columns: Columns, *, strict: bool, struct: type | None = None, raw: bool = False
) -> type[Any]:
    """The type that decodes JSON objects with these columns.

    Args:
        columns: of the object.
        strict: whether other fields are an error, also in the structs in it; where a class itself
            forbids them they always are.
        struct: the class whose columns they are, with its own checks; None for none.
        raw: whether lists of numbers that no class has to see are left as JSON; whoever reads it
            has to look at what is in it.
    """
    # A class looks at what its fields hold, and expects what they say.
    raw = raw and struct is None
    fields: list[tuple[str, Any, Any]] = []
    for at, one in enumerate(columns):
        default: Mapping[str, Any] = one.default or ({"default": None} if one.optional else {})
        fields.append((attribute(one, at), _type_of(one, strict, raw), msgspec.field(**default)))
    config: Any = getattr(struct, "__struct_config__", None)
    made: type[Any] = msgspec.defstruct(
        "Entry" if struct is None else struct.__name__,
        fields,
        bases=None if struct is None else (struct,),
        forbid_unknown_fields=strict or (config is not None and config.forbid_unknown_fields),
        rename={attribute(one, at): one.name for at, one in enumerate(columns)},
        kw_only=True,
    )
    return made


def attribute(column: Column, at: int) -> str:
    """The field of a decoded object that has the value of its column number `at`."""
    return column.attribute or f"c{at}"


def _type_of(column: Column, strict: bool, raw: bool) -> Any:
    if column.hint is not None and not _has_struct(column):
        return column.hint
    match column.kind:
        case "list" if raw and _is_of_numbers(column):
            kind: Any = msgspec.Raw
        case "list":
            kind = list[_type_of(column.columns[0], strict, raw)]  # type: ignore[misc]
        case "map":
            kind = dict[str, _type_of(column.columns[0], strict, raw)]  # type: ignore[misc]
        case "struct":
            kind = object_type(column.columns, strict=strict, struct=column.struct, raw=raw)
        case scalar:
            kind = SCALARS[scalar]
    # msgspec decodes nothing but null as `Raw | None`.
    return kind | None if column.optional and kind is not msgspec.Raw else kind


def _is_of_numbers(column: Column) -> bool:
    (item,) = column.columns
    return item.kind in ("int", "float") and (column.hint, item.hint) == (None, None)


def _has_struct(column: Column) -> bool:
    return (column.kind == "struct" and column.struct is not None) or any(
        _has_struct(one) for one in column.columns
    )


def merge_columns(
    table: Iterable[Column], wanted: Columns, *, widen: bool, path: str = ""
) -> Columns:
    """What a table has to become to take in `wanted`: its columns in order, then the new ones.

    Columns of the table that are not wanted stay, and may be null.

    Args:
        table: the columns that the table has.
        wanted: those that it is to have.
        widen: whether whole numbers may become floating-point ones.
        path: of what the columns are in, for errors.

    Raises:
        ConfigError: `table.schema`, a column would have to change its type.
    """
    asked = {one.name.lower(): one for one in wanted}
    merged: list[Column] = []
    for one in table:
        other = asked.pop(one.name.lower(), None)
        if other is None:
            merged += as_optional([one])
        else:
            merged.append(_merge(one, other, widen, f"{path}{one.name}"))
    return (*merged, *(one for one in wanted if one.name.lower() in asked))


def _merge(have: Column, want: Column, widen: bool, path: str) -> Column:
    if have.name != want.name:
        raise _change(path, f"is {want.name!r} in the schema, which readers do not tell apart")
    if have.kind == want.kind:
        if have.kind == "struct":
            inner = merge_columns(have.columns, want.columns, widen=widen, path=f"{path}.")
        else:
            inner = tuple(
                _merge(one, other, widen, f"{path}[]")
                for one, other in zip(have.columns, want.columns, strict=True)
            )
        kept = inner == want.columns
        return replace(want, columns=inner, hint=want.hint if kept else None)
    if (have.kind, want.kind) == ("float", "int"):
        return replace(want, kind="float", hint=None)
    if {have.kind, want.kind} in _SAME:
        return want
    if (have.kind, want.kind) == ("int", "float"):
        if widen:
            return want
        raise _change(
            path,
            'is int in the table and float in its schema: set evolve = "widen", which writes the '
            "table's files anew, once",
        )
    raise _change(
        path,
        f"is {have.kind} in the table and {want.kind} in its schema, and a column keeps its type: "
        "give the new one another name, or the table another dir",
    )


def _change(path: str, text: str) -> ConfigError:
    return ConfigError("table.schema", f"column {path!r} {text}")


def as_optional(columns: Iterable[Column]) -> Columns:
    """Columns, and all in them, as entries that need not have them."""
    return tuple(replace(one, optional=True, columns=as_optional(one.columns)) for one in columns)


def widened(columns: Columns, paths: Iterable[Sequence[str]]) -> Columns:
    """Columns of which some that hold whole numbers hold floating-point numbers instead."""
    firsts: dict[str, list[Sequence[str]]] = {}
    for first, *rest in paths:
        firsts.setdefault(first, []).append(rest)
    return tuple(_widened(one, firsts[one.name]) if one.name in firsts else one for one in columns)


def _widened(column: Column, paths: Sequence[Sequence[str]]) -> Column:
    if column.kind == "int":
        return replace(column, kind="float", hint=None)
    return replace(column, columns=widened(column.columns, paths), hint=None)


def walk(columns: Columns, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
    """All columns with their paths; a list's or map's own thing has an empty name."""
    for one in columns:
        here = (*path, one.name)
        yield here, one
        yield from walk(one.columns, here)


_NOTHING: Final = "nothing"
"""Kind of what was always null or empty, so that nobody knows."""
_FIELDS_MAX: Final = 100
"""An object with more fields in it is no struct but a map, whose keys are data."""
_WHOLE: Final = range(-(2**63), 2**63)


def infer_columns(samples: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns that hold all samples; what was always null or empty has none.

    Texts that are all times or dates are columns of these; what is now one thing and now another,
    or has names that no column can have, is JSON.
    """
    return _Inference(times=True, first=False).columns(samples)


def new_columns(samples: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns that new fields of entries are to be, in the order in which they came.

    The first entry that has a field says what it is; another that differs has to fit, or does not.
    """
    return as_optional(_Inference(times=False, first=True).columns(samples))


def merge_new(one: Columns, other: Columns) -> Columns:
    """The new columns of some entries and of others that came after them."""
    return as_optional(_Inference(times=False, first=True).merge_fields(one, other))


@dataclass(frozen=True, slots=True)
class _Inference:
    """Finds columns.

    Attributes:
        times: whether texts may be times.
        first: whether of two kinds the first one counts, and not one that holds both.
    """

    times: bool
    first: bool

    def columns(self, samples: Iterable[Mapping[str, Any]]) -> Columns:
        """The columns of all samples."""
        found = reduce(self._with, samples, cast("Columns | None", None))
        return _known(found or ())

    def _with(self, merged: Columns | None, sample: Mapping[str, Any]) -> Columns:
        return self.merge_fields(merged, self._fields(sample, 1))

    def _fields(self, sample: Mapping[str, Any], depth: int) -> Columns:
        return tuple(self._column(name, value, depth) for name, value in sample.items())

    def _column(self, name: str, value: object, depth: int) -> Column:
        match value:
            case None:
                return Column(name, _NOTHING, True)
            case bool():
                return Column(name, "bool")
            case int():
                return Column(name, "int" if value in _WHOLE else "json")
            case float():
                return Column(name, "float")
            case str():
                return Column(name, _kind_of_text(value) if self.times else "string")
            case list():
                items = cast("list[object]", value)
                if depth >= DEPTH_MAX:
                    return Column(name, "json")
                columns = (self._column("", one, depth + 1) for one in items)
                inner = reduce(self._merge, columns, Column("", _NOTHING))
                if inner.kind == "json":
                    return Column(name, "json")
                return Column(name, "list", False, (inner,))
            case dict():
                fields = cast("dict[str, object]", value)
                unfit = not self.first and any(map(unfit_name, fields))
                if depth >= DEPTH_MAX or len(fields) > _FIELDS_MAX or unfit:
                    return Column(name, "json")
                return Column(name, "struct", False, self._fields(fields, depth + 1))
            case _:
                return Column(name, "json")

    def merge_fields(self, one: Columns | None, other: Columns) -> Columns:
        """Columns that hold what both hold; what only one has may be left out."""
        if one is None:
            return other
        rest = {column.name: column for column in other}
        merged = [
            self._merge(column, rest.pop(column.name))
            if column.name in rest
            else replace(column, optional=True)
            for column in one
        ]
        merged += [replace(column, optional=True) for column in rest.values()]
        return tuple(merged[:COLUMNS_MAX])

    def _merge(self, one: Column, other: Column) -> Column:
        optional = one.optional or other.optional
        if _NOTHING in (one.kind, other.kind):
            return replace(other if one.kind == _NOTHING else one, optional=optional)
        kinds = {one.kind, other.kind}
        if kinds == {"int", "float"}:
            return Column(one.name, "float", optional)
        if one.kind != other.kind:
            if self.first:
                return replace(one, optional=optional)
            texts = kinds <= {"string", "date", "timestamp"}
            return Column(one.name, "string" if texts else "json", optional)
        match one.kind:
            case "struct":
                inner = self.merge_fields(one.columns, other.columns)
            case "list":
                inner = (self._merge(one.columns[0], other.columns[0]),)
                if inner[0].kind == "json":
                    return Column(one.name, "json", optional)
            case _:
                inner = ()
        return Column(one.name, one.kind, optional, inner)


def _kind_of_text(text: str) -> str:
    for kind, type_ in (("date", datetime.date), ("timestamp", datetime.datetime)):
        try:
            msgspec.convert(text, type_)
        except msgspec.ValidationError:
            continue
        return kind
    return "string"


def _known(columns: Columns) -> Columns:
    return tuple(found for one in columns if (found := _without_nothing(one)) is not None)


def _without_nothing(column: Column) -> Column | None:
    """The column without what nobody knows the kind of; None where nothing is left."""
    if column.kind == _NOTHING:
        return None
    if column.kind not in ("struct", "list"):
        return column
    inner = _known(column.columns)
    return replace(column, columns=inner) if inner else None
