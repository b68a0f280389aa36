"""Times at which reading begins, as callers say them."""

from datetime import UTC, datetime, timedelta
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.errors import RequestError

Time = datetime | timedelta
"""A moment, by a datetime that has a zone, or so long ago, by the node's clock."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def locate_request(request_id: int, time: Time) -> native.LocateRequest:
    """The request that asks where a time lies.

    Raises:
        TypeError: it is neither a datetime nor a timedelta.
        RequestError: `client.time`, a datetime without a zone, or a timedelta below zero.
    """
    if isinstance(time, timedelta):
        if time < timedelta():
            text = f"{time!r} ago has not come yet: say how long ago by a timedelta from 0 on"
            raise RequestError("client.time", text)
        return native.LocateRequest(request_id, time // _MILLISECOND, ago=True)
    if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a time is a datetime or a timedelta, not {type(time).__name__}")
    if time.utcoffset() is None:
        text = f"{time!r} has no zone: say which, as in datetime.now(UTC)"
        raise RequestError("client.time", text)
    # Rounded up: what came within the same millisecond before it is not asked for.
    return native.LocateRequest(request_id, max(0, -((_EPOCH - time) // _MILLISECOND)), ago=False)
