"""Caps the bytes of partial messages per listener."""

from collections import OrderedDict
from typing import Protocol

from rillnode.codecs.errors import TransportError


class Holder(Protocol):
    """A connection that holds a part of a message; gone, it calls `Unfinished.release`."""

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: nothing more is read."""
        ...


class Unfinished:
    """The bytes of unfinished messages, and their holders.

    Where all hold too many, the one whose message was begun first is ended: whole messages, which
    are soon done, are taken however many others never end.

    Args:
        bytes_max: what all hold together.

    Attributes:
        held_bytes: what they hold together now.
    """

    __slots__ = ("_bytes_max", "_held", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        # The one that was begun first foremost; None while nobody holds anything, as mostly.
        self._held: OrderedDict[Holder, int] | None = None

    def hold(self, holder: Holder, size: int, *, begun: bool) -> None:
        """Note how many bytes of an unfinished message a connection holds.

        Args:
            holder: the connection.
            size: bytes; 0 where no message is under way.
            begun: it is another message than before.
        """
        if self._held is None:
            if not size:
                return
            self._held = OrderedDict()
        before = self._held.get(holder, 0)
        if before and (begun or not size):
            del self._held[holder]
        if size:
            self._held[holder] = size
        self.held_bytes += size - before
        while self.held_bytes > self._bytes_max:
            oldest, held = self._held.popitem(last=False)
            self.held_bytes -= held
            text = "too much is unfinished on all links"
            oldest.crowded_out(TransportError("link.unfinished_crowd", text))
        self._held = self._held or None

    def release(self, holder: Holder) -> None:
        """Forget a connection; harmless for one that holds nothing."""
        if self._held is not None:
            self.held_bytes -= self._held.pop(holder, 0)
            self._held = self._held or None
