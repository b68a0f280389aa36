"""Keys and headers: what may be one, at the client and out of hostile bytes."""

from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import (
    check_headers,
    check_headers_size,
    decode_headers,
    encode_headers,
    encode_key,
    partition_of,
)
from rillnode.codecs.limits import (
    HEADER_NAME_CHARS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def test_headers_are_a_map_of_messagepack() -> None:
    encoded = encode_headers({"trace": b"\x01\x02", "sort": "tägli"})
    assert encoded == b"\x82\xa5trace\xc4\x02\x01\x02\xa4sort\xc4\x06t\xc3\xa4gli"
    assert decode_headers(encoded) == {"trace": b"\x01\x02", "sort": "tägli".encode()}


def test_no_headers_are_no_bytes() -> None:
    assert encode_headers({}) == b""
    assert decode_headers(b"") == {}


@given(st.dictionaries(NAMES, st.binary(max_size=99) | NAMES, max_size=12))
def test_headers_come_back(headers: dict[str, bytes | str]) -> None:
    found = decode_headers(encode_headers(headers))
    assert list(found) == list(headers)
    for name, value in headers.items():
        assert found[name] == (value.encode() if isinstance(value, str) else value)


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda rest: b"\x81\xa1n\xc4" + rest))
def test_any_bytes_are_headers_or_an_error(encoded: bytes) -> None:
    try:
        check_headers((b"", encoded))
    except CodecError:
        return
    headers = decode_headers(encoded)
    assert decode_headers(encode_headers(headers)) == headers


MANY: dict[Any, Any] = {str(number): b"" for number in range(HEADERS_MAX + 1)}
LARGE: dict[Any, Any] = {"name": bytes(HEADERS_BYTES_MAX)}
LONG: dict[Any, Any] = {"n" * (HEADER_NAME_CHARS_MAX + 1): b""}


@each_row(
    [
        ({str(number): b"" for number in range(200)}, "entries.headers"),
        (MANY, "entries.headers"),
        (LARGE, "entries.headers"),
        ({"name": "\ud800"}, "entries.headers"),
        (LONG, "entries.header_name"),
        ({"": b"x"}, "entries.header_name"),
        ({b"name": b"x"}, "entries.header_name"),
        ({7: b"x"}, "entries.header_name"),
        ({"\ud800": b"x"}, "entries.header_name"),
    ]
)
def test_headers_beyond_a_limit_are_refused_where_they_are_given(headers: Any, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode_headers(headers)
    assert caught.value.code == code


@each_row(
    [
        (msgspec.msgpack.encode({str(n): b"" for n in range(200)}), "entries.headers"),
        (msgspec.msgpack.encode(MANY), "entries.headers"),
        (msgspec.msgpack.encode(LONG), "entries.header_name"),
        (b"\x81\xa0\xc4\x00", "entries.header_name"),
        (b"\x81\xa2\xc3\x28\xc4\x00", "entries.header_name"),
        (b"\x81\xa3\xed\xa0\x80\xc4\x00", "entries.header_name"),
        (b"\x81\xc4\x01a\xc4\x00", "entries.header_name"),
        (b"\x81\x07\xc4\x00", "entries.header_name"),
        (b"\x81\xa1a\xa1b", "entries.headers"),
        (b"\x82\xa1a\xc4\x00", "entries.headers"),
        (b"\x81\xa1a\xc4\x00\x00", "entries.headers"),
        (b"\xdf\xff\xff\xff\xff", "entries.headers"),
        (b"\xc0", "entries.headers"),
    ]
)
def test_headers_beyond_a_limit_are_refused_where_they_arrive(encoded: bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        check_headers((b"", encode_headers({"good": b""}), encoded))
    assert caught.value.code == code


def test_the_size_of_headers_is_limited_where_they_arrive() -> None:
    check_headers_size(HEADERS_BYTES_MAX)
    with pytest.raises(CodecError) as caught:
        check_headers_size(HEADERS_BYTES_MAX + 1)
    assert caught.value.code == "entries.headers"


def test_a_key_is_bytes_or_the_utf8_of_a_text() -> None:
    assert encode_key(b"\xff\0") == b"\xff\0"
    assert encode_key("gerät") == b"ger\xc3\xa4t"
    assert encode_key("") == b""
    assert encode_key(bytes(KEY_BYTES_MAX)) == bytes(KEY_BYTES_MAX)


@pytest.mark.parametrize("key", [bytes(1_048_576), "k" * (KEY_BYTES_MAX + 1), "\ud800"])
def test_a_key_beyond_its_limit_is_refused(key: bytes | str) -> None:
    with pytest.raises(CodecError) as caught:
        encode_key(key)
    assert caught.value.code == "entries.key"


def test_what_is_no_key_or_header_at_all_is_a_type_error() -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="a key is bytes or text, not int"):
        encode_key(wrong)
    with pytest.raises(TypeError, match="a header's value is bytes or text, not int"):
        encode_headers({"name": wrong})
    with pytest.raises(TypeError, match="a mapping of names to values, not int"):
        encode_headers(wrong)


@given(st.binary(max_size=30), st.integers(1, 1_024))
def test_the_partition_of_a_key_is_its_checksum_modulo_their_number(
    key: bytes, partitions: int
) -> None:
    assert partition_of(key, partitions) == crc32(key) % partitions
