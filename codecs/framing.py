"""Framing: a byte stream cut into whole messages, and the seam between codecs and transports.

A transport knows a `LinkCodec` and nothing of what it does: plain frames, a Noise session, or a
codec that looks at the first bytes and then becomes one of several.
"""

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Final, Protocol

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.links import WireFormat

U16: Final = struct.Struct(">H")
U32: Final = struct.Struct(">I")


class LinkCodec(Protocol):
    """Turns the bytes of one link into whole messages and back; does no I/O.

    A codec that has raised out of `receive` is of no further use.
    """

    @property
    def established(self) -> bool:
        """Whether messages may be sent; once true it stays so."""
        ...

    @property
    def remote_identity(self) -> str | None:
        """The identity that the peer has proved (Ed25519 public key, hex), if any."""
        ...

    @property
    def message_bytes_max(self) -> int:
        """Largest message that `encode` takes; known once established."""
        ...

    @property
    def wire_format(self) -> WireFormat:
        """How the messages are written; known once established."""
        ...

    @property
    def silence_seconds(self) -> float | None:
        """After how long without a byte from the peer `silent` is to be called; None: never.

        Looked at after `start`, `receive` and `silent`, until the codec is established.
        """
        ...

    @property
    def held_bytes(self) -> int:
        """How many bytes of what is not whole yet are held."""
        ...

    def silent(self) -> None:
        """Tell that the peer has sent nothing for `silence_seconds`.

        Raises:
            TransportError: it should have; the link is to be closed.
        """
        ...

    def start(self) -> bytes:
        """Return what to send as soon as the link is connected; called once, first."""
        ...

    def receive(self, data: bytes) -> list[bytes]:
        """Take one read of any size; return the messages that are now whole, in order.

        Raises:
            CodecError, HandshakeError: the bytes are wrong; the whole read is dropped.
        """
        ...

    def take_output(self) -> bytes:
        """Return what `receive` or `silent` wants sent (handshakes); also after it has raised."""
        ...

    def encode(self, messages: Sequence[bytes]) -> bytes:
        """Return the bytes that carry `messages`, in order, as one buffer.

        Raises:
            CodecError: a message is empty or too large; nothing has changed.
        """
        ...

    def ping(self) -> bytes:
        """Return bytes that a peer reads and ignores; empty where the protocol has none."""
        ...

    def rest(self) -> None:
        """Tell that the link is quiet: what it takes no time to make again may go."""
        ...

    def end(self) -> None:
        """Tell that no more bytes will come.

        Raises:
            CodecError: they ended inside a frame or a message.
            TransportError: they ended before the codec was established.
        """
        ...


