"""Ockam's two TCP dialects on one port: a listener answers in the one it is spoken to.

| | u16 (nodes from 2021-02 to 2024-06) | 2024 (nodes since) |
|---|---|---|
| greeting | none | a byte 01 from each side, at once |
| frame | u16 length, BARE message | u32 length, CBOR message |
| first bytes | `LL LL` version | `01`, `00 LL LL LL`, `84`, a route |

Both may begin with 01: a u16 frame of 256 to 511 bytes does. What follows tells them apart, seven
bytes at most, except for silence: nodes of 2024 may wait for our greeting after theirs.
"""

from collections.abc import Sequence
from typing import Final, Literal

from rillnode.codecs.errors import CodecError
from rillnode.codecs.framing import u16_frame
from rillnode.codecs.limits import GREETING_PAUSE_SECONDS, GREETING_SECONDS_MAX, U16_FRAME_BYTES_MAX
from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing.cbor_items import ARRAY
from rillnode.codecs.routing.framing import GREETING, U16Framing, U32Framing
from rillnode.codecs.routing.routes import encode_message

Dialect = Literal["u16", "2024"]

_BARE_VERSIONS: Final = (1, 2)
"""What the third byte of a u16 stream is: no released node has written another version."""

_MESSAGE_HEAD: Final = 0x84
"""How a CBOR message begins: an array of four. Its first item, a route, is an array too."""

_FILLER: Final = u16_frame(encode_message((), (), b" " * 251))
"""A frame that begins as a greeting does, being of 256 bytes; nodes ignore what it says."""


def dialling_codec(dialect: Dialect) -> U16Framing | U32Framing:
    """The codec of a link to a peer that is known to speak `dialect`."""
    return U16Framing() if dialect == "u16" else U32Framing()


def dialect_of(head: bytes) -> Dialect | None:
    """The dialect of a stream that begins with `head`; None while more bytes must tell.

    Every first message that a released node writes is told right, wherever its bytes are split.
    """
    if not head:
        return None
    if not head.startswith(GREETING):
        return "u16"
    if len(head) == 1:
        return None
    if head[1]:  # too much for a u32 length below 2**24: a u16 frame of 257 to 511 bytes
        return "u16"
    if len(head) == 2:
        return None
    if head[2] not in _BARE_VERSIONS:  # no u16 frame of 256 bytes
        return "2024"
    if len(head) < 7:
        return None
    # In a u16 frame 84 01 would stand here: the length of a first address of 132 bytes.
    return "2024" if head[5] == _MESSAGE_HEAD and head[6] >> 5 == ARRAY else "u16"


class EitherDialect:
    """The codec of an accepted link: becomes the framing of the dialect that its peer speaks.

    It speaks no earlier than its peer, and messages may be sent once the dialect is known. A lone
    01 that nothing follows is answered as a greeting, and still not taken for one: should a slow
    u16 frame go on behind it, what was answered becomes the beginning of a frame that says nothing.
    """

    __slots__ = ("_answered", "_framing", "_head", "_output")

    remote_identity: str | None = None

    def __init__(self) -> None:
        self._head = b""  # what has come while the dialect is unknown
        self._answered = False  # a greeting, before the dialect was known
        self._output = b""
        self._framing: U16Framing | U32Framing | None = None

    @property
    def established(self) -> bool:
        """Whether the dialect is known."""
        return self._framing is not None

    @property
    def message_bytes_max(self) -> int:
        """Largest message in the peer's dialect."""
        return U16_FRAME_BYTES_MAX if self._framing is None else self._framing.message_bytes_max

    @property
    def wire_format(self) -> WireFormat:
        """How messages are written in the peer's dialect."""
        return "bare" if self._framing is None else self._framing.wire_format

    @property
    def silence_seconds(self) -> float | None:
        """How long to wait for what comes before its absence says something."""
        if self._framing is not None or self._head not in (b"", GREETING):
            return None
        greeted = bool(self._head) and not self._answered
        return GREETING_PAUSE_SECONDS if greeted else GREETING_SECONDS_MAX

    @property
    def held_bytes(self) -> int:
        """Bytes of what is not whole yet."""
        return len(self._head) if self._framing is None else self._framing.held_bytes

    def start(self) -> bytes:
        """Nothing: the peer speaks first."""
        return b""

    def silent(self) -> None:
        """Answer a greeting; later, decide by what has come.

        Peers of 2024 greet at once, so one that has sent nothing is none; one that has sent a
        greeting and nothing else for long has no message yet.
        """
        if not self._head:
            self._become("u16")
        elif not self._answered:
            self._output, self._answered = GREETING, True
        else:
            self._become("2024").receive(self._head)

    def receive(self, data: bytes) -> list[bytes]:
        """Take one read of any size; return the messages that are now whole, in order.

        Raises:
            CodecError: a length is over the limit.
        """
        if self._framing is not None:
            return self._framing.receive(data)
        head = self._head + data
        dialect = dialect_of(head)
        self._head = head if dialect is None else b""
        return [] if dialect is None else self._become(dialect).receive(head)

    def take_output(self) -> bytes:
        """Our greeting, or what makes up for it."""
        output, self._output = self._output, b""
        return output

    def encode(self, messages: Sequence[bytes]) -> bytes:
        """Frame messages in the peer's dialect.

        Raises:
            CodecError: one is empty or too large, or the dialect is not known yet.
        """
        if self._framing is None:
            raise CodecError("ockam.dialect", "the peer has not said which dialect it speaks")
        return self._framing.encode(messages)

    def ping(self) -> bytes:
        """Nothing: neither dialect has bytes that every peer ignores."""
        return b""

    def rest(self) -> None:
        """Nothing: neither dialect has keys."""

    def end(self) -> None:
        """Check that the bytes did not end inside a frame; a peer need not have sent any."""
        if self._framing is not None:
            self._framing.end()
        elif self._head not in (b"", GREETING):
            raise CodecError("codec.truncated", "the link ended inside its first frame")

    def _become(self, dialect: Dialect) -> U16Framing | U32Framing:
        framing = U16Framing(U16_FRAME_BYTES_MAX) if dialect == "u16" else U32Framing()
        self._framing = framing
        if dialect == "2024":
            self._output = b"" if self._answered else framing.start()
        else:
            self._output = _FILLER[1:] if self._answered else b""
        return framing
