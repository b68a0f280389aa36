"""Checks what is said to a work queue, and carries it out on the queue's state.

A request that is wrong is refused before any of it is done, and one that is said again is not
carried out twice. Nothing here waits, nor tells anybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.queues.state import Outcome, QueueState
from rillnode.actors.log import DEAD_SUFFIX
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.limits import (
    NAME_BYTES_MAX,
    QUEUE_NAME_BYTES_MAX,
    WORK_ATTEMPTS_MAX,
    WORK_IN_FLIGHT_MAX,
    WORK_SECONDS_MAX,
    WORK_SECONDS_MIN,
    WORK_SETTLEMENTS_MAX,
)
from rillnode.codecs.routing.routes import WireMessage

TOKEN_BYTES: Final = 16

_OUTCOMES: Final = frozenset(Outcome)
_AHEAD: Final = frozenset({Outcome.DONE, Outcome.EXTEND, Outcome.RELEASE})


@dataclass(slots=True, eq=False)
class Said:
    """One request, from its arrival until what it says is durable, and that is told."""

    origin: Origin
    wire: WireMessage
    request: Any
    answer: native.Response | RillnodeError | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker does not come back: what it has is given to others."""

    token: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """Withdraws a request to be a worker, by its number, before it has made one."""

    origin: Origin
    number: int


Word = Said | Gone | Left

Doing = Sequence[Word]
"""What a round does, in order."""


def joins(said: Word) -> TypeGuard[Said]:
    """Whether somebody is to be a worker."""
    return isinstance(said, Said) and isinstance(said.request, native.WorkRequest)


def settles(said: Word) -> bool:
    """Whether it settles jobs, makes no dead letters, and that is all."""
    return (
        isinstance(said, Said)
        and isinstance(said.request, native.SettleRequest)
        and said.request.begun is None
        and all(item.outcome in _AHEAD for item in said.request.items)
    )


def work_refusal(stream: str, queue: str, request: native.WorkRequest) -> RequestError | None:
    """Why somebody cannot be a worker, whatever the queue is like; None: that may be."""
    if (
        not 0 < len(queue.encode()) <= QUEUE_NAME_BYTES_MAX
        or len(f"{stream}{DEAD_SUFFIX}".encode()) > NAME_BYTES_MAX
    ):
        text = (
            f"A queue has a name of 1 to {QUEUE_NAME_BYTES_MAX} bytes, and its stream one that "
            f"leaves room for {DEAD_SUFFIX!r} within {NAME_BYTES_MAX}"
        )
        return RequestError("queue.name", text)
    if len(request.worker) != TOKEN_BYTES:
        return RequestError("queue.limit", f"A worker's token has {TOKEN_BYTES} bytes")
    if not 0 < request.in_flight <= WORK_IN_FLIGHT_MAX:
        text = f"A worker has 1 to {WORK_IN_FLIGHT_MAX:,} jobs in flight"
        return RequestError("queue.limit", text)
    if not 0 < request.attempts <= WORK_ATTEMPTS_MAX:
        return RequestError("queue.limit", f"A queue makes 1 to {WORK_ATTEMPTS_MAX:,} attempts")
    low, high = round(1_000 * WORK_SECONDS_MIN), round(1_000 * WORK_SECONDS_MAX)
    if not low <= request.visibility_milliseconds <= high:
        text = f"A job is a worker's for {WORK_SECONDS_MIN:g} to {WORK_SECONDS_MAX:,.0f} s"
        return RequestError("queue.limit", text)
    return None


def compare_jobs(
    state: QueueState, number: int, request: native.WorkRequest, now: int
) -> native.JobsResponse:
    """Take back what a worker has not got, and tell it what of its jobs is not its own."""
    holds = frozenset((one.partition, one.index, one.attempt) for one in request.holds)
    state.return_all(number, now, but=holds)
    gone = [
        one
        for one in request.holds
        if not state.holds(number, (one.partition, one.index), one.attempt)
    ]
    return native.JobsResponse(request.request_id, [], gone)


def answer_unsettled(
    state: QueueState, request: native.SettleRequest
) -> native.Response | RequestError | None:
    """What is told of a settlement that is not carried out; None: it is to be."""
    count = sum(item.count for item in request.items)
    if count > WORK_SETTLEMENTS_MAX:  # before any of them is counted out
        text = f"One request settles at most {WORK_SETTLEMENTS_MAX:,} jobs: send several"
        return RequestError("queue.limit", text)
    number = state.worker_of(request.worker)
    if number is None:
        return native.SettledResponse(request.request_id, list(range(count)))
    if not request.number:
        return RequestError("queue.limit", "Settlements are numbered from 1")
    late = state.settled(number, request.number, count)
    if late is not None:
        return native.SettledResponse(request.request_id, list(late))
    limit = round(1_000 * WORK_SECONDS_MAX)
    for item in request.items:  # all, before any of them is carried out
        if item.outcome not in _OUTCOMES:
            return RequestError("queue.limit", f"There is no outcome {item.outcome}")
        if (item.milliseconds or 0) > limit:
            text = f"A pause, or more time, is at most {WORK_SECONDS_MAX:,.0f} s"
            return RequestError("queue.limit", text)
    return None


def settle(state: QueueState, request: native.SettleRequest, now: int) -> native.SettledResponse:
    """Carry out a worker's settlement, and its leaving where it leaves."""
    number = state.worker_of(request.worker)
    assert number is not None
    refused: list[int] = []
    at = 0
    for item in request.items:
        if item.outcome == Outcome.DONE:
            first = item.partition, item.index
            late = state.settle_done(number, first, item.count, item.attempt)
            refused += [at + one for one in late] if late else ()
            at += item.count
            continue
        outcome, pause, reason = Outcome(item.outcome), item.milliseconds, item.reason
        for place in ((item.partition, item.index + one) for one in range(item.count)):
            if not state.settle(number, place, item.attempt, outcome, pause, reason, now):
                refused.append(at)
            at += 1
    state.note_settled(number, request.number, refused, now)
    if request.begun is not None:
        begun = frozenset((one.partition, one.index, one.attempt) for one in request.begun)
        state.return_all(number, now, but=begun)
        state.lose(number, now, "its worker has left")
        state.leave(number, now)
    return native.SettledResponse(request.request_id, refused)
