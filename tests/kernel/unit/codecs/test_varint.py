import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.varint import (
    BIG_UINT_MAX,
    U64_MAX,
    encode_uint,
    read_data,
    read_uint,
)

# The draft's examples, and the bounds of each length.
FORMS = [
    (0, "00"),
    (1, "01"),
    (126, "7e"),
    (127, "7f"),
    (128, "8001"),
    (129, "8101"),
    (255, "ff01"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2**21 - 1, "ffff7f"),
    (2**21, "80808001"),
    (2**28 - 1, "ffffff7f"),
    (2**28, "8080808001"),
    (2**63, "80808080808080808001"),
    (U64_MAX, "ffffffffffffffffff01"),
]


@each_row(FORMS)
def test_numbers_have_one_minimal_form(value: int, form: str) -> None:
    data = bytes.fromhex(form)
    assert encode_uint(value) == data
    assert read_uint(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("value", [-1, U64_MAX + 1])
def test_what_does_not_fit_is_not_written(value: int) -> None:
    with pytest.raises(CodecError) as caught:
        encode_uint(value)
    assert caught.value.code == "codec.range"


@each_row(
    [
        ("", "codec.truncated", 0),
        ("80", "codec.truncated", 1),
        ("8080", "codec.truncated", 2),
        ("8000", "codec.varint", 0),
        ("858000", "codec.varint", 0),
        ("ffffffffffffffffff02", "codec.varint", 0),
        ("8080808080808080808001", "codec.varint", 0),
        ("ff" * 40, "codec.varint", 0),
    ]
)
def test_a_strict_reader_refuses_other_forms(form: str, code: str, offset: int) -> None:
    with pytest.raises(CodecError) as caught:
        read_uint(bytes.fromhex(form), 0)
    assert (caught.value.code, caught.value.offset) == (code, offset)


@pytest.mark.parametrize(("form", "value"), [("858000", 5), ("8000", 0), ("80" * 31 + "00", 0)])
def test_a_lenient_reader_takes_padded_forms(form: str, value: int) -> None:
    data = bytes.fromhex(form)
    assert read_uint(data, 0, lenient=True) == (value, len(data))


def test_a_lenient_reader_has_limits() -> None:
    for form in (b"\x80" * 32 + b"\x00", encode_uint(U64_MAX + 1, BIG_UINT_MAX)):
        with pytest.raises(CodecError) as caught:
            read_uint(form, 0, lenient=True)
        assert caught.value.code == "codec.varint"


def test_numbers_above_64_bits_are_read_only_on_request() -> None:
    data = encode_uint(BIG_UINT_MAX, BIG_UINT_MAX)
    assert len(data) == 32
    assert read_uint(data, 0, maximum=BIG_UINT_MAX) == (BIG_UINT_MAX, 32)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384])
def test_the_extent_of_data_is_found(size: int) -> None:
    head = encode_uint(size)
    data = b"\xff" + head + bytes(size) + b"\xff"
    assert read_data(data, 1) == (1 + len(head), 1 + len(head) + size)


@pytest.mark.parametrize(
    ("form", "code", "offset"),
    [
        ("", "codec.truncated", 0),
        ("80", "codec.truncated", 1),
        ("8080", "codec.truncated", 2),
        ("0201", "codec.truncated", 2),
        ("ffffffffffffffffff01", "codec.truncated", 10),
        ("8100ff", "codec.varint", 0),
    ],
)
def test_an_extent_that_is_not_there_is_refused(form: str, code: str, offset: int) -> None:
    with pytest.raises(CodecError) as caught:
        read_data(bytes.fromhex(form), 0)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_an_extent_may_be_padded_for_a_lenient_reader() -> None:
    assert read_data(bytes.fromhex("8100ff"), 0, lenient=True) == (2, 3)
