"""Records a run: its events, their hash, and the rules that were broken.

The hash covers decoded events only (who did what when, and how large it was), never sealed bytes,
and is the same in every run of a seed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

import msgspec

from rillnode.codecs.entries import Entry
from rillnode.node.simulated.world import Pipe

EPOCH_MS: Final = 1_767_225_600_000
"""Wall time when a run begins: 2026-01-01T00:00:00Z."""

EVENTS_KEPT_MAX: Final = 20_000
"""Events kept for the report; all are hashed."""

DEEDS_HASHED: Final = 1_024
"""Events that are hashed together: that is cheaper."""

VIOLATIONS_KEPT_MAX: Final = 100

Log = tuple[str, int]
"""A stream's name and a partition."""

Entries = Iterable[tuple[int, bytes]]
"""Indexes and what stands there."""

LogContents = Mapping[Log, Sequence[tuple[int, bytes]]]
"""Whole logs, each entry with its index."""


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
    """Something that happened, for the time line.

    Attributes:
        at: seconds of virtual time since the run began.
        who: whom it befell.
        what: of which kind it is.
        text: what happened.
    """

    at: float
    who: str
    what: str
    text: str


class Push(msgspec.Struct, gc=False):
    """One entry that a producer pushes, until it is confirmed; a Struct, as there are many.

    Attributes:
        producer: who.
        number: its place among the producer's entries.
        log: where it goes.
        pushed_at: when it was first tried.
        attempts: how often the application tried; the client may have sent each again by itself.
        numbered: who has numbered it: nobody, so that it may stand as often as it was sent; its
            client, so that it stands at most once for each attempt; or the application, by the name
            of a producer, so that it stands once.
        index: where it stands, once confirmed.
        confirmed_at: when the producer knew.
    """

    producer: str
    number: int
    log: Log
    pushed_at: float
    attempts: int = 0
    numbered: Literal["", "client", "name"] = ""
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
        first_seen: when each entry reached each follower, by follower and payload.
        bytes_received: by host.
        excuses: who may know how a log has come to hold what nobody has pushed.
        shared: whether all nodes' logs hold each other's entries.
        nodes: which node each client talks to, where all keep their streams in one log: what a node
            shows may be behind what another one has shown.
        clocks_wrong: whether a clock was ever set wrongly.
        failed: how many messages the actors of each node were made to fail at.
    """

    now: Callable[[], float]
    pushes: dict[bytes, Push] = field(default_factory=dict[bytes, Push])
    logs: dict[Log, dict[int, bytes]] = field(default_factory=dict[Log, dict[int, bytes]])
    lost: dict[str, None] = field(default_factory=dict[str, None])
    first_seen: dict[str, dict[bytes, float]] = field(default_factory=dict[str, dict[bytes, float]])
    bytes_received: Counter[str] = field(default_factory=Counter[str])
    excuses: list[Callable[[Log, bytes], bool]] = field(
        default_factory=list[Callable[[Log, bytes], bool]]
    )
    shared: bool = False
    nodes: dict[str, str] = field(default_factory=dict[str, str])
    clocks_wrong: bool = False
    failed: Counter[str] = field(default_factory=Counter[str])
    violations: list[Violation] = field(default_factory=list[Violation])
    events_count: int = 0

    def __post_init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._deeds: list[tuple[float, str, str, str | int]] = []
        self._kept: list[tuple[float, str, str, str]] = []
        self._ends: dict[Log, int] = {}
        self._ends_at: dict[tuple[str, Log], int] = {}

    # Deeds are hashed under these words; to change one changes every trace hash.

    def note(self, who: str, what: str, text: str = "") -> None:
        """Note an event."""
        deed = (self.now(), who, what, text)
        self._deed(deed)
        if len(self._kept) < EVENTS_KEPT_MAX:
            self._kept.append(deed)

    @property
    def events(self) -> list[Event]:
        """The events that are kept, the first ones."""
        return [Event(*deed) for deed in self._kept]

    def _deed(self, deed: tuple[float, str, str, str | int]) -> None:
        self.events_count += 1
        self._deeds.append(deed)
        if len(self._deeds) >= DEEDS_HASHED:
            self._hash.update(msgspec.msgpack.encode(self._deeds))
            self._deeds.clear()

    @property
    def trace_hash(self) -> str:
        """Stands for all events so far, and their order."""
        # What is hashed together is part of the hash, and who looks must not change it.
        found = self._hash.copy()
        found.update(msgspec.msgpack.encode(self._deeds))
        return found.hexdigest()

    def broken(self, rule: str, text: str) -> None:
        """Note that a rule was broken."""
        self.note("checker", rule, text)
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(Violation(rule, self.now(), text))

    # Producers -------------------------------------------------------------------------------

    def pushed(self, pushes: dict[bytes, Push]) -> None:
        """A producer begins to push entries of one log, by their payloads."""
        self.pushes.update(pushes)
        first = next(iter(pushes.values()))
        numbers = [push.number for push in pushes.values()]
        self.note(first.producer, "push", f"{first.log[0]}/{first.log[1]} {numbers}")

    def confirmed(self, payloads: Sequence[bytes], indexes: Sequence[int]) -> None:
        """A producer was told that entries of one log are durable, each at an index."""
        found, now = [self.pushes[payload] for payload in payloads], self.now()
        for push, index in zip(found, indexes, strict=True):
            push.index, push.confirmed_at = index, now
        first, numbers = found[0], [push.number for push in found]
        text = f"{first.log[0]}/{first.log[1]} {numbers} {indexes}"
        self.note(first.producer, "confirm", text)
        self._saw(first.producer, first.log, indexes, payloads)

    def confirmed_pushes(self) -> dict[Log, list[tuple[int, Push]]]:
        """What is confirmed, by log and in the order of pushing: each with its index."""
        found: dict[Log, list[tuple[int, Push]]] = {}
        for push in self.pushes.values():
            if push.index is not None:
                found.setdefault(push.log, []).append((push.index, push))
        return found

    def confirmed_end(self, log: Log) -> int:
        """The index after the last that anybody has seen."""
        return self._ends.get(log, 0)

    def end_for(self, who: str, log: Log) -> int:
        """The index after the last that a client must find, for its node has shown that."""
        node = self.nodes.get(who)
        return self.confirmed_end(log) if node is None else self._ends_at.get((node, log), 0)

    # Readers ---------------------------------------------------------------------------------

    def saw(self, who: str, log: Log, entries: Entries) -> None:
        """Somebody saw entries: nobody may ever have seen others there."""
        entries = tuple(entries)
        self._saw(who, log, [index for index, _ in entries], [payload for _, payload in entries])

    def _saw(self, who: str, log: Log, indexes: Sequence[int], payloads: Sequence[bytes]) -> None:
        if log[0] in self.lost:
            return
        if node := self.nodes.get(who.partition(".")[0]):
            place = (node, log)
            self._ends_at[place] = max(self._ends_at.get(place, 0), max(indexes, default=-1) + 1)
        known, pushes = self.logs.setdefault(log, {}), self.pushes
        before_all = list(map(known.get, indexes))
        if before_all == payloads:
            return  # they were looked at when they were seen for the first time
        self._ends[log] = max(self._ends.get(log, 0), max(indexes) + 1)
        logs = [push.log for push in map(pushes.get, payloads) if push is not None]
        if before_all.count(None) == len(set(indexes)) == logs.count(log) == len(payloads):
            known.update(zip(indexes, payloads, strict=True))
            return  # the usual way: all are new, and right
        for index, payload in zip(indexes, payloads, strict=True):
            before = known.setdefault(index, payload)
            if before != payload:
                self.broken(
                    "index-reassigned",
                    f"{log[0]}/{log[1]} {index}: {who} saw {_short(payload)}, "
                    f"where {_short(before)} was before",
                )
            push = pushes.get(payload)
            if push is None:
                if any(excuse(log, payload) for excuse in self.excuses):
                    continue
                self.broken("unknown-entry", f"{log[0]}/{log[1]} {index}: {_short(payload)}")
            elif push.log != log and not (self.shared and push.log[1] == log[1]):
                text = f"{log[0]}/{log[1]} {index}: {_short(payload)} was pushed to"
                self.broken("wrong-log", f"{text} {push.log[0]}/{push.log[1]}")

    def read(self, who: str, log: Log, entries: Sequence[Entry]) -> None:
        """A follower got entries, which say when they arrived, in milliseconds since 1970."""
        payloads = [entry.data for entry in entries]
        self._saw(who, log, [entry.index for entry in entries], payloads)
        now, seen = self.now(), self.first_seen.setdefault(who, {})
        seen.update(dict.fromkeys([one for one in payloads if one not in seen], now))
        pushed = [
            now if push is None else push.pushed_at for push in map(self.pushes.get, payloads)
        ]
        arrived = [entry.received_at for entry in entries]
        # The usual way: whatever was pushed last, the first to arrive came after it.
        if self.clocks_wrong or (
            max(pushed) <= seconds_of(min(arrived)) and seconds_of(max(arrived)) <= now
        ):
            return
        for entry, since in zip(entries, pushed, strict=True):
            if not since - 0.001 <= seconds_of(entry.received_at) <= now:
                text = f"{log[0]}/{log[1]} {entry.index}: pushed at {since:.3f}, seen at {now:.3f}"
                self.broken("received-at", f"{text}, said to have arrived at {entry.received_at}")

    # The network -----------------------------------------------------------------------------

    def delivered(self, pipe: Pipe, data: bytes) -> None:
        """Bytes have arrived."""
        size = len(data)
        self.bytes_received[pipe.target] += size
        self._deed((self.now(), pipe.source, pipe.target, size))


def seconds_of(arrived_at: int) -> float:
    """The virtual time of milliseconds since 1970."""
    return (arrived_at - EPOCH_MS) / 1_000


def _short(payload: bytes) -> str:
    return payload[:48].decode(errors="backslashreplace")
