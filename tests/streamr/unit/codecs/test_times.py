"""Times as texts."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.times import iso_time, read_time

LAST = 253_402_300_799_999


@given(st.integers(0, LAST))
def test_what_is_written_is_read(ms: int) -> None:
    assert read_time(iso_time(ms)) == ms
    assert read_time(str(ms)) == ms


def test_times_are_written_as_javascript_does() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(1_605_999_245_120) == "2020-11-21T22:54:05.120Z"
    assert iso_time(2**53 - 1) == iso_time(LAST) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2020-11-21T22:54:05.120Z", 1_605_999_245_120),
        ("2020-11-21T23:54:05.120+01:00", 1_605_999_245_120),
        ("2020-11-21T22:54:05", 1_605_999_245_000),
        ("1970-01-01", 0),
        ("9007199254740991", 2**53 - 1),
    ],
)
def test_other_forms_are_read(text: str, ms: int) -> None:
    assert read_time(text) == ms


@each_row(
    [
        "",
        "-1",
        "1.5",
        "9007199254740992",
        "99999999999999999",
        "yesterday",
        "1969-12-31",
        "0001-01-01T00:00:00+14:00",
        "2020-13-01",
        "\u0663",
        "1" * 100_000,
    ]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CodecError) as caught:
        read_time(text)
    assert caught.value.code == "codec.field"
    assert len(caught.value.text) < 100


@given(st.text(max_size=80))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with suppress(CodecError):
        assert 0 <= read_time(text) <= 2**53 - 1
