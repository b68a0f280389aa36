"""Times at which reading begins."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from each_row import each_row
from rillnode.codecs.errors import RequestError
from rillnode.codecs.times import Time, milliseconds_of, parse_time

TIMES: list[tuple[Time, int, bool]] = [
    (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000, False),
    (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_767_225_600_000, False),
    # The first millisecond that begins no earlier.
    (datetime(2026, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC), 1_767_225_600_001, False),
    (datetime(2026, 1, 1, 0, 0, 0, 1_001, tzinfo=UTC), 1_767_225_600_002, False),
    (datetime(1960, 1, 1, tzinfo=UTC), 0, False),
    (datetime.min.replace(tzinfo=UTC), 0, False),
    (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), 253_402_351_200_000, False),
    (timedelta(), 0, True),
    (timedelta(hours=1), 3_600_000, True),
    (timedelta.max, 86_399_999_999_999_999, True),
]


@each_row(TIMES)
def test_a_time_is_asked_for_in_milliseconds(time: Time, milliseconds: int, ago: bool) -> None:
    assert milliseconds_of(time) == (milliseconds, ago)


@pytest.mark.parametrize(
    ("time", "says"),
    [
        (datetime(2026, 1, 1), "has no zone: say which, as in datetime.now(UTC)"),
        (timedelta(seconds=-1), "say how long ago by a timedelta from 0 on"),
    ],
)
def test_what_is_no_time_is_refused(time: Time, says: str) -> None:
    with pytest.raises(RequestError, match=r"client\.time") as refused:
        milliseconds_of(time)
    assert says in refused.value.text


@pytest.mark.parametrize("time", [5, "1h", None, 2.5])
def test_what_is_of_another_type_is_a_type_error(time: Any) -> None:
    with pytest.raises(TypeError, match="a time is a datetime or a timedelta"):
        milliseconds_of(time)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h", timedelta(hours=1)),
        ("1d12h", timedelta(days=1.5)),
        ("2w3d4h5m6s7ms", timedelta(17, 14_706, milliseconds=7)),
        ("0s", timedelta()),
        ("2026-01-01T10:00Z", datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("2026-01-01T10:00:00.250+02:00", datetime(2026, 1, 1, 8, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_from_a_text(text: str, time: Time) -> None:
    assert parse_time(text) == time


@each_row(
    [
        "",
        "1",
        "h",
        "-1h",
        "1 h",
        "1.5h",
        "1y",
        "yesterday",
        "٣h",
        "99999999999s",
        "1h" * 40,
        "9" * 99,
    ]
)
def test_what_says_no_time_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected how long ago, as 90s or 1h30m") as refused:
        parse_time(text)
    assert refused.value.code == "client.time"
    assert len(refused.value.text) < 160


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T10:00", "20260101T100000"])
def test_a_text_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="has no zone: add Z for UTC"):
        parse_time(text)
