"""BARE schemas, read from Python type annotations into a small tree.

Which annotation stands for which BARE type is listed in `codecs/bare/__init__.py`. The tree is what
encoders and decoders are written from; it lives only while they are made.
A schema is the program's own, so whatever is wrong with one is a TypeError, not a CodecError.
"""

import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import calcsize
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from rillnode.codecs.limits import LIST_ITEMS_MAX, NESTING_MAX
from rillnode.codecs.varint import U64_MAX


@dataclass(frozen=True, slots=True)
class Number:
    """u8 to u64, i8 to i64, f32, f64: little-endian, fixed width; `format` is of `struct`."""

    format: str


@dataclass(frozen=True, slots=True)
class Varint:
    """`uint`, or `int` in zigzag form where `signed`."""

    signed: bool = False
    maximum: int = U64_MAX


@dataclass(frozen=True, slots=True)
class Bool:
    """One byte, 0 or 1."""


@dataclass(frozen=True, slots=True)
class Text:
    """`str`: UTF-8."""


@dataclass(frozen=True, slots=True)
class Data:
    """`data`, or `data[length]` without its length on the wire."""

    length: int | None = None


@dataclass(frozen=True, slots=True)
class Void:
    """Nothing on the wire; None in Python."""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A uint that is one of an IntEnum's values."""

    members: type[IntEnum]


@dataclass(frozen=True, slots=True)
class Optional:
    """0, or 1 and the item."""

    item: "Schema"


@dataclass(frozen=True, slots=True)
class List:
    """Items, after their count unless the schema fixes it."""

    item: "Schema"
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Map:
    """Keys and values after their count; a key stands once."""

    key: "Schema"
    value: "Schema"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a union; `python` is the class that its values have."""

    tag: int
    python: type
    schema: "Schema"


@dataclass(frozen=True, slots=True)
class Tagged:
    """`union`: a member's tag as uint, and its value."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    schema: "Schema"
    keyword: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order. `construct` is the class, or None for a tuple."""

    construct: type | None
    fields: tuple[Field, ...]


Schema = (
    Number
    | Varint
    | Bool
    | Text
    | Data
    | Void
    | Enumeration
    | Optional
    | List
    | Map
    | Tagged
    | Struct
)


@dataclass(frozen=True, slots=True)
class Length:
    """Marks `bytes` or `list` in Annotated as `data[length]` or `list[length]`."""

    length: int


class Tags:
    """Marks a union's tags in Annotated, in the order of its members."""

    def __init__(self, *tags: int) -> None:
        self.tags = tags


class Local:
    """Marks a field that is not on the wire: decoding leaves its default."""


LOCAL: Final = Local()

_LEAVES: Final[dict[Any, Schema]] = {
    bool: Bool(),
    str: Text(),
    bytes: Data(),
    None: Void(),
    types.NoneType: Void(),
}


def read_schema(annotation: Any) -> Schema:
    """Read an annotation.

    Raises:
        TypeError: the annotation stands for no BARE type, refers to itself, nests too deeply, or
            lets a few bytes claim many values.
    """
    schema = _read(annotation, ())
    _check_growth(schema, repeated=False)
    return schema


def least_bytes(schema: Schema) -> int:
    """The fewest bytes that a value can take."""
    match schema:
        case Number(format=code):
            return calcsize("<" + code)
        case Void():
            return 0
        case Data(length=int(length)):
            return length
        case List(item=item, length=int(length)):
            return length * least_bytes(item)
        case Tagged(members=members):
            return 1 + min(least_bytes(member.schema) for member in members)
        case Struct(fields=fields):
            return sum(least_bytes(field.schema) for field in fields)
        case _:
            return 1


def _read(annotation: Any, outer: tuple[Any, ...]) -> Schema:
    if len(outer) >= NESTING_MAX:
        raise TypeError(f"schema nests deeper than {NESTING_MAX}")
    if annotation in outer:
        raise TypeError(f"schema refers to itself: {annotation!r}")
    inner = (*outer, annotation)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            return _read_annotated(arguments[0], arguments[1:], inner)
        case origin if origin is Union or origin is types.UnionType:
            return _read_union(arguments, inner)
        case origin if origin is list:
            return List(_read(arguments[0], inner))
        case origin if origin is dict:
            return _read_map(arguments[0], arguments[1], inner)
        case origin if origin is tuple and Ellipsis not in arguments:
            items = enumerate(arguments)
            return Struct(None, tuple(Field(f"_{n}", _read(a, inner), False) for n, a in items))
        case _:
            return _read_class(annotation, inner)


