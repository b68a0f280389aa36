"""Knows the workers of a queue that are connected to this node, or were a moment ago.

A worker whose link is lost has a short grace in which it may come back: then its jobs are its own
still. After a restart those that the record knows of have the same grace. Where they may have been
sent what the record does not say, they say so when they join, and until then nobody is given jobs.
"""

from dataclasses import dataclass
from typing import Final

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.queues.context import QueueContext
from rillnode.actors.core.queues.said import Doing, Gone, Said, Word, joins
from rillnode.actors.core.queues.state import QueueState, Settings
from rillnode.actors.core.streams.answers import failed
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.routing.routes import Route

GRACE_SECONDS: Final = 2.0
"""How long a worker's jobs wait for it to come back when its link is lost."""

_REVOKED: Final = RequestError(
    "queue.revoked",
    "The right to pull this stream has ended: ask for a grant, and open the queue again",
)


@dataclass(slots=True, eq=False)
class Member:
    """A worker that is connected, or was a moment ago.

    Attributes:
        id: of the worker in the state as it is in memory.
        origin: None: its link is lost.
        due: when it is given up then, on the monotonic clock.
    """

    token: bytes
    request: native.WorkRequest
    origin: Origin | None
    return_route: Route
    id: int = 0
    due: float = 0.0

    @property
    def visibility_ms(self) -> int:
        """How long it has for a job."""
        return self.request.visibility_milliseconds


