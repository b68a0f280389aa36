"""Infers columns from what entries hold, for `rillnode table infer` and for new fields."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Final, cast

import msgspec

from rillnode.node.spark.typed.columns import (
    COLUMNS_MAX,
    DEPTH_MAX,
    Column,
    Columns,
    as_optional,
    unfit_name,
)

_NOTHING: Final = "nothing"
"""Kind of what was always null or empty, so that nobody knows."""
_FIELDS_MAX: Final = 100
"""An object with more fields in it is no struct but a map, whose keys are data."""
_INT64: Final = range(-(2**63), 2**63)


def infer_columns(samples: Iterable[Mapping[str, Any]], *, times: bool = False) -> Columns:
    """The columns that hold all samples; what was always null or empty has none.

    Args:
        samples: decoded JSON objects.
        times: whether texts that are all times or dates become columns of these.
    """
    found = reduce(
        lambda merged, one: _merge_fields(merged, _fields(one, times, 1)),
        samples,
        cast("Columns | None", None),
    )
    return _known(found or ())


def merge_found(one: Columns, other: Columns) -> Columns:
    """Columns that hold what both hold, and may all be left out."""
    return as_optional(_merge_fields(one, other)) if one and other else one or other


def _fields(sample: Mapping[str, Any], times: bool, depth: int) -> Columns:
    return tuple(_kind(name, value, times, depth) for name, value in sample.items())


def _kind(name: str, value: object, times: bool, depth: int) -> Column:
    match value:
        case None:
            return Column(name, _NOTHING, True)
        case bool():
            return Column(name, "bool")
        case int():
            return Column(name, "int" if value in _INT64 else "json")
        case float():
            return Column(name, "float")
        case str():
            return Column(name, _kind_of_text(value) if times else "string")
        case list():
            items = cast("list[object]", value)
            if depth >= DEPTH_MAX:
                return Column(name, "json")
            inner = reduce(
                _merge, (_kind("", one, times, depth + 1) for one in items), Column("", _NOTHING)
            )
            if inner.kind == "json":
                return Column(name, "json")
            return Column(name, "list", False, (inner,))
        case dict():
            fields = cast("dict[str, object]", value)
            if depth >= DEPTH_MAX or len(fields) > _FIELDS_MAX or any(map(unfit_name, fields)):
                return Column(name, "json")
            return Column(name, "struct", False, _fields(fields, times, depth + 1))
        case _:
            return Column(name, "json")


def _kind_of_text(text: str) -> str:
    for kind, type_ in (("date", datetime.date), ("timestamp", datetime.datetime)):
        try:
            msgspec.convert(text, type_)
        except msgspec.ValidationError:
            continue
        return kind
    return "string"


def _merge_fields(one: Columns | None, other: Columns) -> Columns:
    """Columns that hold what both hold; what only one has may be left out."""
    if one is None:
        return other
    rest = {column.name: column for column in other}
    merged = [
        _merge(column, rest.pop(column.name))
        if column.name in rest
        else replace(column, optional=True)
        for column in one
    ]
    merged += [replace(column, optional=True) for column in rest.values()]
    return tuple(merged[:COLUMNS_MAX])


def _merge(one: Column, other: Column) -> Column:
    optional = one.optional or other.optional
    if _NOTHING in (one.kind, other.kind):
        return replace(other if one.kind == _NOTHING else one, optional=optional)
    if one.kind == other.kind:
        match one.kind:
            case "struct":
                inner = _merge_fields(one.columns, other.columns)
            case "list":
                inner = (_merge(one.columns[0], other.columns[0]),)
                if inner[0].kind == "json":
                    return Column(one.name, "json", optional)
            case _:
                inner = ()
        return Column(one.name, one.kind, optional, inner)
    kinds = {one.kind, other.kind}
    if kinds == {"int", "float"}:
        return Column(one.name, "float", optional)
    if kinds <= {"string", "date", "timestamp"}:
        return Column(one.name, "string", optional)
    return Column(one.name, "json", optional)


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
