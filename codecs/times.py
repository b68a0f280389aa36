"""Times at which reading begins, as callers and command lines say them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from rillnode.codecs.errors import RequestError

Time = datetime | timedelta
"""A moment, by a datetime that has a zone, or so long ago, by the node's clock."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS: Final = {
    "ms": _MILLISECOND,
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO: Final = re.compile(r"(?:\d{1,7}(?:ms|s|m|h|d|w))+", re.ASCII)
_PART: Final = re.compile(r"(\d+)([a-z]+)", re.ASCII)

_TEXT_MAX: Final = 64
"""Characters of a time: more than any of these forms needs."""


def parse_time(text: str) -> Time:
    """Read a time: so long ago, as `90s`, `1h` or `1d12h`, or a moment in ISO 8601 with a zone.

    Raises:
        RequestError: `client.time`, it is neither.
    """
    if len(text) <= _TEXT_MAX:
        if _AGO.fullmatch(text):
            return sum((int(n) * _UNITS[unit] for n, unit in _PART.findall(text)), timedelta())
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            if moment.utcoffset() is not None:
                return moment
            without = f"{text} has no zone: add Z for UTC, or an offset such as +02:00"
            raise RequestError("client.time", without)
    expected = f"expected how long ago, as 90s or 1h30m, or an ISO time, not {text[:_TEXT_MAX]!r}"
    raise RequestError("client.time", expected)


def milliseconds_of(time: Time) -> tuple[int, bool]:
    """Milliseconds since 1970 and False, or how many ago and True, as `rillnode_locate` has them.

    Raises:
        ArgumentError: it is neither a datetime nor a timedelta.
        RequestError: `client.time`, a datetime without a zone, or a timedelta below zero.
    """
    if isinstance(time, timedelta):
        if time < timedelta():
            text = f"{time!r} ago has not come yet: say how long ago by a timedelta from 0 on"
            raise RequestError("client.time", text)
        return time // _MILLISECOND, True
    if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        text = f"a time is a datetime or a timedelta, not {type(time).__name__}"
        raise RequestError("client.argument", text)
    if time.utcoffset() is None:
        text = f"{time!r} has no zone: say which, as in datetime.now(UTC)"
        raise RequestError("client.time", text)
    # Rounded up: what came within the same millisecond before it is not asked for.
    return max(0, -((_EPOCH - time) // _MILLISECOND)), False
