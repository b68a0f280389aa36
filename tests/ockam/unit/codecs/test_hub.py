"""Payloads of the hub's plain services."""

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.ockam.hub import TEXT, decode_name, decode_topic, uppercase


def test_a_name_is_a_bare_string() -> None:
    assert decode_name(b"\x08my_alias") == "my_alias"
    assert decode_name(TEXT.encode("ä" * (NAME_BYTES_MAX // 2))) == "ä" * (NAME_BYTES_MAX // 2)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x02a", b"\x01ab", b"\x01\xff", TEXT.encode("n" * (NAME_BYTES_MAX + 1))],
)
def test_a_name_is_nothing_else(payload: bytes) -> None:
    with pytest.raises(CodecError):
        decode_name(payload)


def test_a_subscription_is_a_name_and_a_topic() -> None:
    assert decode_topic(b"\x0aname:topic") == ("name", "topic")


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "ab", "a:b:c", "a::b"])
def test_a_subscription_has_one_colon_between_two_names(text: str) -> None:
    with pytest.raises(CodecError):
        decode_topic(TEXT.encode(text))


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"\x05hello", b"\x05HELLO"),  # as Rust nodes send texts
        (b"hello", b"HELLO"),
        (b"", b""),
        (b"\x00", b"\x00"),
        (TEXT.encode("groß"), TEXT.encode("GROSS")),
        ("ärger".encode(), "ÄRGER".encode()),
    ],
)
def test_a_text_is_written_in_capitals(payload: bytes, answer: bytes) -> None:
    assert uppercase(payload) == answer


@given(st.binary(max_size=100))
def test_any_bytes_are_text_or_an_error(payload: bytes) -> None:
    for decode in (decode_name, decode_topic, uppercase):
        try:
            result = decode(payload)
        except CodecError as error:
            if not 0 <= error.offset <= len(payload):
                raise
        else:
            # The longest capital takes three times its letter's bytes.
            assert len(result) <= 3 * len(payload)
