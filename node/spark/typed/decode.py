"""Lands rows of bronze as rows of a typed table and of its rejects: a pure function of a batch.

An entry fits if its JSON decodes as the schema says. One that does not becomes a reject, with its
bytes and the reason. What the schema does not have is left to `evolve`: new fields and wider
numbers are *found*, for the table to take them in, and their entries decoded once more; or they go
to `_rest`; or the table waits for people.
"""

import datetime
import gc
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.node.entries import Readers, Unreadable
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import BRONZE_SCHEMA
from rillnode.node.spark.typed.arrays import (
    PLACE,
    REJECTS,
    object_arrays,
    table_schema,
    value_array,
)
from rillnode.node.spark.typed.columns import (
    COLUMNS_MAX,
    DEPTH_MAX,
    Column,
    Columns,
    attribute,
    merge_columns,
    new_columns,
    object_type,
    read_columns,
)
from rillnode.node.spark.typed.judging import Expectations, Unexpected
from rillnode.node.spark.typed.keys import Marker, null_keys
from rillnode.node.spark.typed.layout import PLAIN, Expectation, Layout
from rillnode.node.spark.typed.schemas import Evolve, Schema, SchemaSource, load_schema
from rillnode.node.spark.typed.times import long_values

REASON_MAX: Final = 500
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FAULTS: Final = (
    msgspec.MsgspecError,
    # What an application's own checks fail with, and texts that are no UTF-8.
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
_NO_REJECTS: Final = pa.RecordBatch.from_pylist([], schema=REJECTS)
_DOES_NOT_FIT: Final = (pa.ArrowException, OverflowError, ValueError, TypeError)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan by which any process lands entries.

    Attributes:
        source: where the schema comes from.
        table: the columns that the table has now, as in TOML.
        rest: whether the table has `_rest`.
        evolve: what is done about what the schema does not have.
        settled: all that could be found was taken in: the rest are rejects.
        version: number of the schema.
        expect: what is expected of each row.
        layout: how the table's rows are kept.
        key_files: paths of files with keys for encrypted entries, by kind of entries.
    """

    source: SchemaSource
    table: dict[str, Any]
    rest: bool = False
    evolve: Evolve = "add"
    settled: bool = False
    version: int = 1
    expect: tuple[Expectation, ...] = ()
    layout: Layout = PLAIN
    key_files: dict[str, str] = {}


class Found(NamedTuple):
    """The fields that entries have and the schema does not.

    Attributes:
        columns: new fields.
        wide: paths of columns of whole numbers in which there are others.
    """

    columns: Columns = ()
    wide: frozenset[tuple[str, ...]] = frozenset()


class Landed(NamedTuple):
    """The rows of bronze, decoded, and those that were rejected.

    Attributes:
        rows: rows of the typed table.
        rejects: rows of its rejects.
        found: what the table should take in first; its entries are in neither of both.
        pause: why the table has to wait for people; empty where it need not.
        unexpected: how many rows did not meet an expectation.
    """

    rows: pa.RecordBatch
    rejects: pa.RecordBatch
    found: Found
    pause: str
    unexpected: Unexpected


class _Fitting(NamedTuple):
    """What of some rows fits the columns.

    Attributes:
        arrays: the columns of those rows that do.
        good: which these are.
        bad: which do not, and why.
        found: as of `Landed`.
        pause: as of `Landed`.
    """

    arrays: list[pa.Array]
    good: Sequence[int]
    bad: list[tuple[int, str]]
    found: Found = Found()
    pause: str = ""


class _Misfit(Exception):
    """Why an entry does not fit."""


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """What one entry has that the schema does not: JSON of the new fields, and paths.

    Attributes:
        one: the entry without the new fields; None where a number is too wide for it.
    """

    fields: dict[str, Any]
    wide: frozenset[tuple[str, ...]]
    one: object


class Lander:
    """Lands batches by one plan.

    Raises:
        ConfigError: the schema does not load, or the table would have to be another.
    """

    def __init__(self, plan: Plan, schema: Schema | None = None) -> None:
        schema = schema or load_schema(plan.source)
        self._plan = plan
        self.columns = merge_columns(read_columns(plan.table), schema.columns, widen=True)
        self.schema = table_schema(self.columns, rest=plan.rest)
        self._expectations = Expectations(plan.expect, self.schema)
        self.marker = Marker(plan.layout, self.schema)
        self._strict, self._lenient = (
            msgspec.json.Decoder(object_type(self.columns, strict=strict, struct=schema.struct))
            for strict in (True, False)
        )
        self._raw = msgspec.json.Decoder(
            object_type(self.columns, strict=True, struct=schema.struct, raw=True)
        )

    def land(self, rows: pa.RecordBatch, now: datetime.datetime) -> Landed:
        """Land rows of any version of the bronze schema, in order.

        Raises:
            ConfigError: a file of keys cannot be read here.
        """
        rows = conform(rows, BRONZE_SCHEMA)
        is_entry = pc.not_equal(rows.column("kind"), "gap")
        if not pc.all(is_entry).as_py():
            rows = rows.filter(is_entry)
        with _without_collecting():
            fitting = self._at_once(rows) or self._one_by_one(rows)
        good, bad = fitting.good, fitting.bad
        landed = pa.RecordBatch.from_arrays(
            [*_place(rows, good), *fitting.arrays], schema=self.schema
        )
        layout = self._plan.layout
        if unfit := long_values(landed, layout) | null_keys(landed, layout):
            bad += [(good[at], why) for at, why in unfit.items()]
            kept = [at for at in range(len(good)) if at not in unfit]
            landed, good = landed.take(pa.array(kept, pa.int64())), [good[at] for at in kept]
        judged = self._expectations.judge(landed)
        bad += [(good[at], why) for at, why in judged.rejected]
        rejects = self._rejects(rows, sorted(bad), now)
        return Landed(judged.rows, rejects, fitting.found, fitting.pause, judged.unexpected)

    def _at_once(self, rows: pa.RecordBatch) -> "_Fitting | None":
        """All entries as they fit; None where one of them has to be looked at by itself."""
        if any(kind != "bytes" for kind in pc.unique(rows.column("kind")).to_pylist()):
            return None
        decode: Callable[[bytes], object] = self._raw.decode
        try:
            objects = list(map(decode, rows.column("data").to_pylist()))
            arrays = object_arrays(self.columns, objects)
        except _FAULTS + _DOES_NOT_FIT:
            return None
        rests = [pa.nulls(rows.num_rows, pa.string())] if self._plan.rest else []
        return _Fitting([*rests, *arrays], range(rows.num_rows), [])

    def _one_by_one(self, rows: pa.RecordBatch) -> "_Fitting":
        """What fits, and of each entry that does not, why."""
        objects: list[object] = []
        rests: list[str | None] = []
        good: list[int] = []
        bad: list[tuple[int, str]] = []
        found = Found()
        pause = ""
        samples: list[dict[str, Any]] = []
        strict: Callable[[bytes], object] = self._strict.decode
        for at, payload in enumerate(_payloads(rows, Readers(self._plan.key_files))):
            rest = None
            try:
                if isinstance(payload, _Misfit):
                    raise payload
                try:
                    one = strict(payload)
                except _FAULTS as error:
                    one = self._judge(payload, error)
                if isinstance(one, _Unsettled):
                    if self._plan.evolve == "freeze":
                        rest = msgspec.json.encode(one.fields).decode()
                        one = one.one
                    elif self._plan.evolve == "pause":
                        pause = pause or self._change(rows, at, one)
                        continue
                    else:
                        samples.append(one.fields)
                        found = found._replace(wide=found.wide | one.wide)
                        continue
            except _Misfit as misfit:
                bad.append((at, str(misfit)))
                continue
            objects.append(one)
            rests.append(rest)
            good.append(at)
        arrays = self._arrays(objects, rests, good, bad)
        found = found._replace(columns=new_columns(samples))
        return _Fitting(arrays, good, bad, found, pause)

    def _judge(self, payload: bytes, error: BaseException) -> object:
        """The object of an entry that is no strict one, or what the schema lacks for it.

        Raises:
            _Misfit: it does not fit.
        """
        if not isinstance(error, msgspec.ValidationError):
            raise _Misfit(_reason(error)) from error
        try:
            said: object = msgspec.json.decode(payload)
        except msgspec.ValidationError:
            raise _Misfit(_reason(error)) from error
        except _FAULTS as broken:
            raise _Misfit(_reason(broken)) from broken
        if not isinstance(said, dict):
            raise _Misfit(_reason(error)) from error
        wide: set[tuple[str, ...]] = set()
        fields = _unknown(cast("dict[str, Any]", said), self.columns, (), wide)
        try:
            one = self._lenient.decode(payload)
        except _FAULTS as other:
            if wide and self._plan.evolve == "widen" and not self._plan.settled:
                return _Unsettled(fields, frozenset(wide), None)
            raise _Misfit(_reason(other)) from other
        if not fields:
            return one
        if self._plan.evolve in ("add", "widen"):
            new = new_columns([fields])
            if (count := self._would_have(new)) > COLUMNS_MAX:
                # Some of them would fill the table for nothing: the entry does not fit anyway.
                text = f"the table would have {count:,} columns, more than the {COLUMNS_MAX:,}"
                raise _Misfit(f"{_reason(error)}: {text} that it may have") from error
            # Of lists of this and that, nobody may know what they are columns of.
            if self._plan.settled or not new:
                text = f"{_reason(error)}: it could not become a column of the table"
                raise _Misfit(text) from error
        return _Unsettled(fields, frozenset(), one)

    def _would_have(self, new: Columns) -> int:
        """How many columns a table would have that took in all new ones of an entry."""
        present = sum(one.count() for one in self.columns)
        most = present + sum(one.count() for one in new)
        if most <= COLUMNS_MAX:
            return most
        try:
            return sum(one.count() for one in merge_columns(self.columns, new, widen=False))
        except ConfigError:
            return present  # what cannot be is told when the others have been taken in

    def _change(self, rows: pa.RecordBatch, at: int, change: _Unsettled) -> str:
        names = ", ".join(sorted(change.fields))[:REASON_MAX]
        place = "/".join(str(rows.column(one)[at]) for one in ("stream", "partition", "index"))
        return (
            f"the entry {place} has fields that the schema does not have: {names}. Declare them, "
            'or set evolve to "add" or "freeze"'
        )

    def _arrays(
        self,
        objects: list[object],
        rests: list[str | None],
        good: list[int],
        bad: list[tuple[int, str]],
    ) -> list[pa.Array]:
        """The columns' arrays; what does not fit its column leaves the first three lists."""
        try:
            arrays = object_arrays(self.columns, objects)
        except _DOES_NOT_FIT:
            for at in reversed(range(len(objects))):
                if why := _overflow(self.columns, objects[at]):
                    bad.append((good[at], why))
                    del objects[at], rests[at], good[at]
            arrays = object_arrays(self.columns, objects)
        return [*([pa.array(rests, pa.string())] if self._plan.rest else []), *arrays]

    def _rejects(
        self, rows: pa.RecordBatch, bad: list[tuple[int, str]], now: datetime.datetime
    ) -> pa.RecordBatch:
        if not bad:
            return _NO_REJECTS
        at = [one for one, _ in bad]
        arrays = [
            *_place(rows, at),
            rows.column("kind").take(pa.array(at, pa.int64())),
            rows.column("data").take(pa.array(at, pa.int64())),
            pa.array([why for _, why in bad], pa.string()),
            pa.array([self._plan.version] * len(bad), pa.int32()),
            pa.array([now] * len(bad), REJECTS.field("rejected_at").type),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=REJECTS)


def _payload_of(kind: str, data: bytes, readers: Readers) -> bytes:
    """The JSON that an entry of a kind carries.

    Raises:
        _Misfit: it carries none that can be read.
    """
    try:
        return readers.of(kind).payload(data)
    except (CodecError, Unreadable, UnicodeEncodeError) as error:
        raise _Misfit(_reason(error)) from error


def said_by(kind: str, data: bytes, readers: Readers) -> dict[str, Any] | None:
    """The JSON object that an entry carries; None where it carries none that can be read."""
    try:
        said: object = msgspec.json.decode(_payload_of(kind, data, readers))
    except (_Misfit, *_FAULTS):
        return None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else None


def _payloads(rows: pa.RecordBatch, readers: Readers) -> Iterator["bytes | _Misfit"]:
    kinds: list[str] = rows.column("kind").to_pylist()
    items: list[bytes | None] = rows.column("data").to_pylist()
    for kind, data in zip(kinds, items, strict=True):
        if kind == "bytes":
            yield data or b""
            continue
        try:
            yield _payload_of(kind, data or b"", readers)
        except _Misfit as misfit:
            yield misfit


def _place(rows: pa.RecordBatch, at: Sequence[int]) -> list[pa.Array]:
    columns = [rows.column(one.name.removeprefix("_")) for one in PLACE]
    if len(at) == rows.num_rows:
        return columns
    chosen = pa.array(at, pa.int64())
    return [one.take(chosen) for one in columns]


@contextmanager
def _without_collecting() -> Generator[None]:
    """Let nobody look for circles among the objects of a batch, which has none and soon goes.

    Entries decode to a hundred thousand objects a second that the collector would go through, and
    with them, every few batches, through all that the process has.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unknown(
    said: dict[str, Any], columns: Columns, path: tuple[str, ...], wide: set[tuple[str, ...]]
) -> dict[str, Any]:
    """The fields of an object that columns do not have, whatever is null or empty left out.

    Args:
        said: the object.
        columns: those that it should have.
        path: of the object.
        wide: gets the paths of columns of whole numbers in which there are others.
    """
    known = {one.name: one for one in columns}
    found: dict[str, Any] = {}
    for name, value in said.items():
        column = known.get(name)
        part = value if column is None else _unknown_in(value, column, (*path, name), wide)
        if not _is_nothing(part):
            found[name] = part
    return found


def _is_nothing(value: Any, depth: int = 1) -> bool:
    """Whether a value is null or empty, with all that is in it: it tells no kind of column."""
    if value is None:
        return True
    if not isinstance(value, list | dict) or depth >= DEPTH_MAX:
        return False
    inner = cast("list[Any] | dict[str, Any]", value)
    items = inner.values() if isinstance(inner, dict) else inner
    return all(_is_nothing(one, depth + 1) for one in items)


def _unknown_in(
    value: Any, column: Column, path: tuple[str, ...], wide: set[tuple[str, ...]]
) -> Any:
    match value, column.kind:
        case float(), "int":
            wide.add(path)
            return None
        case dict(), "struct":
            return _unknown(cast("dict[str, Any]", value), column.columns, path, wide)
        case list(), "list":
            inner = column.columns[0]
            listed = cast("Sequence[Any]", value)
            items = [_unknown_in(one, inner, (*path, ""), wide) for one in listed]
            return items if any(items) else None
        case dict(), "map":
            inner = column.columns[0]
            parts = {
                key: _unknown_in(one, inner, (*path, ""), wide)
                for key, one in cast("dict[str, Any]", value).items()
            }
            return {key: one for key, one in parts.items() if one}
        case _:
            return None


def _overflow(columns: Columns, one: object, path: str = "$") -> str:
    """Why a decoded object does not fit its columns; empty where it does."""
    parts = (
        _overflow_in(column, getattr(one, attribute(column, at)), f"{path}.{column.name}")
        for at, column in enumerate(columns)
    )
    return next(filter(None, parts), "")


def _overflow_in(column: Column, value: Any, path: str) -> str:
    """Why a decoded value does not fit its column, with the path of what in it does not."""
    try:
        value_array(column, [value])
    except _DOES_NOT_FIT as error:
        inner: Iterable[str] = ()
        match column.kind, value:
            case "struct", one if one is not None:
                inner = [_overflow(column.columns, one, path)]
            case "list", list() as items:
                (item,) = column.columns
                inner = (_overflow_in(item, one, f"{path}[{at}]") for at, one in enumerate(items))
            case "map", dict() as parts:
                (item,) = column.columns
                inner = (_overflow_in(item, one, f"{path}[...]") for one in parts.values())
            case _:
                pass
        return next(filter(None, inner), f"{_reason(error)} - at {path}"[:REASON_MAX])
    return ""


_BACKTICKS: Final = re.compile(r"`([^`]*)`")


def _reason(error: BaseException) -> str:
    """What is wrong, with its path, in one short line."""
    if isinstance(error, UnicodeDecodeError):
        return "the text is not UTF-8"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    text = _BACKTICKS.sub(r"\1", " ".join(str(error).split()))
    return (text or type(error).__name__)[:REASON_MAX]
