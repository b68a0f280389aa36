"""Follows the frames of a WebSocket (RFC 6455), to tell where inside a message its peer is.

Who reads them is an HTTP library, which says nothing of a message before it is whole.
"""

from typing import Final

_FINAL: Final = 0x80
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_CLOSE: Final = 0x08
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_BYTES: Final = {126: 2, 127: 8}


class MessageScanner:
    """Follows the frames of one direction, in time linear in the bytes given, however cut.

    It refuses nothing: who reads the frames does.

    Attributes:
        held_bytes: what has come of the message under way, its frames' heads included; 0 between
            messages. Control frames, which may stand inside a message, do not count.
        longest_bytes: payload of the longest message so far; of the one under way, as much as its
            frames have announced.
        closed: whether a whole close frame has come.
    """

    __slots__ = (
        "_closes",
        "_control",
        "_final",
        "_head",
        "_left",
        "_message_bytes",
        "closed",
        "held_bytes",
        "longest_bytes",
    )

    def __init__(self) -> None:
        self.held_bytes = 0
        self.longest_bytes = 0
        self.closed = False
        self._head = b""  # the begin of a frame's head
        self._left = 0  # bytes of the present frame still to come
        self._control = False
        self._closes = False
        self._final = True
        self._message_bytes = 0

    def feed(self, data: bytes) -> bool:
        """Follow some bytes; returns whether a message ended in them."""
        ended = False
        if self._head:
            data, self._head = self._head + data, b""
        at, size = 0, len(data)
        while at < size:
            start = at
            if not self._left:
                at, is_end = self._pass_whole(data, at, size)
                ended = ended or is_end
                if at == size:
                    break
                start = at
                at = self._begin(data, at)
                if not at:
                    self._head = data[start:]
                    break
            taken = min(self._left, size - at)
            self._left -= taken
            at += taken
            if self._control:
                self.closed = self.closed or (self._closes and not self._left)
                continue
            if self._left or not self._final:
                self.held_bytes += at - start
            else:
                self.held_bytes, ended = 0, True
        return ended

    def _pass_whole(self, data: bytes, at: int, size: int) -> tuple[int, bool]:
        """Follow the frames of less than 64 KiB that are there as a whole, from `at` on.

        A peer may send nothing but the smallest frames there are: two bytes each. So all that a
        frame needs stands in one loop.

        Returns where it has got to, and whether a message ended.
        """
        held, longest, message = self.held_bytes, self.longest_bytes, self._message_bytes
        ended = False
        last = size - 1
        while at < last:
            length = data[at + 1]
            if length < 126:
                end = at + 2 + length
            elif 128 <= length < 254:
                length -= 128
                end = at + 6 + length
            elif length & 1 or at + 4 > size:  # 127 and 255: more than that
                break
            else:
                end = at + (4 if length == 126 else 8)
                length = data[at + 2] << 8 | data[at + 3]
                end += length
            if end > size:
                break
            first = data[at]
            if first & _CONTROL:
                if first & _OPCODE == _CLOSE:
                    self.closed = True
            else:
                message = length if first & _OPCODE else message + length
                if message > longest:
                    longest = message
                if first & _FINAL:
                    held, ended = 0, True
                else:
                    held += end - at
            at = end
        self.held_bytes, self.longest_bytes, self._message_bytes = held, longest, message
        return at, ended

    def _begin(self, data: bytes, at: int) -> int:
        """Read a frame's head; returns where its payload begins, 0 if the head is not whole."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        length = second & ~_MASKED
        more = _LENGTH_BYTES.get(length, 0)
        end = at + 2 + more + (_MASK_BYTES if second & _MASKED else 0)
        if end > len(data):
            return 0
        self._left = int.from_bytes(data[at + 2 : at + 2 + more]) if more else length
        opcode = first & _OPCODE
        self._control, self._closes = bool(first & _CONTROL), opcode == _CLOSE
        self._final = bool(first & _FINAL)
        if not self._control:
            before = 0 if opcode else self._message_bytes
            self._message_bytes = before + self._left
            self.longest_bytes = max(self.longest_bytes, self._message_bytes)
        return end
