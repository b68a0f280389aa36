"""Messages that are not whole yet: what all that share a listener may hold of them together."""

from collections import OrderedDict
from typing import Protocol

from rillnode.codecs.errors import TransportError


class Holder(Protocol):
    """A connection that holds a part of a message; gone, it calls `Unfinished.release`."""

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: nothing more is read."""
        ...


class Unfinished:
    """Bytes of unfinished messages, and who holds them.

    Where all hold too many, the one whose message was begun first is ended: whole messages, which
    are soon done, are taken however many others never end.

    Args:
        bytes_max: what all hold together.
    """

    __slots__ = ("_bytes", "_bytes_max", "_held")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # The one that was begun first foremost.
        self._held: OrderedDict[Holder, int] = OrderedDict()

    def hold(self, holder: Holder, size: int, *, begun: bool) -> None:
        """Note how many bytes of an unfinished message a connection holds.

        Args:
            holder: the connection.
            size: bytes; 0 where no message is under way.
            begun: it is another message than before.
        """
        before = self._held.get(holder, 0)
        if before and (begun or not size):
            del self._held[holder]
        if size:
            self._held[holder] = size
        self._bytes += size - before
        while self._bytes > self._bytes_max:
            oldest, held = self._held.popitem(last=False)
            self._bytes -= held
            text = "too much is unfinished on all links"
            oldest.crowded_out(TransportError("link.unfinished_crowd", text))

    def release(self, holder: Holder) -> None:
        """Forget a connection; harmless for one that holds nothing."""
        self._bytes -= self._held.pop(holder, 0)
