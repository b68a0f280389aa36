"""Keeps account of what workers were sent before the record on the disk says so.

An entry that a worker has without the record is one that was never given before, of a worker that
the record knows, and not far behind what the record has. So whoever reads that record after a crash
knows which entries are in doubt; the workers that have them say so when they join again, and else
they are given for the first time once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.actors.core.queues.context import Runs
from rillnode.actors.core.queues.members import Member, Members
from rillnode.actors.core.queues.state import QueueState
from rillnode.codecs import native

AHEAD_OF_RECORD_MAX: Final = 4_096
"""Entries of a partition, behind those that the record on the disk has, that workers may have."""


@dataclass(frozen=True, slots=True)
class _SentAhead:
    """Entries that a worker was sent before the record was durable that says so."""

    member: Member
    partition: int
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Writing:
    """A record on its way to the disk: how far it has looked at entries, and what was sent."""

    next_at: list[int]
    sent: list[_SentAhead]


class AheadOfRecord:
    """The distance from the record on the disk to what was sent, within a limit."""

    def __init__(self) -> None:
        self._next_at: list[int] = []
        self._known_workers: list[set[int]] = [set()]
        self._doubtful: list[int] = []
        self._sent: list[_SentAhead] = []

    # Sending ---------------------------------------------------------------------------------

    def is_doubtful(self, state: QueueState, partition: int) -> bool:
        """Whether a worker may have the next entry of a partition from before a crash."""
        return state.next_index(partition) < self._doubtful[partition]

    def may_send(self, member: Member, partition: int, last: int) -> bool:
        """Whether a worker may have entries up to `last` without the record."""
        return (
            all(member.id in known for known in self._known_workers)
            and last < self._next_at[partition] + AHEAD_OF_RECORD_MAX
        )

    def sent(self, member: Member, runs: Runs) -> None:
        """A worker is sent entries; the next record has them."""
        for run in runs:
            self._sent.append(_SentAhead(member, run.partition, run.first_index, run.count))

    # Writing ---------------------------------------------------------------------------------

    def writing(self, state: QueueState) -> Writing:
        """The state as it is goes to the disk."""
        sent, self._sent = self._sent, []
        self._known_workers.append(set(state.given))
        return Writing(_next_at(state), sent)

    def written(self, writing: Writing) -> None:
        """That is durable."""
        self._known_workers, self._next_at = self._known_workers[1:], writing.next_at

    def not_written(self, writing: Writing) -> None:
        """It is not: what was sent is in no record still."""
        self._sent = writing.sent + self._sent

    def all_written(self, state: QueueState) -> None:
        """The state is durable as it is, and nothing is on its way."""
        self._known_workers = [set(state.given)]
        self._next_at = _next_at(state)

    # Reading ---------------------------------------------------------------------------------

    def read(self, state: QueueState) -> None:
        """A record was read, and nobody has more than it says."""
        self.all_written(state)
        self._doubtful = list(self._next_at)

    def doubt(self) -> None:
        """Workers that are awaited may have more than the record says that was read."""
        self._doubtful = [one + AHEAD_OF_RECORD_MAX for one in self._doubtful]

    def adopt_sent(self, state: QueueState, members: Members, now: int) -> None:
        """Note what this actor has sent, in rounds that came to nothing, in a state read anew."""
        for sent in self._sent:
            if members.knows(sent.member) and sent.member.id:
                for index in range(sent.index, sent.index + sent.count):
                    place = sent.partition, index
                    state.adopt(sent.member.id, place, now, sent.member.visibility_ms)

    def forget_sent(self) -> None:
        """A state was read anew, and nothing was sent since."""
        self._sent = []

    def adopt(
        self,
        state: QueueState,
        number: int,
        request: native.WorkRequest,
        ends: Sequence[int],
        now: int,
    ) -> None:
        """Take a worker's word for what it was sent ahead of the record that there is."""
        for one in sorted(request.holds, key=lambda one: (one.partition, one.index)):
            place = one.partition, one.index
            if (
                one.attempt == 1
                and one.partition < len(ends)
                and one.index < min(self._doubtful[one.partition], ends[one.partition])
            ):
                state.adopt(number, place, now, request.visibility_milliseconds)


def _next_at(state: QueueState) -> list[int]:
    return [state.next_index(partition) for partition in range(state.partitions)]
