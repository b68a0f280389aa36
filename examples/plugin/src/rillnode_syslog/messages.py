"""Reads syslog messages as RFC 5424 writes them, and cuts them out of a TCP stream (RFC 6587)."""

import re
from collections.abc import Iterator
from typing import Final

MESSAGE_BYTES_MAX: Final = 65_536
"""Longer ones are refused. RFC 5424 asks for 2,048 at least."""

_HEADER: Final = re.compile(
    r"<(?P<pri>0|[1-9]\d{0,2})>1 (?P<time>\S+) (?P<host>\S+) (?P<app>\S+) (?P<process>\S+)"
    r" (?P<id>\S+) (?P<data>-|(?:\[(?:[^\]\\\"]|\\.|\"(?:[^\"\\]|\\.)*\")*\])+)(?: (?P<text>.*))?",
    re.DOTALL,
)
_COUNT_DIGITS_MAX: Final = 6


class SyslogError(ValueError):
    """Bytes that are no syslog message."""


def record_of(line: bytes) -> dict[str, str | int]:
    """A message's parts; those that it leaves out (`-`) are left out.

    Raises:
        SyslogError: it is none.
    """
    found = _HEADER.fullmatch(line.decode("utf-8", "replace"))
    if found is None or int(found["pri"]) > 191:
        raise SyslogError("not <PRI>1 TIME HOST APP PROCESS ID DATA [TEXT]")
    facility, severity = divmod(int(found["pri"]), 8)
    named = ("time", "host", "app", "process", "id", "data")
    parts = {name: found[name] for name in named if found[name] != "-"}
    return {
        "facility": facility,
        "severity": severity,
        **parts,
        "text": (found["text"] or "").removeprefix("\ufeff"),
    }


class Frames:
    """The messages of one TCP connection: counted (`12 <34>1 ...`), or each on a line."""

    def __init__(self) -> None:
        self._left = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Take what has come; give out the messages that are whole.

        Raises:
            SyslogError: one is too long, or there is no end of a frame to be found.
        """
        self._left += data
        while self._left:
            head = 0
            if 48 <= self._left[0] <= 57:  # a digit: the frame says its length
                digits, space, _ = self._left[: _COUNT_DIGITS_MAX + 1].partition(b" ")
                if not space and len(digits) <= _COUNT_DIGITS_MAX:
                    return
                if not space or not digits.isdigit():
                    raise SyslogError("a frame's length is no number")
                head, size = len(digits) + 1, int(digits)
                end = head + size
            else:
                at = self._left.find(b"\n")
                size = len(self._left) if at < 0 else at
                end = size + 1
            if size > MESSAGE_BYTES_MAX:
                raise SyslogError(f"a message of more than {MESSAGE_BYTES_MAX:,} bytes")
            if len(self._left) < end:
                return
            yield bytes(self._left[head : head + size])
            del self._left[:end]
