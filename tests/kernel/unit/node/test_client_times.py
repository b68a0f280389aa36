"""Times at which reading begins."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.node.client.times import Time, locate_request

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


@pytest.mark.parametrize(("time", "milliseconds", "ago"), TIMES)
def test_a_time_is_asked_for_in_milliseconds(time: Time, milliseconds: int, ago: bool) -> None:
    request = locate_request(7, time)
    assert request == native.LocateRequest(7, milliseconds, ago)
    assert native.decode_request(native.encode(request)) == request


@pytest.mark.parametrize(
    ("time", "says"),
    [
        (datetime(2026, 1, 1), "has no zone: say which, as in datetime.now(UTC)"),
        (timedelta(seconds=-1), "say how long ago by a timedelta from 0 on"),
    ],
)
def test_what_is_no_time_is_refused(time: Time, says: str) -> None:
    with pytest.raises(RequestError, match=r"client\.time") as refused:
        locate_request(1, time)
    assert says in refused.value.text


@pytest.mark.parametrize("time", [5, "1h", None, 2.5])
def test_what_is_of_another_type_is_a_type_error(time: Any) -> None:
    with pytest.raises(TypeError, match="a time is a datetime or a timedelta"):
        locate_request(1, time)
