"""Parses what NATS servers send, from bytes as they come: no I/O here.

Whatever is no message of the protocol is refused, and nothing is kept beyond the limits below.

Source: NATS documentation, "Client Protocol"; ADR-4 of nats-architecture (headers).
"""

from typing import Final, Literal, NamedTuple

import msgspec

LINE_BYTES_MAX: Final = 65_536
"""Of one line; an INFO of a large cluster is the longest one."""

MESSAGE_BYTES_MAX: Final = 16_777_216
"""Of one message with its headers; ours have half of that."""

NO_RESPONDERS: Final = 503
"""The status of an answer by the server itself: nobody takes what was sent."""

_HEADERS_START: Final = b"NATS/1.0"


DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What JSON of a server may raise: it is none of ours, no UTF-8, or too deep."""


class WireError(Exception):
    """A server has sent what is no message, or does not let us in.

    Attributes:
        denied: whether it is the latter.
    """

    def __init__(self, text: str, *, denied: bool = False) -> None:
        super().__init__(text)
        self.denied = denied


class Message(NamedTuple):
    """A message under a subject: raw headers with their first line, or none."""

    subject: bytes
    subscription: bytes
    headers: bytes
    data: bytes

    @property
    def status(self) -> int:
        """What a server says instead of a message; 0 where it is one."""
        said = self.headers[len(_HEADERS_START) + 1 : len(_HEADERS_START) + 4]
        return int(said) if said.isdigit() else 0

    def header(self, name: bytes) -> bytes | None:
        """The first header of a name, which is compared exactly."""
        begin = self.headers.find(b"\r\n%s:" % name)
        if begin < 0:
            return None
        begin += len(name) + 3
        return self.headers[begin : self.headers.find(b"\r\n", begin)].strip()


class Info(msgspec.Struct, frozen=True):
    """A server's description of itself."""

    server_name: str = ""
    version: str = ""
    max_payload: int = 0
    headers: bool = False
    tls_required: bool = False
    tls_available: bool = False
    nonce: str = ""


class Failure(NamedTuple):
    """A server's `-ERR`."""

    text: str


Event = Message | Info | Failure | Literal["ping", "pong"]

_info: Final = msgspec.json.Decoder(Info)


class Parser:
    """Bytes in as they come, events out; what is incomplete is kept."""

    def __init__(self) -> None:
        self._kept = bytearray()
        # So many bytes are there before it is worth while to look again.
        self._needed = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._kept

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete.

        Raises:
            WireError: they are none.
        """
        kept, events = self._kept, list[Event]()
        if kept:
            kept += data
            if len(kept) < self._needed:
                return events
            data = bytes(kept)
            kept.clear()
        at = 0
        while (end := data.find(b"\r\n", at, at + LINE_BYTES_MAX)) >= 0:
            line = data[at:end]
            body = end + 2
            if line.startswith((b"MSG ", b"HMSG ")):
                size = _size(line.rpartition(b" ")[2])
                if len(data) < body + size + 2:
                    self._needed = body + size + 2 - at
                    kept += data[at:]
                    return events
                events.append(_message(line.split(), data, body, size))
                at = body + size + 2
                continue
            at = body
            if line == b"PING":
                events.append("ping")
            elif line == b"PONG":
                events.append("pong")
            elif line.startswith(b"INFO "):
                events.append(_decoded_info(line[5:]))
            elif line.startswith(b"-ERR"):
                events.append(Failure(line[4:].decode(errors="replace").strip(" '")))
            elif line != b"+OK":
                raise WireError(f"the server does not speak NATS: {line[:40]!r}")
        if len(data) - at >= LINE_BYTES_MAX:
            raise WireError("a line of the server does not end")
        self._needed = 0
        kept += data[at:]
        return events


def _size(digits: bytes) -> int:
    if not (digits.isdigit() and len(digits) <= 9) or (size := int(digits)) > MESSAGE_BYTES_MAX:
        raise WireError(f"a message has no size that is allowed: {digits[:20]!r}")
    return size


def _message(words: list[bytes], data: bytes, begin: int, size: int) -> Message:
    """MSG subject id [reply] size, or HMSG subject id [reply] size-of-headers size."""
    head, named = 0, len(words)
    if words[0] == b"HMSG":
        named -= 1
        head = _size(words[-2]) if named in (4, 5) else 0
    end = begin + size
    if named not in (4, 5) or head > size or data[end : end + 2] != b"\r\n":
        raise WireError("a message does not end where it should")
    headers = data[begin : begin + head]
    if words[0] == b"HMSG" and not (
        headers.startswith(_HEADERS_START) and headers.endswith(b"\r\n\r\n")
    ):
        raise WireError("the headers of a message are none")
    return Message(words[1], words[2], headers, data[begin + head : end])


def _decoded_info(text: bytes) -> Info:
    try:
        return _info.decode(text)
    except DECODE_ERRORS as error:
        raise WireError(f"a server does not tell what it is ({error})") from None
