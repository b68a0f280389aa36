"""Order within message chains: an early message waits for its predecessor.

A chain is what one publisher sends under one chain id. Its first message is taken as it is; the
next is the one whose predecessor is the last delivered, or a newer one that names none. Others
wait, sorted. A gap that stays open is asked for, a few times, and then skipped.

Time is an argument, in seconds of any clock that never goes back.

Source: streamr-client-protocol 8.0.5, OrderedMsgChain.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct

from rillnode.codecs.streamr.duplicates import Number
from rillnode.codecs.streamr.limits import (
    STREAMR_CHAINS_MAX,
    STREAMR_UNORDERED_BYTES_MAX,
    STREAMR_UNORDERED_MESSAGES_MAX,
)
from rillnode.codecs.streamr.stream_message import StreamMessage

PROPAGATION_SECONDS: Final = 5.0
"""How long a missing message may still be under way before it is asked for."""

RESEND_SECONDS: Final = 5.0
"""How long an answer may take before the gap is asked for again."""

REQUESTS_MAX: Final = 10


class Ordered(Struct, frozen=True, kw_only=True):
    """The next message of its chain."""

    message: StreamMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFound:
    """Messages are missing: ask for the range, both ends included.

    Attributes:
        first: one sequence after the last delivered; there need not be such a message.
        last: the predecessor of the earliest that waits.
    """

    publisher_id: str
    chain_id: str
    first: Number
    last: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class GapSkipped:
    """Messages were not found; what waited behind them follows."""

    publisher_id: str
    chain_id: str
    first: Number
    last: Number
    requests: int


OrderingEvent = Ordered | GapFound | GapSkipped

ChainName = tuple[str, str]
"""Publisher in lower case, chain id."""


class OrderedChain:
    """Puts the messages of one chain in order, each at most once.

    Args:
        propagation_seconds: before a gap is asked for.
        resend_seconds: before it is asked for again.
        requests_max: how often; 0 skips gaps at once.
        messages_max: how many may wait; a gap is skipped when more do.
        bytes_max: how many characters of content may wait; likewise.
    """

    def __init__(
        self,
        *,
        propagation_seconds: float = PROPAGATION_SECONDS,
        resend_seconds: float = RESEND_SECONDS,
        requests_max: int = REQUESTS_MAX,
        messages_max: int = STREAMR_UNORDERED_MESSAGES_MAX,
        bytes_max: int = STREAMR_UNORDERED_BYTES_MAX,
    ) -> None:
        self._propagation_seconds = propagation_seconds
        self._resend_seconds = resend_seconds
        self._requests_max = requests_max
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._last: Number | None = None
        self._numbers: list[Number] = []  # a heap of what waits
        self._waiting: dict[Number, StreamMessage] = {}
        self._waiting_bytes = 0
        self._requests = 0
        self._deadline: float | None = None

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do; None while nothing is missing."""
        return self._deadline

    @property
    def waiting(self) -> int:
        """How many messages wait for an earlier one."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """How many characters of content wait."""
        return self._waiting_bytes

    def has(self, message: StreamMessage) -> bool:
        """Whether a message waits, or is not newer than the last delivered."""
        number = number_of(message)
        return number in self._waiting or (self._last is not None and number <= self._last)

    def add(self, message: StreamMessage, now: float) -> list[OrderingEvent]:
        """Take a message as it came; what is not newer than the last delivered is dropped."""
        if self.has(message):
            return []
        number = number_of(message)
        if self._is_next(message):
            self._last = number
            events: list[OrderingEvent] = [Ordered(message=message)]
        else:
            events = []
            self._waiting[number] = message
            heappush(self._numbers, number)
            self._waiting_bytes += len(message.content)
        events += self._release(now)
        while self._waiting and self._is_overfull():
            events += self._skip(now)
        return events

    def flush(self) -> list[OrderingEvent]:
        """Skip all gaps: deliver everything that waits."""
        events: list[OrderingEvent] = []
        while self._waiting:
            events += self._skip(0.0)
        return events

    def poll(self, now: float) -> list[OrderingEvent]:
        """Ask for a gap whose time has come, or skip it."""
        if self._deadline is None or now < self._deadline:
            return []
        if self._requests >= self._requests_max:
            return self._skip(now)
        self._requests += 1
        self._deadline = now + self._resend_seconds
        message, first, last = self._gap()
        return [
            GapFound(
                publisher_id=message.id.publisher_id,
                chain_id=message.id.chain_id,
                first=first,
                last=last,
            )
        ]

    def _is_next(self, message: StreamMessage) -> bool:
        """Whether nothing is missing before a message that is newer than the last delivered."""
        if self._last is None or message.previous is None:
            return True
        # A predecessor before the last delivered, or not before the message, says nothing.
        return not self._last < reference_of(message) < number_of(message)

    def _is_overfull(self) -> bool:
        return (
            self._requests_max == 0
            or len(self._waiting) > self._messages_max
            or self._waiting_bytes > self._bytes_max
        )

    def _release(self, now: float) -> Iterator[OrderingEvent]:
        """Deliver what no longer has to wait; start or stop the gap's timer."""
        while self._numbers:
            message = self._waiting[self._numbers[0]]
            is_stale = self._last is not None and self._numbers[0] <= self._last
            if not is_stale and not self._is_next(message):
                if self._deadline is None:
                    self._deadline = now + self._propagation_seconds
                return
            number = heappop(self._numbers)
            del self._waiting[number]
            self._waiting_bytes -= len(message.content)
            self._deadline, self._requests = None, 0
            if not is_stale:
                self._last = number
                yield Ordered(message=message)
        self._deadline, self._requests = None, 0

    def _gap(self) -> tuple[StreamMessage, Number, Number]:
        """The earliest message that waits, and the range that it waits for."""
        message = self._waiting[self._numbers[0]]
        assert self._last is not None
        timestamp, sequence = self._last
        return message, (timestamp, sequence + 1), reference_of(message)

    def _skip(self, now: float) -> list[OrderingEvent]:
        message, first, last = self._gap()
        skipped = GapSkipped(
            publisher_id=message.id.publisher_id,
            chain_id=message.id.chain_id,
            first=first,
            last=last,
            requests=self._requests,
        )
        self._last = last
        return [skipped, *self._release(now)]


