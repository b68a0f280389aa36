"""What happened in a run: its events, their hash, and the rules that were broken.

The hash covers decoded events only (who did what when, and how large it was), never sealed bytes,
and is the same in every run of a seed.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from rillnode.node.simulation.clock import EPOCH_MS
from rillnode.node.simulation.pipes import Pipe

EVENTS_KEPT_MAX: Final = 20_000
"""Events kept for the report; all are hashed."""

DEEDS_HASHED: Final = 256
"""Events that are hashed together."""

VIOLATIONS_KEPT_MAX: Final = 100

Log = tuple[str, int]
"""A stream's name and a partition."""


def log_of(node: str) -> str:
    """What the log of a node's stream is called: nodes that share a stream have each their own."""
    return f"events-{node}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken.

    Attributes:
        rule: short name of the rule.
        at: virtual seconds.
        text: what happened, for people.
    """

    rule: str
    at: float
    text: str


class Event(NamedTuple):
    """Something that happened, for the time line."""

    at: float
    who: str
    what: str
    text: str


@dataclass(slots=True)
class Push:
    """One entry that a producer pushes, until it is confirmed.

    Attributes:
        producer: who.
        number: its place among the producer's entries.
        log: where it goes.
        pushed_at: when it was first tried.
        attempts: how often the application tried; the client may have sent each again by itself.
        index: where it stands, once confirmed.
        confirmed_at: when the producer knew.
    """

    producer: str
    number: int
    log: Log
    pushed_at: float
    attempts: int = 0
    index: int | None = None
    confirmed_at: float = 0.0


@dataclass
class History:
    """Everything that clients did and saw in one run.

    Attributes:
        now: virtual time.
        pushes: by payload.
        logs: what anybody has ever seen at each index.
        lost: streams whose disk was lost: nothing is promised of them.
        first_seen: when each entry reached each follower, by payload and follower.
        bytes_received: by host.
        shared: whether all nodes' logs hold each other's entries.
        clocks_wrong: whether a clock was ever set wrongly.
    """

    now: Callable[[], float]
    pushes: dict[bytes, Push] = field(default_factory=dict[bytes, Push])
    logs: dict[Log, dict[int, bytes]] = field(default_factory=dict[Log, dict[int, bytes]])
    lost: dict[str, None] = field(default_factory=dict[str, None])
    first_seen: dict[bytes, dict[str, float]] = field(default_factory=dict[bytes, dict[str, float]])
    bytes_received: Counter[str] = field(default_factory=Counter[str])
    shared: bool = False
    clocks_wrong: bool = False
    violations: list[Violation] = field(default_factory=list[Violation])
    events: list[Event] = field(default_factory=list[Event])
    events_count: int = 0

    def __post_init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._deeds: list[str] = []
        self._ends: dict[Log, int] = {}

    # Deeds are hashed under these words; to change one changes every trace hash.

    def note(self, who: str, what: str, text: str = "") -> None:
        """Note an event."""
        at = self.now()
        self.events_count += 1
        self._deed(f"{at:.9f} {who} {what} {text}\n")
        if len(self.events) < EVENTS_KEPT_MAX:
            self.events.append(Event(at, who, what, text))

    def _deed(self, line: str) -> None:
        """Have a line hashed, together with others: that is cheaper."""
        self._deeds.append(line)
        if len(self._deeds) >= DEEDS_HASHED:
            self._hash_deeds()

    def _hash_deeds(self) -> None:
        self._hash.update("".join(self._deeds).encode())
        self._deeds.clear()

    @property
    def trace_hash(self) -> str:
        """Stands for all events so far, and their order."""
        self._hash_deeds()
        return self._hash.hexdigest()

    def broken(self, rule: str, text: str) -> None:
        """Note that a rule was broken."""
        self.note("checker", rule, text)
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(Violation(rule, self.now(), text))

    # Producers -------------------------------------------------------------------------------

    def pushed(self, payload: bytes, push: Push) -> None:
        """A producer begins to push an entry."""
        self.pushes[payload] = push
        self.note(push.producer, "push", f"{push.log[0]}/{push.log[1]} {push.number}")

    def confirmed(self, payload: bytes, index: int) -> None:
        """A producer was told that its entry is durable, at an index."""
        push = self.pushes[payload]
        push.index, push.confirmed_at = index, self.now()
        self.note(push.producer, "confirm", f"{push.log[0]}/{push.log[1]} {push.number} {index}")
        self.saw(push.producer, push.log, index, payload)

    def confirmed_end(self, log: Log) -> int:
        """The index after the last that anybody has seen."""
        return self._ends.get(log, 0)

    # Readers ---------------------------------------------------------------------------------

    def saw(self, who: str, log: Log, index: int, payload: bytes) -> None:
        """Somebody saw an entry: nobody may ever have seen another one there."""
        if log[0] in self.lost:
            return
        known = self.logs.setdefault(log, {}).setdefault(index, payload)
        if index >= self._ends.get(log, 0):
            self._ends[log] = index + 1
        if known != payload:
            self.broken(
                "index-reassigned",
                f"{log[0]}/{log[1]} {index}: {who} saw {_short(payload)}, "
                f"where {_short(known)} was before",
            )
        push = self.pushes.get(payload)
        if push is None:
            self.broken("unknown-entry", f"{log[0]}/{log[1]} {index}: {_short(payload)}")
        elif push.log[1] != log[1] or not (self.shared or push.log[0] == log[0]):
            text = f"{log[0]}/{log[1]} {index}: {_short(payload)} was pushed to"
            self.broken("wrong-log", f"{text} {push.log[0]}/{push.log[1]}")

    def read(self, who: str, log: Log, index: int, payload: bytes, received_at: int) -> None:
        """A follower got an entry, which says when it arrived, in milliseconds since 1970."""
        self.saw(who, log, index, payload)
        push = self.pushes.get(payload)
        since, now = self.now() if push is None else push.pushed_at, self.now()
        if not (self.clocks_wrong or since - 0.001 <= (received_at - EPOCH_MS) / 1_000 <= now):
            text = f"{log[0]}/{log[1]} {index}: pushed at {since:.3f}, seen at {now:.3f}"
            self.broken("received-at", f"{text}, said to have arrived at {received_at}")
        self.first_seen.setdefault(payload, {}).setdefault(who, self.now())

    # The network -----------------------------------------------------------------------------

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """A process has sent bytes."""

    def delivered(self, pipe: Pipe, data: bytes) -> None:
        """Bytes have arrived."""
        self.bytes_received[pipe.target] += len(data)
        self.events_count += 1
        at = self.now()
        self._deed(f"{at:.9f} {pipe.source}>{pipe.target} {len(data)}\n")


def _short(payload: bytes) -> str:
    return payload[:48].decode(errors="backslashreplace")