def _read_annotated(base: Any, marks: tuple[Any, ...], inner: tuple[Any, ...]) -> Schema:
    for nth in reversed(range(len(marks))):
        if isinstance(mark := marks[nth], Tags):
            # They stand around what the marks before them say.
            item = Annotated[(base, *marks[:nth])] if nth else base
            united = get_origin(item) in (Union, types.UnionType)
            return _tagged(get_args(item) if united else (item,), mark.tags, inner)
    for mark in marks:
        match mark:
            case Number() | Varint():
                return mark
            case Length(length=length) if base is bytes:
                return Data(length)
            case Length(length=length) if get_origin(base) is list:
                return List(_read(get_args(base)[0], inner), length)
            case _:
                continue
    return _read(base, inner)


def _read_union(members: tuple[Any, ...], inner: tuple[Any, ...]) -> Schema:
    some = tuple(member for member in members if member is not types.NoneType)
    item = _read(some[0], inner) if len(some) == 1 else _tagged(some, range(len(some)), inner)
    return Optional(item) if len(some) < len(members) else item


def _tagged(members: tuple[Any, ...], tags: Sequence[int], inner: tuple[Any, ...]) -> Schema:
    if len(tags) != len(members) or len(set(tags)) != len(tags):
        raise TypeError(f"a union of {len(members)} needs as many different tags, not {tags}")
    _check_tags(tags)
    schemas = [_read(member, inner) for member in members]
    found = tuple(
        Member(tag, _python_type(schema), schema) for tag, schema in zip(tags, schemas, strict=True)
    )
    if len({member.python for member in found}) < len(found):
        raise TypeError(f"union members need different Python types: {members}")
    return Tagged(found)


def _check_tags(values: Iterable[int]) -> None:
    if not all(0 <= value <= U64_MAX for value in values):
        raise TypeError("tags and enum values are 0 to 2**64 - 1")


def _read_map(key: Any, value: Any, inner: tuple[Any, ...]) -> Schema:
    schema = _read(key, inner)
    match schema:
        case Number(format="f" | "d"):
            usable = False
        case Varint(maximum=maximum):
            # Larger ones can be chosen so that all collide in a dict.
            usable = maximum <= U64_MAX
        case _:
            usable = isinstance(schema, Number | Bool | Text | Data | Enumeration)
    if not usable:
        raise TypeError(f"{key!r} cannot be a map's key")
    return Map(schema, _read(value, inner))


def _read_class(annotation: Any, inner: tuple[Any, ...]) -> Schema:
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        _check_tags([int(member) for member in annotation])
        return Enumeration(annotation)
    if not (isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)):
        raise TypeError(f"{annotation!r} stands for no BARE type (plain int: which width?)")
    hints = get_type_hints(annotation, include_extras=True)
    return Struct(
        annotation,
        tuple(
            Field(name, _read(hints[name], inner), name not in annotation.__match_args__)
            for name in annotation.__struct_fields__
            if LOCAL not in get_args(hints[name])
        ),
    )


def _python_type(schema: Schema) -> type:
    match schema:
        case Number(format="f" | "d"):
            return float
        case Number() | Varint():
            return int
        case Bool():
            return bool
        case Text():
            return str
        case Data():
            return bytes
        case Void():
            return types.NoneType
        case Enumeration(members=members):
            return members
        case List():
            return list
        case Map():
            return dict
        case Struct(construct=construct):
            return construct or tuple
        case Tagged(members=(member,)):
            return member.python
        case Optional() | Tagged():
            raise TypeError("a union's member cannot be optional or a union itself")


def _check_growth(schema: Schema, *, repeated: bool) -> None:
    """Refuse schemas by which a message can claim more values than it has bytes.

    Items of no bytes are bounded by LIST_ITEMS_MAX in one list, but not in a list of such lists.
    """
    match schema:
        case List(item=item, length=length):
            if repeated and not least_bytes(item):
                raise TypeError("a list of items without bytes cannot itself be repeated")
            if length is not None and not 0 < length <= LIST_ITEMS_MAX:
                raise TypeError(f"a list's fixed length is 1 to {LIST_ITEMS_MAX}")
            _check_growth(item, repeated=True)
        case Map(value=value):
            _check_growth(value, repeated=True)
        case Optional(item=item):
            _check_growth(item, repeated=repeated)
        case Tagged(members=members):
            for member in members:
                _check_growth(member.schema, repeated=repeated)
        case Struct(fields=fields):
            for field in fields:
                _check_growth(field.schema, repeated=repeated)
        case _:
            pass
