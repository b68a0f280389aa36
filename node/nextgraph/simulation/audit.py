"""Audits the WebSocket frames of NextGraph's clients as an eavesdropper.

A frame is a Noise message. The first of each side shows its ephemeral key, the second of a client
is in clear too; all others are sealed.
"""

from dataclasses import dataclass, field
from typing import Final

from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.node.simulated.history import History
from rillnode.node.simulated.sealing import HEAD_BYTES, Sealing
from rillnode.node.simulated.world import Pipe

NEXTGRAPH_PORT: Final = 1_440

BEGINNINGS: Final = (b"GET ", b"HTTP/1.1 101 ")
"""How a side begins whose next bytes are frames."""

LOOKED_AT_BYTES: Final = 80
"""Of a frame's payload: what a request is about stands at its beginning."""

_BINARY: Final = 2
_MASK_BYTES: Final = 4
_FRAME_HEAD_BYTES: Final = 2


@dataclass(slots=True)
class _Side:
    """One direction of a connection."""

    rest: bytes = b""
    framed: bool | None = None
    frames: int = 0
    heads: dict[bytes, None] = field(default_factory=dict[bytes, None])


class NextgraphAudit:
    """Watches what processes send.

    Attributes:
        words: what must not be seen in clear.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._sides: dict[Pipe, _Side] = {}
        self._sealing = Sealing(history)
        self.words: list[bytes] = []

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """Look at bytes that a process has sent."""
        if pipe.port != NEXTGRAPH_PORT:
            return
        side = self._sides.setdefault(pipe, _Side())
        side.rest += data
        if side.framed is None:
            head, end, rest = side.rest.partition(b"\r\n\r\n")
            if not end:
                return
            side.framed, side.rest = head.startswith(BEGINNINGS), rest
        if not side.framed:
            side.rest = b""
            return
        while (found := _frame(side.rest)) is not None:
            payload, size, binary = found
            side.rest = side.rest[size:]
            if binary:
                self._frame(pipe, side, payload)

    def _frame(self, pipe: Pipe, side: _Side, payload: bytes) -> None:
        side.frames += 1
        start = _FRAME_HEAD_BYTES
        # The length that follows has seven bits in each byte.
        while start < len(payload) and payload[start] & 0x80:
            start += 1
        sealed = payload[start + 1 :]
        if side.frames == 1:
            self._sealing.shown(pipe.source, sealed[:DH_BYTES])
        elif side.frames > 1 + pipe.dialling:
            self._sealing.sealed(pipe.source, sealed[:HEAD_BYTES], side.heads)
        if any(word in payload for word in self.words):
            text = f"{pipe.source} sent in clear what {pipe.target} is asked"
            self._history.broken("plain-data", text)


def _frame(data: bytes) -> tuple[bytes, int, bool] | None:
    """The first frame: its payload's beginning, its size, whether it is binary; None: not whole."""
    if len(data) < 2:
        return None
    at, length = 2, data[1] & 0x7F
    if length > 125:
        more = 2 if length == 126 else 8
        length, at = int.from_bytes(data[2 : 2 + more], "big"), 2 + more
    masked = data[1] >> 7
    start = at + _MASK_BYTES * masked
    if len(data) < start + length:
        return None
    payload = data[start : start + min(length, LOOKED_AT_BYTES)]
    if masked:
        mask = data[at:start] * (len(payload) // _MASK_BYTES + 1)
        payload = bytes(one ^ other for one, other in zip(payload, mask, strict=False))
    return payload, start + length, data[0] & 0x0F == _BINARY
