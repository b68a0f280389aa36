"""What was seen of queues and groups in one run, with which whoever is in them compares.

Only what must be so whatever is late is compared: a worker may be told late that a job is done, and
a job may wait for a worker whose link is slow while it is another's already.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rillnode.codecs.dead_letters import DeadLetter
from rillnode.node.simulated.history import Log
from rillnode.node.simulated.programs import Share

KEYED_PART: Final = 0.5
"""How many runs have queues that keep the order of keys."""

_Indexes = dict[Log, set[int]]


def is_keyed(share: Share) -> bool:
    """Whether entries of this run have keys, whose order workers keep."""
    return share.world.network.random("workers keep the order of keys").random() < KEYED_PART


@dataclass
class Jobs:
    """The queues: one of each stream.

    Attributes:
        given: which entries a worker had at all.
        rejecting: which of them somebody has tried to reject.
    """

    given: _Indexes = field(default_factory=_Indexes)
    rejecting: _Indexes = field(default_factory=_Indexes)

    def __post_init__(self) -> None:
        self._settled: dict[Log, dict[int, tuple[str, str]]] = {}
        self._got: dict[tuple[Log, bytes], list[tuple[float, int]]] = {}

    def give(self, log: Log, index: int, key: bytes | None, now: float) -> None:
        """A worker has an entry."""
        self.given.setdefault(log, set()).add(index)
        if key is not None:
            self._got.setdefault((log, key), []).append((now, index))

    def settle(
        self, who: str, word: str, log: Log, index: int, key: bytes | None, said_at: float
    ) -> Iterator[tuple[str, str]]:
        """A worker's last word on an entry was confirmed; what is wrong with that: rule and text.

        Args:
            who: the worker.
            word: what it said.
            log: the entry's.
            index: its place there.
            key: its key, where the order of keys is kept.
            said_at: when it said so: it had the entry then.
        """
        settled = self._settled.setdefault(log, {})
        before = settled.get(index)
        if before is not None:
            yield "job-again", f"{' '.join(before)}, then {who} {word}: {log[0]}/{log[1]} {index}"
        settled[index] = who, word
        if key is not None:
            for at, later in self._got[log, key]:
                if later > index and at < said_at:
                    text = f"{later} was given at {at:.3f}, when {index} was not settled"
                    yield "key-order", f"{log[0]}/{log[1]}: {text}"

    def compare(
        self, ends: Mapping[Log, int], letters: Sequence[DeadLetter], reason: str
    ) -> Iterator[tuple[str, str]]:
        """Nothing is open: see what has become of all entries; rules and texts.

        Args:
            ends: of the logs of one stream.
            letters: all that became of what was rejected.
            reason: that they must have.
        """
        dead = Counter((one.partition, one.index) for one in letters)
        if any(count > 1 for count in dead.values()):
            yield "dead-letter", f"some are there twice: {dead.most_common(3)}"
        if wrong := [one for one in letters if one.reason != reason]:
            yield "dead-letter", f"nobody has said so: {wrong[0]}"
        for log, end in ends.items():
            if missing := set(range(end)) - self.given.get(log, set()):
                yield "job-lost", f"nobody was given {sorted(missing)} of {log[0]}/{log[1]}"
            rejected = {
                index
                for index, (_, word) in self._settled.get(log, {}).items()
                if word == "rejected" and index < end
            }
            here = {index for partition, index in dead if partition == log[1]}
            if lost := rejected - here:
                yield "dead-letter", f"{sorted(lost)} of {log[0]}/{log[1]} were rejected, and lack"
            done = self._settled.get(log, {}).keys() - rejected
            if wrong_ones := here & done | here - self.rejecting.get(log, set()):
                text = f"{sorted(wrong_ones)} of {log[0]}/{log[1]} were not rejected"
                yield "dead-letter", text


@dataclass
class Group:
    """The groups: one of each stream.

    Attributes:
        given: which entries a member had.
        saved: what was confirmed as saved.
        holders: who has a partition, as it was told last, and since when.
        begun: the first entry that it has got of it.
    """

    given: _Indexes = field(default_factory=_Indexes)
    saved: Counter[Log] = field(default_factory=Counter[Log])
    holders: dict[Log, tuple[str, float]] = field(default_factory=dict[Log, tuple[str, float]])
    begun: dict[Log, int] = field(default_factory=dict[Log, int])

    def assign(self, log: Log, who: str, now: float) -> None:
        """A member is told that it has a partition."""
        self.holders[log] = who, now
        self.begun.pop(log, None)

    def give(self, log: Log, index: int, who: str) -> None:
        """A member gets an entry."""
        self.given.setdefault(log, set()).add(index)
        if self.holders[log][0] == who:
            self.begun.setdefault(log, index)

    def is_late(self, log: Log, index: int, who: str, begun_at: float) -> bool:
        """Whether a position that was saved goes over what another member has begun with by then.

        What was saved already may be saved again by anybody: it changes nothing.
        """
        holder, since = self.holders[log]
        return holder != who and since < begun_at and self.begun.get(log, index) < index

    def missing(self, log: Log, end: int) -> list[int]:
        """Entries before an index that no member had."""
        return sorted(set(range(end)) - self.given.get(log, set()))