class FrameCutter:
    """Cuts a byte stream into the contents of frames: u16 big-endian length, then content.

    Holds at most one unfinished frame. Its time is linear in the bytes given, however they are
    split, and whole frames are not copied: they are views into what was given.
    """

    __slots__ = ("_partial",)

    def __init__(self) -> None:
        self._partial: bytearray | None = None  # None while it is inside no frame, as mostly

    @property
    def inside_frame(self) -> bool:
        """Whether the bytes so far end inside a frame."""
        return self._partial is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished frame, its length included."""
        return 0 if self._partial is None else len(self._partial)

    def cut(self, data: memoryview) -> list[memoryview]:
        """Take bytes; return the contents of the frames that are now whole, in order."""
        frames: list[memoryview] = []
        end = len(data)
        at = 0 if self._partial is None else self._complete(self._partial, data, frames)
        while end - at >= 2:
            stop = at + 2 + (data[at] << 8 | data[at + 1])
            if stop > end:
                break
            frames.append(data[at + 2 : stop])
            at = stop
        if at < end:
            self._partial = bytearray(data[at:])
        return frames

    def _complete(self, partial: bytearray, data: memoryview, frames: list[memoryview]) -> int:
        """Finish the frame begun earlier; return how many bytes of `data` were used."""
        if not data:
            return 0
        used = 0
        if len(partial) == 1:
            partial.append(data[0])
            used = 1
        missing = 2 + (partial[0] << 8 | partial[1]) - len(partial)
        if missing > len(data) - used:
            partial += data[used:]
            return len(data)
        partial += data[used : used + missing]
        frames.append(memoryview(bytes(partial))[2:])
        self._partial = None
        return used + missing


class MessageJoiner:
    """Cuts a byte stream that comes in pieces into messages: u32 big-endian length, then bytes.

    Length 0 is skipped. Holds at most one unfinished message, whatever the sizes of the pieces,
    and its time is linear in their bytes.
    """

    __slots__ = ("_missing", "_partial")

    def __init__(self) -> None:
        # An unfinished length, or the message after it; None between messages, as mostly.
        self._partial: bytearray | None = None
        self._missing = 0  # bytes of the message still to come; 0 while the length is unfinished

    @property
    def inside_message(self) -> bool:
        """Whether the bytes so far end inside a message or its length."""
        return self._partial is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished message, or of its length."""
        return 0 if self._partial is None else len(self._partial)

    def feed(self, piece: bytes, messages: list[bytes]) -> None:
        """Take the next bytes; append the messages that are now whole.

        Raises:
            CodecError: a length over the limit, as soon as it is read.
        """
        at = 0 if self._partial is None else self._complete(self._partial, piece, messages)
        end = len(piece)
        read_length, append = U32.unpack_from, messages.append
        while end - at >= 4:
            (length,) = read_length(piece, at)
            at += 4
            stop = at + length
            if stop > end:
                self._missing = _checked_length(length) - (end - at)
                self._partial = bytearray(memoryview(piece)[at:])
                return
            if length:
                append(piece[at:stop])
            at = stop
        if at < end:
            self._partial = bytearray(memoryview(piece)[at:])

    def _complete(self, partial: bytearray, piece: bytes, messages: list[bytes]) -> int:
        """Go on with what is unfinished; return how many bytes of `piece` were used."""
        used = 0
        if not self._missing:
            used = min(4 - len(partial), len(piece))
            partial += piece[:used]
            if len(partial) < 4:
                return used
            self._missing = _checked_length(U32.unpack(partial)[0])
            partial.clear()
            if not self._missing:
                self._partial = None
                return used
        stop = used + self._missing
        partial += memoryview(piece)[used:stop]
        self._missing = max(0, stop - len(piece))
        if self._missing:
            return len(piece)
        messages.append(bytes(partial))
        self._partial = None
        return stop


def u16_frame(content: bytes) -> bytes:
    """One frame, as a `FrameCutter` at the other end takes it apart."""
    return U16.pack(len(content)) + content


def joined_messages(messages: Sequence[bytes]) -> bytes:
    """The byte stream of messages that a `MessageJoiner` at the other end takes apart.

    Raises:
        CodecError: a message is empty or larger than `FRAME_BYTES_MAX`.
    """
    return with_lengths(U32, messages, FRAME_BYTES_MAX)


def checked_lengths(messages: Sequence[bytes], message_bytes_max: int) -> list[int]:
    """The length of each message.

    Raises:
        CodecError: one is empty (that is a heartbeat) or larger than the peer takes.
    """
    lengths = list(map(len, messages))
    if 0 in lengths or max(lengths, default=0) > message_bytes_max:
        wrong = 0 if 0 in lengths else max(lengths)
        raise CodecError(
            "link.message_size",
            f"a message on this link has 1 to {message_bytes_max:,} bytes, not {wrong:,}",
        )
    return lengths


def with_lengths(size: struct.Struct, messages: Sequence[bytes], message_bytes_max: int) -> bytes:
    """Put the length before each message, written as `size` says.

    Raises:
        CodecError: as `checked_lengths` does.
    """
    if len(messages) == 1 and 0 < (length := len(messages[0])) <= message_bytes_max:
        return size.pack(length) + messages[0]
    lengths = checked_lengths(messages, message_bytes_max)
    return b"".join(chain.from_iterable(zip(map(size.pack, lengths), messages, strict=True)))


def _checked_length(length: int) -> int:
    if length > FRAME_BYTES_MAX:
        raise CodecError(
            "link.message_size", f"a message has at most {FRAME_BYTES_MAX:,} bytes, not {length:,}"
        )
    return length
