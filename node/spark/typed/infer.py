"""Infers columns from what entries hold, for `rillnode table infer` and for new fields."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
                return Column(name, "int" if value in _INT64 else "json")
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
