"""Eavesdrops on every `noise` wire: no plain data, no nonce used twice.

Other wires are plain by design: WebSockets are sealed by TLS, beyond a machine, or not at all.
"""

from rillnode.codecs.noise.cipher import TAG_BYTES
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.xx import PREAMBLE_BYTES
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import NOISE_PORT
from rillnode.node.simulated.programs import MARKER
from rillnode.node.simulated.sealing import HEAD_BYTES, Sealing
from rillnode.node.simulated.world import Pipe


class _Direction:
    """The records of one direction of a connection."""

    def __init__(self, skip: int) -> None:
        self.rest = b""
        self.skip = skip
        self.records = 0
        self.heads: dict[bytes, None] = {}


class WireAudit:
    """Watches what processes send.

    The first frame of a direction shows the ephemeral key of its side, which must be a new one:
    with a key of another handshake its nonces would be used again.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._directions: dict[Pipe, _Direction] = {}
        self._sealing = Sealing(history)

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """Look at bytes that a process has sent."""
        if pipe.port != NOISE_PORT:
            return
        if MARKER in data:
            self._history.broken("plain-data", f"{pipe.source} sent data in clear to {pipe.target}")
        direction = self._directions.get(pipe)
        if direction is None:
            skip = PREAMBLE_BYTES if pipe.dialling else 0
            direction = self._directions[pipe] = _Direction(skip)
        rest = direction.rest + data if direction.rest else data
        at, size = 0, len(rest)
        if direction.skip:
            at = min(direction.skip, size)
            direction.skip -= at
        while size - at >= 2:
            begin = at + 2
            end = begin + (rest[at] << 8 | rest[at + 1])
            if end > size:
                break
            self._record(pipe, direction, rest[begin : min(end, begin + DH_BYTES)])
            at = end
        direction.rest = rest[at:] if at < size else b""

    def _record(self, pipe: Pipe, direction: _Direction, begin: bytes) -> None:
        direction.records += 1
        if direction.records == 1:
            self._sealing.shown(pipe.source, begin[:DH_BYTES])
        elif len(begin) > TAG_BYTES:
            self._sealing.sealed(pipe.source, begin[:HEAD_BYTES], direction.heads)
