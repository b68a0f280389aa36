"""Keys and headers: what may be one, at the client and out of hostile bytes."""

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import (
    decode_headers,
    encode_headers,
    encode_key,
    partition_of,
)
from rillnode.codecs.limits import (
    HEADER_NAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def test_headers_are_a_bare_map() -> None:
    encoded = encode_headers({"trace": b"\x01\x02", "sort": "tägli"})
    assert encoded == b"\x02\x05trace\x02\x01\x02\x04sort\x06t\xc3\xa4gli"
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


@given(st.binary(max_size=200))
def test_any_bytes_are_headers_or_an_error(encoded: bytes) -> None:
    try:
        headers = decode_headers(encoded)
    except CodecError:
        return
    assert len(headers) <= HEADERS_MAX
    assert encode_headers(headers) == (encoded if headers else b"")


MANY: dict[Any, Any] = {str(number): b"" for number in range(HEADERS_MAX + 1)}
LARGE: dict[Any, Any] = {"name": bytes(HEADERS_BYTES_MAX)}
LONG: dict[Any, Any] = {"n" * (HEADER_NAME_BYTES_MAX + 1): b""}


@pytest.mark.parametrize(
    ("headers", "code"),
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
    ],
)
def test_headers_beyond_a_limit_are_refused_where_they_are_given(headers: Any, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode_headers(headers)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("encoded", "code"),
    [
        (b"\xc8\x01" + b"\x01a\0" * 200, "entries.headers"),
        (b"\x41" + b"".join(b"\x01%c\0" % number for number in range(65)), "entries.headers"),
        (b"\x01\x01a\xff\x7f" + bytes(HEADERS_BYTES_MAX), "entries.headers"),
        (b"\x01\x81\x02" + b"n" * 257 + b"\0", "entries.header_name"),
        (b"\x01\0\0", "entries.header_name"),
        (b"\x01\x02\xc3\x28\0", "entries.header_name"),
        (b"\x02\x01a\0\x01a\0", "codec.map"),
        (b"\x02\x01a\0", "codec.truncated"),
        (b"\x01\x01a\0\0", "codec.trailing"),
    ],
)
def test_headers_beyond_a_limit_are_refused_where_they_arrive(encoded: bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_headers(encoded)
    assert caught.value.code == code


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
