"""BARE: random schemas and values come back; any bytes give a value or a CodecError."""

from enum import IntEnum
from types import GenericAlias
from typing import Annotated, Any

from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import defstruct

from rillnode.codecs.bare import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Codec,
    Int,
    Length,
    UInt,
)
from rillnode.codecs.errors import CodecError

Typed = tuple[Any, SearchStrategy[Any]]
"""An annotation, and its values."""


class Colour(IntEnum):
    RED = 0
    GREEN = 3
    BLUE = 1_000


def numbers(annotation: Any, low: int, high: int) -> Typed:
    return annotation, st.integers(low, high)


TEXTS: Typed = (str, st.text(max_size=20))
NUMBERS: list[Typed] = [
    numbers(UInt, 0, 2**64 - 1),
    numbers(Int, -(2**63), 2**63 - 1),
    *(
        numbers(annotation, 0, 2**bits - 1)
        for annotation, bits in ((U8, 8), (U16, 16), (U32, 32), (U64, 64))
    ),
    *(
        numbers(annotation, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for annotation, bits in ((I8, 8), (I16, 16), (I32, 32), (I64, 64))
    ),
]
LEAVES: list[Typed] = [
    *NUMBERS,
    TEXTS,
    (F32, st.floats(width=32, allow_nan=False)),
    (F64, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=200)),
    (Annotated[bytes, Length(3)], st.binary(min_size=3, max_size=3)),
    (Colour, st.sampled_from(Colour)),
]


def optional(inner: Typed) -> Typed:
    annotation, values = inner
    return annotation | None, st.none() | values


def listed(inner: Typed) -> Typed:
    return GenericAlias(list, inner[0]), st.lists(inner[1], max_size=5)


def fixed(inner: Typed) -> Typed:
    items: Any = GenericAlias(list, inner[0])
    return Annotated[items, Length(2)], st.lists(inner[1], min_size=2, max_size=2)


def mapped(key: Typed, inner: Typed) -> Typed:
    return GenericAlias(dict, (key[0], inner[0])), st.dictionaries(key[1], inner[1], max_size=4)


def tupled(inner: list[Typed]) -> Typed:
    return GenericAlias(tuple, tuple(i[0] for i in inner)), st.tuples(*(i[1] for i in inner))


def structured(inner: list[Typed]) -> Typed:
    names = [f"field_{nth}" for nth in range(len(inner))]
    made = defstruct("Made", list(zip(names, (i[0] for i in inner), strict=True)))
    return made, st.builds(made, **dict(zip(names, (i[1] for i in inner), strict=True)))


def united(inner: Typed) -> Typed:
    made, values = structured([inner])
    number, more = NUMBERS[0]
    return number | made | str, st.one_of(more, values, TEXTS[1])


def larger(inner: SearchStrategy[Typed]) -> SearchStrategy[Typed]:
    several = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        inner.map(optional),
        inner.map(listed),
        inner.map(fixed),
        st.builds(mapped, st.sampled_from([*NUMBERS, TEXTS]), inner),
        several.map(tupled),
        several.map(structured),
        inner.map(united),
    )


TYPED = st.recursive(st.sampled_from(LEAVES), larger, max_leaves=8)


@st.composite
def typed_values(draw: DrawFn) -> tuple[Codec[Any], Any]:
    annotation, values = draw(TYPED)
    return Codec(annotation), draw(values)


@given(typed_values(), st.binary(max_size=9), st.binary(max_size=9))
def test_values_come_back(case: tuple[Codec[Any], Any], before: bytes, after: bytes) -> None:
    codec, value = case
    data = codec.encode(value)
    assert codec.decode(data) == value
    assert codec.decode(data + after, lenient=True) == value
    end = len(before) + len(data)
    assert codec.decode_prefix(before + data + after, len(before)) == (value, end)


def decode(codec: Codec[Any], data: bytes | memoryview, *, lenient: bool = False) -> Any:
    """Decode; a CodecError that says where is returned, all else that is raised is a failure."""
    try:
        return codec.decode(data, lenient=lenient)
    except CodecError as error:
        if not error.code.startswith("codec.") or not 0 <= error.offset <= len(data):
            raise
        return error


@given(typed_values(), st.data())
def test_every_truncation_is_refused(case: tuple[Codec[Any], Any], data: st.DataObject) -> None:
    codec, value = case
    whole = codec.encode(value)
    if whole:
        end = data.draw(st.integers(0, len(whole) - 1))
        assert isinstance(decode(codec, whole[:end]), CodecError)


@given(TYPED, st.binary(max_size=300))
def test_any_bytes_give_a_value_or_a_codec_error(typed: Typed, data: bytes) -> None:
    codec: Codec[Any] = Codec(typed[0])
    decode(codec, data, lenient=True)
    value = decode(codec, data)
    if not isinstance(value, CodecError):
        # A value has one form only, so what was read is what is written; but NaN has many.
        assert codec.encode(value) == data or "nan" in repr(value)


@given(typed_values(), st.data())
def test_changed_bytes_give_a_value_or_a_codec_error(
    case: tuple[Codec[Any], Any], data: st.DataObject
) -> None:
    codec, value = case
    whole = bytearray(codec.encode(value))
    for _ in range(3 if whole else 0):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    decode(codec, memoryview(whole))
