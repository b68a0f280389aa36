"""Takes in one stream partition's messages: each once, and each chain in its order.

Pure: time is an argument. What was taken is remembered by each chain's last number, which whoever
uses this keeps beside the log and gives back at the next start.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.duplicates import ChainDuplicates, Number
from rillnode.codecs.streamr.limits import (
    STREAMR_CHAINS_MAX,
    STREAMR_UNORDERED_BYTES_MAX,
    STREAMR_UNORDERED_MESSAGES_MAX,
)
from rillnode.codecs.streamr.ordering import ChainName, OrderedChains, OrderingEvent
from rillnode.codecs.streamr.stream_message import MessageId, StreamMessage

HOLD_SECONDS: Final = 1.0
"""How long the messages of a chain that is new here wait for those before them, which may take a
slower way. Own choice: several times what the slowest ways between cities differ by."""


@dataclass(slots=True)
class _Held:
    """What has come of a chain that is new here."""

    until: float
    messages: dict[Number, StreamMessage] = field(default_factory=dict[Number, StreamMessage])


class Intake:
    """Duplicate detection and order of one stream partition's chains.

    A chain that is new here begins with its first message. Where only later ones come, it begins
    with the earliest of those that come within `HOLD_SECONDS`.

    Attributes:
        last: the last number taken of each chain, the longest unused first.
    """

    def __init__(self) -> None:
        self._duplicates = ChainDuplicates()
        self._ordered = OrderedChains()
        self._known: OrderedDict[ChainName, None] = OrderedDict()
        self._held: dict[ChainName, _Held] = {}  # the longest held first
        self._held_messages = 0
        self._held_bytes = 0
        self.last: OrderedDict[ChainName, Number] = OrderedDict()

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do."""
        found = (self._ordered.deadline, *(held.until for held in self._held.values()))
        return min((one for one in found if one is not None), default=None)

    def restore(self, chain: ChainName, number: Number) -> None:
        """Take up a chain after its last number, as if all before had come."""
        publisher_id, chain_id = chain
        self._know(chain)
        self._duplicates.check(publisher_id, chain_id, None, number)
        name = MessageId("", 0, *number, publisher_id, chain_id)
        self._ordered.add(StreamMessage(id=name, content=""), 0.0)
        self.last[chain] = number

    def begin(self, message: StreamMessage, now: float) -> Sequence[OrderingEvent]:
        """Let a message's chain begin with it, if it is new here: nothing before it will come."""
        chain, _ = _names(message)
        if chain in self._held:
            return self._release(chain, now)
        self._know(chain)
        return ()

    def is_fresh(self, message: StreamMessage) -> bool:
        """Whether a message has not been here: then it goes on to others.

        Raises:
            CodecError: it is numbered wrongly.
        """
        chain, number = _names(message)
        held = self._held.get(chain)
        if held is not None:
            return number not in held.messages
        if message.previous is not None and chain not in self._known:
            return True
        return self._check(message)

    def add(self, message: StreamMessage, now: float) -> Sequence[OrderingEvent]:
        """Put a message in its place; what may be appended now, and what is missing."""
        chain, number = _names(message)
        held = self._held.get(chain)
        if held is None:
            if message.previous is None or chain in self._known:
                self._know(chain)
                return self._ordered.add(message, now)
            held = self._held[chain] = _Held(now + HOLD_SECONDS)
        if number not in held.messages:
            held.messages[number] = message
            self._held_messages += 1
            self._held_bytes += len(message.content)
        events: list[OrderingEvent] = []
        if message.previous is None:
            events += self._release(chain, now)
        while (
            self._held_messages > STREAMR_UNORDERED_MESSAGES_MAX
            or self._held_bytes > STREAMR_UNORDERED_BYTES_MAX
        ):
            events += self._release(next(iter(self._held)), now)
        return events

    def poll(self, now: float) -> Sequence[OrderingEvent]:
        """What time brings: chains that begin, gaps to ask for, or to skip."""
        events: list[OrderingEvent] = []
        for chain in [chain for chain, held in self._held.items() if held.until <= now]:
            events += self._release(chain, now)
        return [*events, *self._ordered.poll(now)]

    def _release(self, chain: ChainName, now: float) -> list[OrderingEvent]:
        """Let a chain begin with the earliest that has come of it."""
        held = self._held.pop(chain)
        self._know(chain)
        events: list[OrderingEvent] = []
        for _, message in sorted(held.messages.items(), key=lambda item: item[0]):
            self._held_messages -= 1
            self._held_bytes -= len(message.content)
            with suppress(CodecError):  # it has been handed on; what it says of others is void
                self._check(message)
            events += self._ordered.add(message, now)
        return events

    def _check(self, message: StreamMessage) -> bool:
        (publisher_id, chain_id), number = _names(message)
        previous = message.previous
        before = None if previous is None else (previous.timestamp, previous.sequence or 0)
        return self._duplicates.check(publisher_id, chain_id, before, number)

    def _know(self, chain: ChainName) -> None:
        self._known[chain] = None
        self._known.move_to_end(chain)
        if len(self._known) > STREAMR_CHAINS_MAX:
            self._known.popitem(last=False)

    def took(self, message: StreamMessage) -> ChainName | None:
        """A message is in the log; returns a chain that is forgotten for it, if one is."""
        chain, number = _names(message)
        self.last[chain] = max(self.last.get(chain, number), number)
        self.last.move_to_end(chain)
        if len(self.last) > STREAMR_CHAINS_MAX:
            return self.last.popitem(last=False)[0]
        return None


def _names(message: StreamMessage) -> tuple[ChainName, Number]:
    name = message.id
    return (name.publisher_id.lower(), name.chain_id), (name.timestamp, name.sequence)