class Members:
    """The workers; each is told once when it is none any more, unless it has left or is lost.

    Attributes:
        by_token: all of them, in the order in which they are given jobs.
        awaited: tokens of those that may have more than the record says.
        early: what these have said before they have joined again.
    """

    def __init__(self, queue: QueueContext) -> None:
        self._queue = queue
        self.by_token: dict[bytes, Member] = {}
        self.awaited: set[bytes] = set()
        self.early: list[Said] = []

    def knows(self, member: Member) -> bool:
        """Whether it is one still."""
        return self.by_token.get(member.token) is member

    # Coming ----------------------------------------------------------------------------------

    def join(self, state: QueueState, said: Said, now: int) -> int | RequestError:
        """Have a worker; return its id, or why it cannot be one."""
        request: native.WorkRequest = said.request
        settings = Settings(request.attempts, request.queue_in_flight, request.by_key)
        if not state.set_settings(settings):
            order = "by key" if state.settings.by_key else "in no order of keys"
            text = f"This queue gives entries {order}: that can change once nothing of it is open"
            return RequestError("queue.order", text)
        number = state.join(request.worker, now, self.by_token)
        if number is None:
            return RequestError("queue.limit", "This queue has too many workers")
        before = self.by_token.get(request.worker)
        if before is not None and before.origin is not said.origin:
            self.by_token.pop(request.worker)
            self._unwatch(before.origin)
        route = said.wire.return_route
        member = Member(request.worker, request, said.origin, route, number)
        self.by_token[request.worker] = member
        if said.origin.ended:
            self.lost(said.origin)
        else:
            said.origin.watch(self._queue.cell)
        return number

    def has_given_back(self, token: bytes) -> None:
        """A worker had no time for something: others are given it, as far as they have room."""
        if (member := self.by_token.pop(token, None)) is not None:
            self.by_token[token] = member

    def join_again(self, state: QueueState, now: int) -> None:
        """Be known in a state that was read anew."""
        for member in self.by_token.values():
            member.id = state.join(member.token, now, self.by_token) or 0

    # Being awaited ---------------------------------------------------------------------------

    def await_workers(self, state: QueueState, *, may_have_more: bool) -> None:
        """Wait for those that have jobs from before this actor; nobody else serves them.

        Where they may have more than the record says, nobody is given anything before they say so.
        """
        due = self._queue.monotonic() + GRACE_SECONDS
        for number, token in tuple(state.workers):
            if token not in self.by_token:
                request = native.WorkRequest(0, token, [], 1, 0, 1, 0, False)
                self.by_token[token] = Member(token, request, None, (), number, due)
                if may_have_more:
                    self.awaited.add(token)
                self._queue.wake_in(GRACE_SECONDS)

    def await_no_more(self, token: bytes) -> None:
        """A worker is there again, or does not come: what it has said before that can be done."""
        if token in self.awaited:
            self.awaited.discard(token)
            self._queue.said += [said for said in self.early if said.request.worker == token]
            self.early = [said for said in self.early if said.request.worker != token]

    def in_time(self, state: QueueState, doing: Doing) -> Doing:
        """What can be done now: workers that are awaited say what they have before all else."""
        if not self.awaited:
            return doing
        joining = [said for said in doing if isinstance(said, Said) and joins(said)]
        awaited = self.awaited - {said.request.worker for said in joining}
        now: list[Word] = [*joining]
        for said in doing:
            if said in joining:
                continue
            if (
                isinstance(said, Said)
                and isinstance(request := said.request, native.SettleRequest)
                and request.worker in awaited
                and (number := state.worker_of(request.worker)) is not None
                and state.settled(number, request.number, 0) is None
            ):
                self.early.append(said)
            else:
                now.append(said)
        return now

    # Going -----------------------------------------------------------------------------------

    def lost(self, origin: Origin) -> None:
        """A link is no more: its workers have their grace."""
        now = self._queue.monotonic()
        for member in self.by_token.values():
            if member.origin is origin:
                member.origin, member.due = None, now + GRACE_SECONDS
                self._queue.wake_in(GRACE_SECONDS)

    def look(self) -> None:
        """See which workers do not come back."""
        now = self._queue.monotonic()
        for member in tuple(self.by_token.values()):
            if member.origin is None:
                if member.due <= now:
                    self._drop(member, "its worker was lost")
                else:
                    self._queue.wake_in(member.due - now)

    def revise(self) -> None:
        """Rights have changed: who has none any more is no worker."""
        for member in tuple(self.by_token.values()):
            origin = member.origin
            if origin is not None and not self._queue.may_pull(origin.principal):
                self.dismiss(member, _REVOKED)
                self._drop(member, "its worker may not go on")

    def unsubscribe(self, origin: Origin, number: int) -> None:
        """Who has become a worker by the request of this number is none any more."""
        for member in tuple(self.by_token.values()):
            if member.origin is origin and member.request.request_id == number:
                self._drop(member, "its worker has left")

    def leave(self, token: bytes) -> None:
        """A worker has left, and has said what becomes of its jobs."""
        member = self.by_token.pop(token, None)
        if member is not None:
            self._unwatch(member.origin)

    def forget(self, request: object) -> None:
        """Nothing came of what somebody has said: who was to be a worker by it asks anew.

        Without its settings it would be given entries in any order.
        """
        member = self.by_token.get(getattr(request, "worker", b""))
        if member is not None and member.request is request:
            del self.by_token[member.token]
            self._unwatch(member.origin)

    def dismiss(self, member: Member, error: RillnodeError) -> None:
        """Tell a worker that it is none any more."""
        self.by_token.pop(member.token, None)
        self.await_no_more(member.token)
        if member.origin is not None and not member.origin.ended:
            payload = failed(member.request.request_id, error)
            self._queue.answer(member.origin, member.return_route, payload)
        self._unwatch(member.origin)

    def dismiss_all(self, error: RillnodeError) -> None:
        """Tell all workers that they are none any more."""
        for member in tuple(self.by_token.values()):
            self.dismiss(member, error)

    def _drop(self, member: Member, reason: str) -> None:
        """Know a worker no more; what it has is given to others with the next round."""
        self.by_token.pop(member.token, None)
        self._unwatch(member.origin)
        self.await_no_more(member.token)
        self._queue.said.append(Gone(member.token, reason))

    def _unwatch(self, origin: Origin | None) -> None:
        if origin is not None and not any(one.origin is origin for one in self.by_token.values()):
            origin.unwatch(self._queue.cell)
