"""Peers that do not read, where only a look from time to time shows it."""

from rillnode.codecs.errors import TransportError
from rillnode.transports.links import LinkLimits


class Backlog:
    """The outgoing bytes of one link, as they are seen once per sweep.

    Args:
        limits: its marks, and how long the bytes may stay above them.
    """

    __slots__ = ("_blocked_at", "_limits")

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._blocked_at: float | None = None

    def drained(self, buffered_bytes: int, now: float) -> bool:
        """Whether the bytes fell to the low mark after having been above the high one.

        Raises:
            TransportError: `link.not_drained`, that takes longer than `drain_seconds`.
        """
        high = self._limits.buffer_high_bytes
        if self._blocked_at is None:
            if buffered_bytes > high:
                self._blocked_at = now
        elif buffered_bytes <= high // 2:
            self._blocked_at = None
            return True
        elif now - self._blocked_at >= self._limits.drain_seconds:
            raise TransportError("link.not_drained", "the peer reads too slowly")
        return False
