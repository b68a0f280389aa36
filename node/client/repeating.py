"""Asks a node again for what it has not handled: an actor was busy, had ended, or has failed.

A request that no actor has come to is sent again until it is answered or given up. A read is also
sent again, a few times, when the actor has failed at it.

Appends to one address keep their order: while one waits to be sent again, later ones wait with it,
those of a name too that were refused as it was not stored. Where a later one was stored before its
refusal was known, it cannot take its place any more and fails.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.errors import UNHANDLED, RillnodeError
from rillnode.node.client.messages import failure_of

PAUSE_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before the next try, where the node does not say how long it wants: give or take a half."""

READ_FAILURES_MAX: Final = 2
"""How often a read is sent again whose actor has failed at it."""

_READS: Final = frozenset(
    (
        native.ReadRequest,
        native.LocateRequest,
        native.SearchRequest,
        native.DescribeRequest,
        native.ListRequest,
        native.LoadIndexRequest,
        native.ListIndexesRequest,
        native.ListGroupsRequest,
        native.StatusRequest,
        native.SinkEndsRequest,
        native.SinkReadRequest,
    )
)

_OUT_OF_ORDER: Final = "producer.order"

_APPENDS: Final = frozenset((native.AppendRequest, native.AppendManyRequest))

OnResponse = Callable[[native.Response | RillnodeError], None]
"""Takes the answer to one request, or why there is none."""


@dataclass(slots=True)
class Asked:
    """A request without an answer.

    Attributes:
        frame: what was sent.
        on_response: takes the answer.
        address: whom it is for.
        kind: the class of the request.
        refusals: how often the node has refused it.
        failures: in how many cases because it has failed.
        refusal: what the node has said last, while it waits to be sent again.
        seconds: how long it waits then.
        held: it is not with the node: it waits, or one before it does.
    """

    frame: bytes
    on_response: OnResponse
    address: bytes
    kind: type[native.Request]
    refusals: int = 0
    failures: int = 0
    refusal: native.Failure | None = None
    seconds: float = 0.0
    held: bool = False

    def refuse(self, failure: native.Failure, random: Random, *, is_behind: bool) -> bool:
        """Take a refusal; False where it is no use to send the request again.

        How long it waits is spread, as others wait as well.

        Args:
            failure: the refusal.
            random: spreads.
            is_behind: another append to its address waits to be sent again.
        """
        if failure.code == "actor.failed":
            self.failures += 1
            if self.kind not in _READS or self.failures > READ_FAILURES_MAX:
                return False
        elif failure.code not in UNHANDLED and not (is_behind and failure.code == _OUT_OF_ORDER):
            return False
        self.refusals += 1
        self.refusal, self.held = failure, True
        if failure.retry_milliseconds:
            self.seconds = failure.retry_milliseconds / 1_000 * random.uniform(1.0, 1.25)
        else:
            nth = min(self.refusals, len(PAUSE_SECONDS))
            self.seconds = PAUSE_SECONDS[nth - 1] * random.uniform(0.5, 1.5)
        return True


@dataclass(slots=True)
class _Hold:
    """The appends to one address, since one of them was refused.

    Attributes:
        sent: those that the node has, and has said nothing of.
        stored_id: the last of them that it has stored.
        timer: sends all again, once it has said something of each.
    """

    sent: set[int]
    stored_id: int = 0
    timer: asyncio.TimerHandle | None = None


class Repeating:
    """The refused requests of one session; all calls on the loop's thread.

    Args:
        pending: what the session has asked, by id, in order.
        fail: gives a request its outcome.
        send: sends a frame, where there is a link.
        random: spreads what many clients do at once.
    """

    def __init__(
        self,
        pending: Mapping[int, Asked],
        *,
        fail: Callable[[int, RillnodeError], None],
        send: Callable[[bytes], None],
        random: Callable[[], Random],
    ) -> None:
        self._pending = pending
        self._fail = fail
        self._send = send
        self._random = random
        self._holds: dict[bytes, _Hold] = {}

    def holds(self, asked: Asked) -> bool:
        """Whether a new request has to wait for those before it."""
        if self._holds and asked.kind in _APPENDS:
            asked.held = asked.address in self._holds
        return asked.held

    def refused(self, request_id: int, failure: native.Failure) -> bool:
        """Take a refusal; False where it is the request's outcome."""
        asked = self._pending.get(request_id)
        if asked is None:
            return False
        is_behind = asked.kind in _APPENDS and asked.address in self._holds
        if not asked.refuse(failure, self._random(), is_behind=is_behind):
            return False
        if asked.kind in _APPENDS:
            self._hold(request_id, asked)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(asked.seconds, self._repeat, request_id, asked, failure)
        return True

    def answered(self, request_id: int, asked: Asked, *, stored: bool) -> None:
        """A request has its outcome."""
        if not self._holds or asked.kind not in _APPENDS:
            return
        hold = self._holds.get(asked.address)
        if hold is not None:
            hold.sent.discard(request_id)
            if stored:
                hold.stored_id = max(hold.stored_id, request_id)
            self._settle(asked.address, hold)

    def restart(self) -> None:
        """All that is pending is sent over a new link, in order; nothing waits any more."""
        holds, self._holds = self._holds, {}
        for hold in holds.values():
            if hold.timer is not None:
                hold.timer.cancel()
        for asked in self._pending.values():
            asked.refusal, asked.held = None, False

    def forget(self, address: bytes) -> None:
        """Nothing that an address is asked waits here any more."""
        hold = self._holds.pop(address, None)
        if hold is not None and hold.timer is not None:
            hold.timer.cancel()

    def _repeat(self, request_id: int, asked: Asked, failure: native.Failure) -> None:
        # It may have been given up, or sent over a new link, and even be refused there anew.
        if self._pending.get(request_id) is asked and asked.refusal is failure:
            self._send_again(asked)

    def _send_again(self, asked: Asked) -> None:
        asked.refusal, asked.held = None, False
        self._send(asked.frame)

    # Appends ---------------------------------------------------------------------------------

    def _appends(self, address: bytes) -> list[tuple[int, Asked]]:
        """The pending ones, in order."""
        return [
            (request_id, asked)
            for request_id, asked in self._pending.items()
            if asked.kind in _APPENDS and asked.address == address
        ]

    def _hold(self, request_id: int, asked: Asked) -> None:
        hold = self._holds.get(asked.address)
        if hold is None:
            sent = {one for one, other in self._appends(asked.address) if not other.held}
            hold = self._holds[asked.address] = _Hold(sent)
        hold.sent.discard(request_id)
        self._settle(asked.address, hold)

    def _settle(self, address: bytes, hold: _Hold) -> None:
        """Once the node has said what became of each: fail what is too late, and pause."""
        if hold.sent or hold.timer is not None:
            return
        pause = 0.0
        late: list[tuple[int, native.Failure]] = []
        for request_id, asked in self._appends(address):
            if asked.refusal is None:
                break  # this one, and all behind it, were never sent
            if request_id < hold.stored_id:
                late.append((request_id, asked.refusal))
            else:
                pause = max(pause, asked.seconds)
        loop = asyncio.get_running_loop()
        hold.timer = loop.call_later(pause, self._release, address, hold)
        for request_id, refusal in late:
            self._fail(request_id, failure_of(refusal))

    def _release(self, address: bytes, hold: _Hold) -> None:
        if self._holds.get(address) is hold:
            del self._holds[address]
            for _, asked in self._appends(address):
                self._send_again(asked)
