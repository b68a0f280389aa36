"""BARE: every type against bytes, hostile input, and schemas that are refused."""

import math
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated, Any, TypeAlias

import pytest
from msgspec import Struct

from each_row import each_row
from rillnode.codecs.bare import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LOCAL,
    U8,
    U16,
    U32,
    U64,
    BigUInt,
    Codec,
    Int,
    Length,
    Tags,
    UInt,
)
from rillnode.codecs.bare.schema import read_schema
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import LIST_ITEMS_MAX, NESTING_MAX


class Department(IntEnum):
    ACCOUNTING = 0
    ADMINISTRATION = 1
    CUSTOMER_SERVICE = 2
    DEVELOPMENT = 3
    JSMITH = 99
    LATE = 300


class Order(Struct):
    order_id: I64
    quantity: I32


class Customer(Struct):
    name: str
    address: Annotated[list[str], Length(2)]
    orders: list[Order]
    metadata: dict[str, bytes]


class Employee(Struct):
    name: str
    department: Department
    public_key: Annotated[bytes, Length(4)] | None


class Terminated(Struct):
    pass


class Tagged(Struct):
    number: UInt
    data: bytes
    tag: Annotated[str, LOCAL] = "default"
    note: Annotated[list[int], LOCAL] = []


class Keyword(Struct, frozen=True, kw_only=True):
    first: U8
    second: U8


Person = Customer | Employee | Terminated
MaybeUInt: TypeAlias = UInt | None
UIntOrText: TypeAlias = UInt | str
MaybeUIntOrText: TypeAlias = UInt | str | None
AnyOf: TypeAlias = bool | bytes | F64 | Department | list[U8] | dict[U8, bool] | tuple[UInt]
MaybeOrder: TypeAlias = Annotated[Order, Tags(0)] | None
Versioned: TypeAlias = Annotated[Order, Tags(1)] | UInt

CASES: list[tuple[Any, Any, str]] = [
    # Numbers: the draft's examples, and what bare-ts (an independent implementation) writes.
    *[
        (UInt, value, form)
        for value, form in [(0, "00"), (1, "01"), (126, "7e"), (127, "7f"), (128, "8001")]
    ],
    (UInt, 255, "ff01"),
    *[
        (Int, value, form)
        for value, form in [(0, "00"), (1, "02"), (-1, "01"), (63, "7e"), (-63, "7d")]
    ],
    (Int, 64, "8001"),
    (Int, -64, "7f"),
    (Int, 65, "8201"),
    (Int, -65, "8101"),
    (Int, 42, "54"),
    (Int, -1337, "f114"),
    (UInt, 0x1337, "b726"),
    (Int, 255, "fe03"),
    (Int, -255, "fd03"),
    (Int, 2**63 - 1, "feffffffffffffffff01"),
    (Int, -(2**63), "ffffffffffffffffff01"),
    (BigUInt, 2**64, "80808080808080808002"),
    (U8, 255, "ff"),
    (U16, 0x1234, "3412"),
    (U32, 0x12345678, "78563412"),
    (U64, 2**64 - 1, "ff" * 8),
    (I8, -2, "fe"),
    (I16, -2, "feff"),
    (I32, -2, "feffffff"),
    (I64, -(2**63), "0000000000000080"),
    (F32, 1.5, "0000c03f"),
    (F64, -2.5, "00000000000004c0"),
    (F64, math.inf, "000000000000f07f"),
    (bool, True, "01"),
    (bool, False, "00"),
    (Department, Department.DEVELOPMENT, "03"),
    (Department, Department.JSMITH, "63"),
    (Department, Department.LATE, "ac02"),
    (str, "", "00"),
    (str, "\u3053\u3093", "06e38193e38293"),
    (bytes, b"\x00\xff", "0200ff"),
    (Annotated[bytes, Length(3)], b"abc", "616263"),
    (None, None, ""),
    (MaybeUInt, None, "00"),
    (MaybeUInt, 300, "01ac02"),
    (list[U16], [1, 2], "0201000200"),
    (list[U16], [], "00"),
    (Annotated[list[U16], Length(2)], [1, 2], "01000200"),
    (dict[str, U8], {"a": 1, "b": 2}, "020161010162" + "02"),
    (dict[Department, None], {Department.JSMITH: None}, "0163"),
    (tuple[UInt, bytes], (7, b"x"), "070178"),
    (tuple[()], (), ""),
    (MaybeUIntOrText, None, "00"),
    (MaybeUIntOrText, "a", "01010161"),
    (Annotated[MaybeUIntOrText, Tags(0, 1, 2)], None, "02"),
    (Annotated[UIntOrText, Tags(5, 200)], "a", "c8010161"),
    (Annotated[Order, Tags(0)], Order(1, 2), "00" + "0100000000000000" + "02000000"),
    (MaybeOrder, Order(1, 2), "0100" + "0100000000000000" + "02000000"),
    (Annotated[bytes, Length(3), Tags(0)], b"abc", "00616263"),
    (Annotated[U16, Tags(200), Tags(1)], 5, "01c8010500"),
    (Annotated[UIntOrText, Tags(1, 2), "note"], 5, "0105"),
    (Versioned, Order(1, 2), "0001" + "0100000000000000" + "02000000"),
    (Versioned, 5, "0105"),
    *[
        (AnyOf, value, form)
        for value, form in [
            (True, "0001"),
            (b"x", "010178"),
            (-2.5, "02" + "00000000000004c0"),
            (Department.JSMITH, "0363"),
            ([1], "040101"),
            ({1: True}, "05010101"),
            ((7,), "0607"),
        ]
    ],
    (list[None], [None, None], "02"),
    (list[list[list[U8]]], [[[1], []], []], "02020101" + "00" + "00"),
    (list[MaybeUInt], [1, None], "02010100"),
    (
        Person,
        Customer("Jo", ["a", "b"], [Order(5, 1)], {"k": b"v"}),
        "00" + "024a6f" + "01610162" + "01" + "0500000000000000" + "01000000" + "01016b0176",
    ),
    (Person, Employee("Jo", Department.JSMITH, None), "01" + "024a6f" + "63" + "00"),
    (Person, Employee("", Department.LATE, b"keys"), "01" + "00" + "ac02" + "016b657973"),
    (Person, Terminated(), "02"),
    (Keyword, Keyword(first=1, second=2), "0102"),
    (Tagged, Tagged(5, b"x"), "050178"),
]


