"""Holds continuations of store operations: who asked, how to reply."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Final

from msgspec import Struct

from rillnode.actors.core.access import Verb
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.answers import failed
from rillnode.actors.core.streams.searching import search
from rillnode.actors.log import Locate, OpenProducer, Read
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import Route, WireMessage
from rillnode.codecs.routing.stream import (
    PullRequest,
    PushConfirm,
    PushRequest,
    Status,
    encode_response,
    response_tag,
)
from rillnode.codecs.where import Where

Answers = list[tuple[Route, bytes]]
"""Return routes of requests, and the payloads that go back."""

NEEDS: Final[Mapping[type, Verb]] = {
    PullRequest: "pull",
    native.ReadRequest: "pull",
    native.SearchRequest: "pull",
    native.LocateRequest: "pull",  # or whoever may subscribe, see `is_allowed`
    native.SubscribeRequest: "subscribe",
    native.UnsubscribeRequest: "subscribe",
    native.AppendRequest: "push",
    native.OpenProducerRequest: "push",
}
"""What somebody must be granted who asks for it."""


def is_allowed(request: object, verbs: Set[Verb]) -> bool:
    """Whether these grants on a stream are enough for a request."""
    if isinstance(request, native.LocateRequest):
        return not verbs.isdisjoint(("pull", "subscribe"))  # as either may begin at a time
    return NEEDS.get(type(request), "admin") in verbs


@dataclass(slots=True, eq=False)
class ServiceRequest:
    """One request of a peer to a service, which is answered from the address that it came to.

    Attributes:
        request: as it was decoded; None before.
    """

    router: Router
    origin: Origin
    wire: WireMessage
    request: Any = None

    def reply(self, payload: bytes) -> None:
        """Answer it."""
        answer = (self.wire.return_route, payload)
        self.router.reply(self.origin, self.wire.onward_route[0].value, [answer])


class Pushes(Struct, frozen=True):
    """One append's pushes, in the order of its entries; `owner` is the stream's."""

    origin: Origin
    requests: Sequence[tuple[Route, PushRequest]]
    owner: str

    def answers(self, first_index: int, error: RillnodeError | None) -> Answers:
        """A confirm for each: its index, or ERROR when nothing of the append is durable."""
        status = Status.OK if error is None else Status.ERROR
        indexes = count(first_index) if status is Status.OK else repeat(0)
        return [
            (route, confirm(request, status, index))
            for index, (route, request) in zip(indexes, self.requests, strict=False)
        ]


class NativeAppend(Struct, frozen=True):
    """A whole block from a native client; `owner` is the stream's.

    Attributes:
        is_charged: it was taken from quotas.
    """

    origin: Origin
    return_route: Route
    request_id: int
    owner: str
    is_charged: bool = True

    @property
    def pusher(self) -> str:
        """Who has pushed it."""
        return self.origin.principal

    def answers(self, first_index: int, error: RillnodeError | None) -> Answers:
        """The first entry's index, or why nothing of it is durable."""
        if error is not None:
            payload = failed(self.request_id, error)
        else:
            response = native.PositionResponse(self.request_id, first_index)
            payload = native.encode(response)
        return [(self.return_route, payload)]


class NativeAsk(Struct, frozen=True):
    """A native client's request, and where its answer goes."""

    origin: Origin
    return_route: Route
    request_id: int


class Opening(NativeAsk, frozen=True):
    """The opening of a producer's name."""

    def answer(self, operation: OpenProducer) -> bytes:
        """Where its numbers go on."""
        if operation.error is not None:
            return failed(self.request_id, operation.error)
        last = operation.last_index
        response = native.ProducerResponse(
            self.request_id, operation.epoch, operation.next_sequence, last if last >= 0 else None
        )
        return native.encode(response)


class NativeRead(NativeAsk, frozen=True):
    """A read of whole blocks."""

    def answer(self, operation: Read) -> bytes:
        """The blocks, copied once."""
        if operation.error is not None:
            return failed(self.request_id, operation.error)
        extent = operation.extent
        return native.encode_blocks(
            self.request_id, extent.first_index, extent.next_index, operation.blocks
        )


class NativeSearch(Struct, frozen=True):
    """A native client's read of what meets a condition."""

    origin: Origin
    return_route: Route
    request: native.SearchRequest
    where: Where

    @property
    def request_id(self) -> int:
        """The request's."""
        return self.request.request_id

    def answer(self, operation: Read) -> bytes:
        """What matches of what was read."""
        request = self.request
        if operation.error is not None:
            return failed(request.request_id, operation.error)
        extent = operation.extent
        first = max(request.index, extent.first_index)
        look = search(operation.blocks, self.where, first, request.until, request.entries_max)
        ends = extent.first_index, extent.next_index
        return native.found(request.request_id, ends, look.reached, look.blocks)


class NativeLocate(NativeAsk, frozen=True):
    """A question where a time lies."""

    def answer(self, operation: Locate) -> bytes:
        """The index."""
        if operation.error is not None:
            return failed(self.request_id, operation.error)
        return native.encode(native.PositionResponse(self.request_id, operation.index))


def confirm(request: PushRequest, status: Status, index: int) -> bytes:
    """A push's confirm, spelt as the push was."""
    return encode_response(
        PushConfirm(request.request_id, status, index, response_tag(request.tag))
    )
