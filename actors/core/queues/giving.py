"""Gives entries to workers that have room, and makes the messages in which they get them.

All partitions have their turns, and so have workers. No worker gets more than it takes, and all of
them together no more than the queue's limit. An entry is given in the state before it is sent.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from rillnode.actors.core.queues.ahead import AheadOfRecord
from rillnode.actors.core.queues.context import QueueContext, Run, Runs
from rillnode.actors.core.queues.members import Member, Members
from rillnode.actors.core.queues.partitions import Partitions
from rillnode.actors.core.queues.state import OPEN_MAX, Place, QueueState
from rillnode.codecs import native
from rillnode.codecs.cutting import Cut, arrivals_of, join_cuts
from rillnode.codecs.routing.routes import Route

GIVEN_MAX: Final = 1_024
"""Jobs given in one round."""

WHOLE_MAX: Final = 64
"""So many jobs may be given to a worker at once, even if they are all that it takes."""

GIVEN_BYTES: Final = 1_048_576
"""Data given to one worker in one round; a first job that is larger goes alone."""

ENTRY_BYTES: Final = 22
RUN_BYTES: Final = 64
"""What an entry, and what goes together, takes beside its data, at most."""

CONGESTED_SECONDS: Final = 0.02
"""How often it is looked whether a worker's link takes more."""

Jobs = dict[Member, Runs]
"""What each worker is given."""


