"""Records what Streamr's clients published and were sent, and checks the log against it.

Each message is signed, so that its text is known before it is sent: it is what stands in the log,
and what every subscriber gets, to the last byte. What others have pushed comes to Streamr's clients
as messages of the node, which tell the index and hold the bytes in base64.
"""

import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rillnode.actors.streamr.stored import NODE_CHAIN
from rillnode.codecs.streamr.message import STORED_VERSION, encode_message
from rillnode.codecs.streamr.stream_message import MessageId, StreamMessage
from rillnode.node.simulated.history import History, Log, LogContents, Push
from rillnode.node.simulated.world import Pipe

PUBLISHER: Final = "streamr"
"""Begins the names under which its clients push: each of their messages is sent once, unless they
say otherwise, however often they connect."""

STREAMR_PORT: Final = 8_890

MADE_PREFIX: Final = "made-"
"""Begins the names of streams that its clients make."""


class Place(NamedTuple):
    """A message's place in time; resends are in this order."""

    timestamp: int
    sequence: int


def text_of(message: StreamMessage) -> bytes:
    """A message as a log holds it."""
    return encode_message(message, STORED_VERSION).encode()


def place_of(name: MessageId) -> Place:
    """Where a message stands in time."""
    return Place(name.timestamp, name.sequence)


@dataclass(slots=True)
class StreamrMessages:
    """Everything that Streamr's clients of one run have published, and were told.

    Attributes:
        told: texts that a log must hold in the end, and the rule that is broken else.
        users: the addresses of clients, by the log that they use.
        harmed: hosts of clients on whose plain connections bytes were harmed: nothing but a
            signature keeps what comes there from being another thing than what was sent.
    """

    history: History
    told: dict[Log, dict[bytes, str]] = field(default_factory=dict[Log, dict[bytes, str]])
    users: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    harmed: dict[str, None] = field(default_factory=dict[str, None])
    _names: dict[Log, dict[bytes, MessageId]] = field(
        default_factory=dict[Log, dict[bytes, MessageId]]
    )

    def names(self, log: Log) -> dict[bytes, MessageId]:
        """The names of what was published to a log, or to one that shares what it holds."""
        return self._names.setdefault(("", log[1]) if self.history.shared else log, {})

    def harmed_on(self, pipe: Pipe) -> None:
        """Bytes of a connection were harmed."""
        if pipe.port == STREAMR_PORT:
            self.harmed[pipe.source if pipe.dialling else pipe.target] = None

    def is_altered(self, log: Log, payload: bytes) -> bool:
        """Whether a text differs from a published one by a bit, where bits were flipped.

        Streamr's signatures do not cover everything: not what says how a message is encrypted, nor
        the case of an address.
        """
        whole = int.from_bytes(payload)
        return bool(self.harmed) and any(
            len(text) == len(payload) and (int.from_bytes(text) ^ whole).bit_count() == 1
            for text in self.names(log)
        )

    def published(self, life: str, number: int, log: Log, message: StreamMessage) -> Push:
        """Somebody publishes a message."""
        text = text_of(message)
        self.names(log)[text] = message.id
        push = Push(f"{PUBLISHER} {life}", number, log, self.history.now(), attempts=1)
        self.history.pushed({text: push})
        return push

    def publishers(self, log: str) -> list[str]:
        """Whose messages come to a node's log."""
        shared = self.history.shared
        return [one for at, users in self.users.items() if shared or at == log for one in users]

    def must_stay(self, log: Log, text: bytes, rule: str) -> None:
        """Somebody was told that a log holds a message, or was sent it."""
        self.told.setdefault(log, {}).setdefault(text, rule)

    def index_of(self, who: str, log: Log, message: StreamMessage) -> int | None:
        """The index that a message of a node tells, once it is noted that somebody saw it there.

        Returns:
            None where it is no message of a node.
        """
        if message.id.chain_id != NODE_CHAIN:
            return None
        payload = base64.b64decode(json.loads(message.content)["data"])
        self.history.saw(who, log, [(message.id.sequence, payload)])
        return message.id.sequence

    def check(self, logs: LogContents) -> None:
        """Compare whole logs, read at the end, with what clients were told."""
        for log, entries in logs.items():
            if log[0] in self.history.lost:
                continue
            there = Counter(payload for _, payload in entries)
            for text, rule in self.told.get(log, {}).items():
                if not there[text]:
                    self.history.broken(rule, f"{log[0]}/{log[1]} lacks {short(text)}")
            self._check_order(log, entries)

    def _check_order(self, log: Log, entries: Sequence[tuple[int, bytes]]) -> None:
        """Messages of one chain stand in their order, but for what stands there again."""
        last: dict[str, Place] = {}
        seen: dict[bytes, None] = {}
        names = self.names(log)
        for index, payload in entries:
            name = names.get(payload)
            if name is None or payload in seen:
                continue
            seen[payload] = None
            place = place_of(name)
            if place <= last.get(name.chain_id, Place(-1, 0)):
                text = f"{log[0]}/{log[1]} {index}: {short(payload)} is older than one before it"
                self.history.broken("producer-order", text)
            last[name.chain_id] = place


def short(text: bytes) -> str:
    """So much of a message that people know which one it is."""
    return text[:120].decode(errors="backslashreplace")