class OrderedChains:
    """Puts the messages of one stream partition in order, each chain by itself.

    Publishers are compared without case. Beyond `chains_max` the longest unused chain is flushed
    and forgotten; when too much waits in all chains together, the oldest gaps are skipped.

    Args:
        requests_max: how often a gap is asked for; 0 skips gaps at once.
        chains_max: how many chains are remembered.
        messages_max: how many messages may wait.
        bytes_max: how many characters of content may wait.
    """

    def __init__(
        self,
        *,
        requests_max: int = REQUESTS_MAX,
        chains_max: int = STREAMR_CHAINS_MAX,
        messages_max: int = STREAMR_UNORDERED_MESSAGES_MAX,
        bytes_max: int = STREAMR_UNORDERED_BYTES_MAX,
    ) -> None:
        self._requests_max = requests_max
        self._chains_max = chains_max
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._chains: OrderedDict[ChainName, OrderedChain] = OrderedDict()
        self._with_gaps: dict[ChainName, OrderedChain] = {}  # the oldest gap first
        self._waiting = 0
        self._waiting_bytes = 0

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do; None while nothing is missing."""
        deadlines = (chain.deadline for chain in self._with_gaps.values())
        return min((d for d in deadlines if d is not None), default=None)

    def has(self, message: StreamMessage) -> bool:
        """Whether `add` would drop a message."""
        chain = self._chains.get(chain_of(message))
        return chain is not None and chain.has(message)

    def add(self, message: StreamMessage, now: float) -> list[OrderingEvent]:
        """Take a message as it came."""
        name = chain_of(message)
        chain = self._chains.get(name)
        events: list[OrderingEvent] = []
        if chain is None:
            chain = self._chains[name] = OrderedChain(requests_max=self._requests_max)
            if len(self._chains) > self._chains_max:
                forgotten, unused = self._chains.popitem(last=False)
                events += self._run(forgotten, unused, unused.flush)
        self._chains.move_to_end(name)
        events += self._run(name, chain, partial(chain.add, message, now))
        while self._waiting > self._messages_max or self._waiting_bytes > self._bytes_max:
            oldest, waiting = next(iter(self._with_gaps.items()))
            events += self._run(oldest, waiting, waiting.flush)
        return events

    def poll(self, now: float) -> list[OrderingEvent]:
        """Ask for the gaps whose time has come, or skip them."""
        events: list[OrderingEvent] = []
        for name, chain in list(self._with_gaps.items()):
            events += self._run(name, chain, partial(chain.poll, now))
        return events

    def _run(
        self, name: ChainName, chain: OrderedChain, action: Callable[[], list[OrderingEvent]]
    ) -> list[OrderingEvent]:
        """Do something with a chain, and keep account of what waits in it."""
        waiting, waiting_bytes = chain.waiting, chain.waiting_bytes
        events = action()
        self._waiting += chain.waiting - waiting
        self._waiting_bytes += chain.waiting_bytes - waiting_bytes
        if chain.deadline is None:
            self._with_gaps.pop(name, None)
        else:
            self._with_gaps.setdefault(name, chain)
        return events


def chain_of(message: StreamMessage) -> ChainName:
    """The message's chain."""
    return message.id.publisher_id.lower(), message.id.chain_id


def number_of(message: StreamMessage) -> Number:
    """Where the message stands in its chain."""
    return message.id.timestamp, message.id.sequence or 0


def reference_of(message: StreamMessage) -> Number:
    """Where its predecessor stands; the message names one. No sequence says 0."""
    assert message.previous is not None
    return message.previous.timestamp, message.previous.sequence or 0
