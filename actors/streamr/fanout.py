"""Broadcasts: one message for many clients, encoded once for each dialect that they speak."""

from collections import Counter
from collections.abc import Sequence

from rillnode.actors.streamr.outlet import Dialect, Outlet, encode
from rillnode.codecs.streamr.control_messages import BroadcastMessage
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage


class Fanout:
    """The subscribers of one stream partition.

    A client is in it once, however often it subscribes. What is written to a client that reads
    too slowly waits in its link, whose limits close it; nobody else waits.
    """

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._dialects: dict[Outlet, Dialect] = {}
        self._outlets: dict[Dialect, dict[Outlet, None]] = {}

    def __len__(self) -> int:
        return len(self._dialects)

    def add(self, outlet: Outlet, layout: Layout) -> None:
        """Take a client in; `layout` is that of the messages which it is sent."""
        self.remove(outlet)
        dialect = self._dialects[outlet] = outlet.dialect(layout)
        self._outlets.setdefault(dialect, {})[outlet] = None

    def remove(self, outlet: Outlet) -> None:
        """Let a client go; harmless for one that is not there."""
        dialect = self._dialects.pop(outlet, None)
        if dialect is None:
            return
        outlets = self._outlets[dialect]
        del outlets[outlet]
        if not outlets:
            del self._outlets[dialect]

    def broadcast(self, messages: Sequence[StreamMessage]) -> None:
        """Write messages to every client, in order; left out is what a dialect cannot express."""
        for dialect, outlets in self._outlets.items():
            texts = [encoded for message in messages if (encoded := _encode(message, dialect))]
            self._counters["inexpressible"] += len(messages) - len(texts)
            if not texts:
                continue
            framed = next(iter(outlets)).link.frame(texts)
            for outlet in outlets:
                outlet.link.send_framed(framed, len(texts))


def _encode(message: StreamMessage, dialect: Dialect) -> bytes | None:
    broadcast = BroadcastMessage(message=message, layout=dialect.layout)
    return encode(broadcast, dialect.control_version, dialect.message_version)
