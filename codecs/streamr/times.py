"""Times as texts: milliseconds since 1970 as JavaScript's writers have them."""

import re
from datetime import UTC, datetime
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX

_DIGITS: Final = re.compile("[0-9]{1,16}")
_TEXT_CHARS_MAX: Final = 64
_TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, which no ISO text goes beyond."""


def iso_time(ms: int) -> str:
    """Write a time, such as `2026-11-21T22:54:05.120Z`; what is beyond the year 9999 is its end."""
    moment = datetime.fromtimestamp(min(ms, _TIME_MAX) // 1_000, UTC)
    moment = moment.replace(microsecond=min(ms, _TIME_MAX) % 1_000 * 1_000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(text: str) -> int:
    """Read a time: milliseconds, or ISO 8601; without a zone it is UTC.

    Raises:
        CodecError: `codec.field`.
    """
    if _DIGITS.fullmatch(text):
        ms = int(text)
        if ms <= STREAMR_INTEGER_MAX:
            return ms
    elif len(text) <= _TEXT_CHARS_MAX:
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            ms = round(moment.timestamp() * 1_000)
        except (ValueError, OverflowError):
            ms = -1
        if ms >= 0:
            return ms
    raise CodecError("codec.field", f"not a time: {text[:_TEXT_CHARS_MAX]!r}")