class Giving:
    """Chooses what is given to whom: what was given before comes first, then what is new."""

    def __init__(
        self, queue: QueueContext, partitions: Partitions, members: Members, ahead: AheadOfRecord
    ) -> None:
        self._queue = queue
        self._partitions = partitions
        self._members = members
        self._ahead = ahead

    async def choose(self, state: QueueState, *, is_ahead: bool = False) -> tuple[Jobs, Jobs]:
        """Give workers what they have room for.

        Returns what they get when the record says so, and what they get before that.
        """
        room = {
            member: left
            for member in self._members.by_token.values()
            if (left := self._room_of(state, member)) > 0
        }
        capacity = min(sum(room.values()), GIVEN_MAX)
        limit = state.settings.in_flight
        if limit:
            capacity = min(capacity, limit - state.given_count)
        jobs: Jobs = {}
        ahead: Jobs = {}
        now = self._queue.now_ms()
        state.ripen(now)
        if capacity <= 0 or self._members.awaited:
            return jobs, ahead
        data: dict[Place, Cut] = {}
        if state.settings.by_key:
            await self._partitions.look_at(state, capacity - state.ready_count, data)
            state.ripen(now)
        chosen: list[Place] = []
        while len(chosen) < capacity and (place := state.take_ready()) is not None:
            chosen.append(place)
        if chosen:
            others = [place for place in chosen if place not in data]
            await self._partitions.fetch(state, others, data)
        left_bytes = dict.fromkeys(room, GIVEN_BYTES)
        turns = deque(room)
        for number, place in enumerate(chosen):
            cut = data.get(place)
            if cut is None:
                continue  # it was trimmed
            if not turns:
                for one in reversed(chosen[number:]):
                    if one in data:
                        state.put_back(one)
                self._queue.more = True
                break
            member = turns[0]
            attempt = state.give(place, member.id, now, member.visibility_ms)
            run = Run(place[0], attempt, place[1], 1, cut.size, (cut,))
            jobs.setdefault(member, []).append(run)
            room[member] -= 1
            left_bytes[member] -= run.size
            turns.popleft()
            if room[member] and left_bytes[member] > 0:
                turns.append(member)
        given = len(chosen)
        if not state.settings.by_key:
            given += await self._give_new(
                state, capacity - given, turns, room, left_bytes, jobs, now,
                ahead if is_ahead else None,
            )  # fmt: skip
        self._queue.more |= given >= capacity and (
            capacity == GIVEN_MAX or any(self._room_of(state, member) > 0 for member in room)
        )
        return jobs, ahead

    async def _give_new(
        self,
        state: QueueState,
        wanted: int,
        turns: deque[Member],
        room: dict[Member, int],
        left_bytes: dict[Member, int],
        jobs: Jobs,
        now: int,
        ahead_of_record: Jobs | None,
    ) -> int:
        """Give so many entries at most that were not looked at; return how many were given.

        Who follow each other in the log go together, so that they are one piece on the wire and in
        what the worker says of them. All partitions have their turns, and so have workers.
        """
        given = idle = 0
        while given < wanted and turns and idle < len(self._partitions.logs) and not state.is_full:
            partition = self._partitions.next_in_turn()
            is_doubtful = self._ahead.is_doubtful(state, partition)
            ahead = await self._partitions.next_entries(state, partition)
            idle = 0 if ahead else idle + 1
            left = min(len(ahead), wanted - given, OPEN_MAX - state.open_count)
            while left and turns:
                member = turns.popleft()
                share = min(-(-left // (len(turns) + 1)), room[member])
                run = ahead.take(partition, share, left_bytes[member])
                first, count = run.first_index, run.count
                state.give_new(partition, count, member.id, now, member.visibility_ms)
                goes = jobs
                if (
                    ahead_of_record is not None
                    and not is_doubtful
                    and self._ahead.may_send(member, partition, first + count - 1)
                ):
                    goes = ahead_of_record
                goes.setdefault(member, []).append(run)
                given += count
                left -= count
                room[member] -= count
                left_bytes[member] -= run.size
                if room[member] and left_bytes[member] > 0:
                    turns.append(member)
        self._queue.more |= given < wanted and not turns
        return given

    def _room_of(self, state: QueueState, member: Member) -> int:
        """How many jobs a worker takes now."""
        origin, most = member.origin, member.request.in_flight
        if origin is None or not member.id:
            return 0
        left = most - state.given.get(member.id, 0)
        if left <= 0:
            return 0
        if origin.congested:
            self._queue.wake_in(CONGESTED_SECONDS)
            return 0
        # Half of it at a time: what one half says is written while the other is worked on.
        return min(left, max(WHOLE_MAX, (most + 1) // 2))


def job_messages(member: Member, runs: Runs) -> list[tuple[Route, bytes]]:
    """Messages that give jobs to a worker which is there, as many in each as its link takes."""
    assert member.origin is not None
    room = native.block_budget(member.origin.message_bytes_max, GIVEN_BYTES)
    answers: list[tuple[Route, bytes]] = []
    together: list[native.JobRun] = []
    size = 0
    number = member.request.request_id
    for run in _pieces(runs, room):
        run_size = len(run.value) + 10 * len(run.later) + RUN_BYTES
        if together and size + run_size > room:
            payload = native.encode(native.JobsResponse(number, together, []))
            answers.append((member.return_route, payload))
            together, size = [], 0
        together.append(run)
        size += run_size
    payload = native.encode(native.JobsResponse(number, together, []))
    answers.append((member.return_route, payload))
    return answers


def _pieces(runs: Runs, room: int) -> Iterator[native.JobRun]:
    """What is given, in pieces of which each fits into a message."""
    for run in runs:
        if run.size + ENTRY_BYTES * run.count <= room:  # as mostly
            yield _job_run(run, run.cuts)
            continue
        piece: list[Cut] = []
        size = 0
        for cut in run.cuts:
            rest = cut
            while rest.count:
                part = rest.within(room - size, ENTRY_BYTES)
                taken = part.size + ENTRY_BYTES * part.count
                if piece and size + taken > room:
                    yield _job_run(run, piece)
                    piece, size = [], 0
                    continue
                piece.append(part)
                size += taken
                rest = rest.after(part)
        yield _job_run(run, piece)


def _job_run(run: Run, cuts: Sequence[Cut]) -> native.JobRun:
    first, value = cuts[0].first_index, join_cuts(cuts)
    return native.JobRun(run.partition, first, run.attempt, value, arrivals_of(cuts))
