"""Broadcasts: one message for many clients, encoded once for each dialect that they speak."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from rillnode.actors.streamr.outlet import Dialect, Outlet
from rillnode.actors.streamr.requests import UNDELIVERABLE
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.control_messages import BroadcastMessage
from rillnode.codecs.streamr.limits import STREAMR_BACKLOG_HIGH_BYTES
from rillnode.codecs.streamr.stream_message import MessageType, StreamMessage

_UNASKED_KEYS: Final = frozenset(
    (
        MessageType.GROUP_KEY_ANNOUNCE,
        MessageType.GROUP_KEY_RESET,
        MessageType.GROUP_KEY_ROTATE,
    )
)
"""Types by which publishers give keys that nobody has asked for."""


SLICE_MESSAGES: Final = 64
SLICE_BYTES: Final = 65_536
"""What is sent together, as one write for each client: what costs is the write, not what is in
it. The sockets get their turn in between to take what was written."""

WRITE_SECONDS: Final = 0.000_01
"""What a write to a client's socket takes, about."""

SLICE_CLIENTS: Final = 512
"""Clients written to in one turn: each costs a write, in the turn of the loop that follows. With
fewer, what is published meanwhile makes more and smaller broadcasts, and a thousand clients get a
third less. Own choice."""

_Unwritten = tuple[bytes, int, Iterator[Outlet]]
"""What a dialect's frames are, of how many messages, and who has not been written to yet."""


class Fanout:
    """The subscribers of one stream partition.

    A client is in it once, however often it subscribes. What is written to a client that reads
    slower than others waits in its link, whose limits close it; nobody else waits.

    Attributes:
        partition: stream and partition.
    """

    def __init__(self, counters: Counter[str], stream_id: str, partition: int) -> None:
        self.partition = (stream_id, partition)
        self._counters = counters
        self._dialects: dict[Outlet, Dialect] = {}
        self._outlets: dict[Dialect, dict[Outlet, None]] = {}
        self._unwritten: deque[_Unwritten] = deque()

    def __len__(self) -> int:
        return len(self._dialects)

    def __iter__(self) -> Iterator[Outlet]:
        return iter(tuple(self._dialects))

    @property
    def write_seconds(self) -> float:
        """How long it takes to write a broadcast to all of them, about."""
        return len(self._dialects) * WRITE_SECONDS

    @property
    def has_room(self) -> bool:
        """Whether any of them takes more now: what comes waits for the fastest."""
        return any(one.buffered_bytes <= STREAMR_BACKLOG_HIGH_BYTES for one in self._dialects)

    def add(self, outlet: Outlet) -> None:
        """Take a client in."""
        self._let_go(outlet)
        outlet.holders.add(self)
        self._dialects[outlet] = outlet.dialect
        self._outlets.setdefault(outlet.dialect, {})[outlet] = None

    def remove(self, outlet: Outlet) -> None:
        """Let a client go; harmless for one that is not there."""
        self._let_go(outlet)
        if not self._dialects:
            self._unwritten.clear()

    def _let_go(self, outlet: Outlet) -> None:
        dialect = self._dialects.pop(outlet, None)
        if dialect is None:
            return
        outlet.holders.discard(self)
        outlets = self._outlets[dialect]
        del outlets[outlet]
        if not outlets:
            del self._outlets[dialect]

    def dialect_changed(self, outlet: Outlet) -> None:
        """Write to a client in its new dialect from now on."""
        self.add(outlet)

    @property
    def is_behind(self) -> bool:
        """Whether a broadcast is not done yet: `go_on` is to be called in another turn."""
        return bool(self._unwritten)

    def broadcast(self, messages: Sequence[StreamMessage]) -> None:
        """Write messages to the first clients, in order; `go_on` writes them to the next ones.

        They come to whoever is a client now, and still is when its turn has come. Left out is what
        a dialect cannot express. Of two broadcasts the second begins when the first is done.
        """
        for dialect, outlets in self._outlets.items():
            texts = [encoded for message in messages if (encoded := _encode(message, dialect))]
            self._counters["inexpressible"] += len(messages) - len(texts)
            if texts:
                framed = next(iter(outlets)).link.frame(texts)
                self._unwritten.append((framed, len(texts), iter(tuple(outlets))))
        self.go_on()

    def go_on(self) -> None:
        """Write what was broadcast to the next `SLICE_CLIENTS`."""
        room = SLICE_CLIENTS
        while self._unwritten and room:
            framed, count, outlets = self._unwritten[0]
            before = room
            for outlet in islice(outlets, room):
                room -= 1
                if outlet in self._dialects:
                    outlet.link.send_framed(framed, count)
            if room == before:
                self._unwritten.popleft()

    def undeliverable(self, message: StreamMessage) -> RequestError | None:
        """What the publisher of a key message is told where not every client can be sent it.

        None of other messages: who asks for an old version has chosen to miss some. But without
        a key all that follows is lost.
        """
        if message.message_type not in _UNASKED_KEYS:
            return None
        found = self._outlets.items()
        count = sum(len(outlets) for dialect, outlets in found if _encode(message, dialect) is None)
        if not count:
            return None
        text = (
            f"Not sent to {count} of the subscribers, who read no form of this key message: give"
            " them the key in another way (released clients read Announce)"
        )
        return RequestError(UNDELIVERABLE, text)


class Audience(Fanout):
    """The subscribers of one log, which are there longer than an instance of the relay that fails.

    Attributes:
        log: the log.
        next: index of its first entry that is neither in `ready` nor was sent.
        ready: what is to be sent next, each message with the bytes of its entry.
        ready_bytes: all of those.
    """

    def __init__(self, counters: Counter[str], stream_id: str, partition: int) -> None:
        super().__init__(counters, stream_id, partition)
        self.log = 0
        self.next = 0
        self.ready: deque[tuple[StreamMessage, int]] = deque()
        self.ready_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether as much is ready as is sent together."""
        return len(self.ready) >= SLICE_MESSAGES or self.ready_bytes >= SLICE_BYTES

    def add_ready(self, message: StreamMessage, size: int) -> None:
        """The next message, and the bytes of its entry."""
        self.ready.append((message, size))
        self.ready_bytes += size

    def take_ready(self) -> tuple[list[StreamMessage], int]:
        """What is to be sent now, and its bytes; whatever becomes of it, it is not sent again."""
        ready, messages, taken = self.ready, list[StreamMessage](), 0
        while ready and len(messages) < SLICE_MESSAGES and taken < SLICE_BYTES:
            message, size = ready.popleft()
            messages.append(message)
            taken += size
        self.ready_bytes -= taken
        return messages, taken

    def drop_ready(self) -> None:
        """Nothing of what is ready is to be sent any more."""
        self.ready.clear()
        self.ready_bytes = 0


def _encode(message: StreamMessage, dialect: Dialect) -> bytes | None:
    return dialect.encode_carrier(BroadcastMessage, message)