@each_row(CASES)
def test_every_type_has_its_bytes(annotation: Any, value: Any, form: str) -> None:
    codec: Codec[Any] = Codec(annotation)
    data = bytes.fromhex(form)
    assert codec.encode(value) == data
    decoded = codec.decode(data)
    assert decoded == value
    assert type(decoded) is type(value)
    assert codec.decode(memoryview(data)) == value
    assert codec.decode_prefix(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


def test_a_nan_stays_one() -> None:
    codec: Codec[float] = Codec(F64)
    assert math.isnan(codec.decode(codec.encode(math.nan)))


@each_row(CASES)
def test_every_truncation_and_every_rest_is_refused(annotation: Any, value: Any, form: str) -> None:
    codec: Codec[Any] = Codec(annotation)
    data = bytes.fromhex(form)
    for end in range(len(data)):
        with pytest.raises(CodecError) as caught:
            codec.decode(data[:end])
        assert (caught.value.code, caught.value.offset) == ("codec.truncated", end)
    with pytest.raises(CodecError) as caught:
        codec.decode(data + b"\x00")
    assert (caught.value.code, caught.value.offset) == ("codec.trailing", len(data))
    assert codec.decode(data + b"\x00", lenient=True) == value


@each_row(
    [
        (UInt, "8000", "codec.varint", 0),
        (tuple[UInt, UInt], "05858000", "codec.varint", 1),
        (UInt, "ff" * 9 + "02", "codec.varint", 0),
        (Int, "ff" * 9 + "7f", "codec.varint", 0),
        (bool, "02", "codec.bool", 0),
        (list[bool], "020102", "codec.bool", 2),
        (MaybeUInt, "02", "codec.optional", 0),
        (tuple[U8, Department], "0004", "codec.enum", 1),
        (tuple[U8, UIntOrText], "0002", "codec.union", 1),
        (Annotated[UIntOrText, Tags(1, 2)], "00", "codec.union", 0),
        (str, "02c328", "codec.utf8", 1),
        (tuple[str, str], "016104c3a4ff61", "codec.utf8", 5),
        (str, "03eda080", "codec.utf8", 1),
        (str, "02c080", "codec.utf8", 1),
        (dict[str, U8], "02016100016100", "codec.map", 4),
        (str, "ffffffffffffffffff01", "codec.truncated", 10),
        (bytes, "ffffffff0f61", "codec.truncated", 6),
        (list[U8], "8180040000", "codec.limit", 0),
        (list[U64], "03" + "00" * 23, "codec.truncated", 24),
        (list[None], "818004", "codec.limit", 0),
        (list[Terminated], "ffffffffffffffffff01", "codec.limit", 0),
        (tuple[U8, dict[U8, U8]], "00818004", "codec.limit", 1),
        (dict[U8, U64], "02" + "00" * 17, "codec.truncated", 18),
        (list[Annotated[list[U8], Length(100)]], "ffff03", "codec.truncated", 3),
    ]
)
def test_malformed_input_is_told_apart(annotation: Any, form: str, code: str, offset: int) -> None:
    codec: Codec[Any] = Codec(annotation)
    with pytest.raises(CodecError) as caught:
        codec.decode(bytes.fromhex(form))
    assert (caught.value.code, caught.value.offset) == (code, offset)


@each_row(
    [
        (UInt, -1, "codec.range"),
        (UInt, 2**64, "codec.range"),
        (BigUInt, 2**224, "codec.range"),
        (Int, 2**63, "codec.range"),
        (Int, -(2**63) - 1, "codec.range"),
        (U8, 256, "codec.range"),
        (U8, -1, "codec.range"),
        (I8, 128, "codec.range"),
        (U64, 2**64, "codec.range"),
        (F32, 1e39, "codec.range"),
        (Department, 4, "codec.enum"),
        (str, "\ud800", "codec.utf8"),
        (Annotated[bytes, Length(3)], b"ab", "codec.length"),
        (Annotated[list[U8], Length(3)], [1, 2], "codec.length"),
        (list[None], [None] * (LIST_ITEMS_MAX + 1), "codec.limit"),
        (dict[UInt, None], dict.fromkeys(range(LIST_ITEMS_MAX + 1)), "codec.limit"),
        (UIntOrText, b"", "codec.union"),
    ]
)
def test_what_a_type_cannot_hold_is_not_encoded(annotation: Any, value: Any, code: str) -> None:
    codec: Codec[Any] = Codec(annotation)
    with pytest.raises(CodecError) as caught:
        codec.encode(value)
    assert caught.value.code == code


def test_the_longest_list_passes() -> None:
    codec: Codec[list[None]] = Codec(list[None])
    data = codec.encode([None] * LIST_ITEMS_MAX)
    assert len(codec.decode(data)) == LIST_ITEMS_MAX


@pytest.mark.parametrize(
    ("annotation", "form", "value"),
    [
        (UInt, "858000", 5),
        (Int, "8100", -1),
        (str, "810061", "a"),
        (UIntOrText, "80008100", 1),
        (list[U8], "820001" + "02", [1, 2]),
        (Department, "8300", Department.DEVELOPMENT),
        (BigUInt, "808080808080808080" + "82" + "00", 2**64),
    ],
)
def test_a_lenient_reader_takes_padded_numbers(annotation: Any, form: str, value: Any) -> None:
    codec: Codec[Any] = Codec(annotation)
    data = bytes.fromhex(form)
    assert codec.decode(data, lenient=True) == value
    assert codec.decode_prefix(data, lenient=True) == (value, len(data))
    with pytest.raises(CodecError) as caught:
        codec.decode(data)
    assert caught.value.code == "codec.varint"


def test_a_lenient_reader_holds_numbers_to_64_bits() -> None:
    codec: Codec[int] = Codec(UInt)
    with pytest.raises(CodecError) as caught:
        codec.decode(bytes.fromhex("80808080808080808002"), lenient=True)
    assert caught.value.code == "codec.varint"


@pytest.mark.parametrize(
    ("annotation", "form", "value"),
    [
        (UInt, "858000", 5),
        (bool, "00", False),
        (bool, "02", True),
        (list[bool], "03000180", [False, True, True]),
        (MaybeUInt, "00", None),
        (MaybeUInt, "ff8500", 5),
        (str, "8100" + "61", "a"),
    ],
)
def test_a_reader_like_serde_s_takes_padded_numbers_and_any_flag(
    annotation: Any, form: str, value: Any
) -> None:
    codec: Codec[Any] = Codec(annotation, serde=True)
    data = bytes.fromhex(form)
    assert codec.decode(data) == codec.decode(data + b"later") == value
    assert codec.decode_prefix(data + b"later") == (value, len(data))
    assert codec.decode(codec.encode(value)) == value
    assert Codec[Any](annotation).decode(codec.encode(value)) == value


def test_local_fields_are_not_on_the_wire() -> None:
    codec = Codec(Tagged)
    assert codec.encode(Tagged(5, b"x", "other", [1])) == bytes.fromhex("050178")


def test_data_may_be_given_as_a_view() -> None:
    codec = Codec(Tagged)
    value = Tagged(5, memoryview(b"abc")[1:])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert codec.decode(codec.encode(value)).data == b"bc"


def test_decoded_data_does_not_keep_a_view_alive() -> None:
    buffer = bytearray(b"\x05\x01x")
    value = Codec(Tagged).decode(memoryview(buffer))
    buffer[2] = 0
    assert value.data == b"x"


def nested(depth: int) -> tuple[Any, Any]:
    annotation: Any = U8
    value: Any = 1
    for _ in range(depth):
        annotation, value = list[annotation], [value]
    return annotation, value


def test_lists_nest_beyond_what_one_function_may() -> None:
    annotation, value = nested(NESTING_MAX - 2)
    codec: Codec[Any] = Codec(annotation)
    data = codec.encode(value)
    assert data == b"\x01" * (NESTING_MAX - 1)
    assert codec.decode(data) == value
    with pytest.raises(CodecError):
        codec.decode(data[:-1])


class Loop(Struct):
    again: "Loop | None"


class Plain(Struct):
    number: int


@each_row(
    [
        int,
        float,
        object,
        Plain,
        Loop,
        list,
        nested(NESTING_MAX)[0],
        tuple[int, ...],
        set[str],
        UInt | U8,
        Annotated[UIntOrText, Tags(1)],
        Annotated[UIntOrText, Tags(1, 1)],
        Annotated[UIntOrText, Tags(-1, 1)],
        Annotated[UInt | (str | None), Tags(0, 1)],
        Annotated[Annotated[MaybeUInt, "note"] | str, Tags(0, 1)],
        dict[F64, U8],
        dict[None, U8],
        dict[BigUInt, U8],
        dict[Order, U8],
        Annotated[list[U8], Length(0)],
        Annotated[list[U8], Length(LIST_ITEMS_MAX + 1)],
        list[list[None]],
        dict[U8, list[Terminated]],
        list[list[None] | None],
        list[Annotated[list[None], Length(9)]],
        list[tuple[U8, list[None]]],
    ]
)
def test_what_is_no_schema_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError):
        read_schema(annotation)


