"""The room of one link: nothing is read for its peer before the peer can take it.

Whoever reads a log for a peer reads through the room of the peer's link, be it asked (a pull, a
range for a table) or unasked (a subscription, a resend). What all of them read counts together,
from before it is read until it is on the link. While that is much they wait, and take turns in the
order in which they came: so a thousand readers of one link take no more memory than one, and a
peer that reads is never cut off for what others read for it. To its reader, a read that waits is
one that the store is slow to answer.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.outside import Outside
from rillnode.actors.log import Locate, LogStore, Read
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES

READING_HIGH_BYTES: Final = 4_194_304
"""What reads under way may bring, above which no other begins."""

LOOK_SECONDS: Final = 0.02
LOOK_SECONDS_MAX: Final = 1.0
LOOK_GROWTH: Final = 1.25
"""How often it is looked at whether reads that wait may go on, where no link says so: after longer
each time that none could."""

LOOK_READS: Final = 64
"""Reads that go on in one turn: what they bring is handled before others do."""


LOCATE_BYTES: Final = 65_536
"""What the look-up of a time counts as: it brings an index, but reads some blocks. Own choice."""

AnyRead = Read | Locate

CallLater = Callable[[float, Callable[[], object]], TimerHandle]


class Backlog(Protocol):
    """A link, or what stands for one."""

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the peer has not taken yet."""
        ...


class Room(Outside):
    """The bytes under way to one link; all calls on the loop's thread.

    It stands where the asker of a read would, so that what it has reserved is given back with the
    answer of the store, whatever has become of the asker.

    Args:
        store: what is read.
        link: the link, or what else takes what is read.
        call_later: a clock's, by which it is looked again.
        connection: the actor that what is posted to the link waits for, where there is one.

    Attributes:
        reading_bytes: the most that reads under way can bring.
        read_bytes: was read, or posted to the link's connection unasked, and is not known to be on
            the link; `flushed` says that it is.
        kept_bytes: was read by those that send it bit by bit, and wait to be sent.
    """

    def __init__(
        self,
        store: LogStore,
        link: Backlog,
        call_later: CallLater,
        connection: Cell | None = None,
    ) -> None:
        super().__init__("room")
        self._store = store
        self._link = link
        self._call_later = call_later
        self._connection = connection
        self._askers: dict[AnyRead, Cell] = {}
        # There are as many rooms as links, and an empty queue takes more than all the rest.
        self._waiting: deque[AnyRead] | None = None
        self._timer: TimerHandle | None = None
        self._look_seconds = LOOK_SECONDS
        self._closed = False
        self.reading_bytes = self.read_bytes = self.kept_bytes = 0

    @property
    def is_free(self) -> bool:
        """Whether the peer can take more than what is under way to it."""
        under_way = self.read_bytes + self.kept_bytes + self._link.buffered_bytes
        return under_way <= LINK_BUFFER_HIGH_BYTES and self.reading_bytes <= READING_HIGH_BYTES

    @property
    def takes_live(self) -> bool:
        """Whether the peer takes what others get as well: what only it has asked for may wait."""
        posted = 0 if self._is_idle else self.read_bytes
        under_way = posted + self._link.buffered_bytes
        return under_way <= LINK_BUFFER_HIGH_BYTES and self.reading_bytes <= READING_HIGH_BYTES

    @property
    def waiting(self) -> int:
        """How many reads wait."""
        return len(self._waiting or ())

    @property
    def _is_idle(self) -> bool:
        """Whether nothing that was posted to the link waits."""
        return self._connection is None or not len(self._connection.mailbox)

    def read(self, operation: AnyRead) -> bool:
        """Read from the store, once there is room; else as the store's `read` does.

        After the link's end it fails at once: `link.closed`.
        """
        if self._closed:
            operation.error = _unwanted()
            return True
        if self._waiting or not self.is_free:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(operation)
            self._look_later()
            return False
        return self.begin(operation)

    def begin(self, operation: AnyRead) -> bool:
        """Read now, before those that wait: what others get as well waits for none of them."""
        self.reading_bytes += _bytes_max(operation)
        self._askers[operation] = operation.reply_to
        operation.reply_to = self
        if not self._store.read(operation):
            return False
        self._ended(operation)
        return True

    def keep(self, operation: Read, size: int) -> None:
        """An asker keeps what a read has brought, `size` bytes, to send it bit by bit."""
        self.read_bytes = max(0, self.read_bytes - _bytes_of(operation))
        self.kept_bytes += size

    def post(self, size: int) -> None:
        """Somebody posts so much to the link's connection."""
        self.read_bytes += size

    def sent(self, size: int) -> None:
        """An asker has sent what it kept, or given it up."""
        self.kept_bytes -= size
        if self._waiting:
            self.look()

    def flushed(self, size: int, *, all_of_it: bool) -> None:
        """So much went to the link; `all_of_it`: nothing that was posted to it waits."""
        self.read_bytes = 0 if all_of_it else max(0, self.read_bytes - size)
        if self._waiting:
            self.look()

    def look(self) -> None:
        """Let those go on for which there is room, the longest waiting first."""
        waiting = self._waiting
        for _ in range(LOOK_READS):
            if not (waiting and self.is_free):
                break
            operation = waiting.popleft()
            if operation.reply_to.exited:
                _fail(operation)
                continue
            self._look_seconds = LOOK_SECONDS
            if self.begin(operation):
                _hand_over(operation)
        self._look_later()

    def close(self) -> None:
        """The link is gone: what waits fails, and what comes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            _fail(self._waiting.popleft())

    def deliver(self, message: Any) -> bool:
        """Take the store's answer, and hand it to who has asked."""
        asker = self._ended(message)
        if asker.exited:
            self.read_bytes -= _bytes_of(message)
        _hand_over(message)
        if self._waiting:
            self.look()
        return True

    def _ended(self, operation: AnyRead) -> Cell:
        self.reading_bytes -= _bytes_max(operation)
        self.read_bytes += _bytes_of(operation)
        asker = operation.reply_to = self._askers.pop(operation)
        return asker

    def _look_later(self) -> None:
        if self._waiting and self._timer is None and not self._closed:
            self._timer = self._call_later(self._look_seconds, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._is_idle:
            self.read_bytes = 0  # an answer was lost on its way, as at the end of a channel
        self._look_seconds = min(LOOK_GROWTH * self._look_seconds, LOOK_SECONDS_MAX)
        self.look()


def _hand_over(operation: AnyRead) -> None:
    """Let the asker go on with what is complete."""
    asker: Cell = operation.reply_to
    asker.base.post(asker, operation, operation.then)


def _fail(operation: AnyRead) -> None:
    """What waited is not read; whoever asked for it is told."""
    operation.error = _unwanted()
    if operation.then is not None or not operation.reply_to.exited:
        _hand_over(operation)


def _bytes_of(operation: AnyRead) -> int:
    if isinstance(operation, Locate):
        return 0
    return sum([len(block.value) for block in operation.blocks])


def _bytes_max(operation: AnyRead) -> int:
    return LOCATE_BYTES if isinstance(operation, Locate) else operation.bytes_max


def _unwanted() -> StoreError:
    return StoreError("link.closed", "The link that this was to be read for is gone")