def test_a_negative_enum_is_refused() -> None:
    class Signed(IntEnum):
        BELOW = -1

    with pytest.raises(TypeError):
        read_schema(Signed)


def test_every_codec_that_there_is_can_be_compiled() -> None:
    """They are when they are used first: none may fail then."""
    package = import_module("rillnode.codecs")
    names = [one.name for one in walk_packages(package.__path__, "rillnode.codecs.")]
    assert len(names) > 40  # the kernel's own, which are there whatever was deleted
    codecs = {
        id(one): one for name in names for value in vars(import_module(name)).values()
        for one in _codecs_in(value)
    }  # fmt: skip
    for codec in codecs.values():
        assert callable(codec.encode)
        assert callable(codec.decode_prefix)
    assert len(codecs) > 80


def _codecs_in(value: Any) -> Iterator[Codec[Any]]:
    """A codec, or those of a table of codecs."""
    kind: Any = value.__class__
    if kind is Codec:
        yield value
    elif kind in (dict, tuple):
        for one in value.values() if kind is dict else value:
            yield from _codecs_in(one)


@pytest.mark.parametrize(
    ("tag", "form", "code"),
    [
        (0, "01", "codec.union"),
        (0, "8000", "codec.varint"),
        (200, "c901", "codec.union"),
    ],
)
def test_a_union_of_one_has_one_tag(tag: int, form: str, code: str) -> None:
    codec: Codec[int] = Codec(Annotated[U8, Tags(tag)])
    with pytest.raises(CodecError) as caught:
        codec.decode(bytes.fromhex(form) + b"\x05")
    assert (caught.value.code, caught.value.offset) == (code, 0)


def test_a_lenient_reader_takes_padded_tags() -> None:
    codec: Codec[int] = Codec(Annotated[U8, Tags(0)])
    assert codec.decode(b"\x80\x00\x05", lenient=True) == 5
