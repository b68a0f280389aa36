"""The stream actor: one partition's log as the protocols see it.

An instance is made by the first message for its address, and asks the store for the stream's
record; what comes meanwhile waits, in order. Where there is no such stream nobody is told more
than of any unknown address, and the actor goes again.

All pushes of one mailbox turn become one append; they are confirmed when the store has made them
durable. Entries are never deduplicated by request id: a publisher that sends twice is stored twice.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from rillnode.actors.access import Verb
from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.router import Resolve
from rillnode.actors.storage import Append, FindStream, Read, log_id
from rillnode.actors.streams.answers import failed, invalid_request
from rillnode.actors.streams.asked import NativeAppend, NativeRead, Pull, Pushes, confirm
from rillnode.actors.streams.context import StreamContext, parse_stream_address
from rillnode.actors.streams.pulling import encode_pulled
from rillnode.actors.streams.subscription import Grown, SubscriptionActor, Unsubscribed
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.entries import check_body, pack_body, split_items
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import (
    ENTRY_BYTES_MAX,
    PULL_ENTRIES_MAX,
    SUBSCRIPTIONS_PER_LINK_MAX,
)
from rillnode.codecs.ockam.routing import Route, WireMessage
from rillnode.codecs.ockam.stream import (
    PullRequest,
    PushRequest,
    Status,
)
from rillnode.codecs.requests import decode_request

logger = logging.getLogger("rillnode.actors.streams.stream")

NONE: Final[frozenset[Cell]] = frozenset()

UNKNOWN: Final = -1
"""Stands for the log until the stream is found."""

MISSING_SECONDS: Final = 1.0
"""How long an actor stays for whose address there is no stream."""


@dataclass(frozen=True, slots=True)
class _Expire:
    """Time to end, if no message has come since."""

    deliveries: int


@dataclass(frozen=True, slots=True)
class _Leave:
    """Nothing follows: end."""


class StreamActor(Worker):
    """One partition of one stream."""

    mailbox_messages_max = 4_096
    on_failure = "restart"
    idle_seconds = 60.0

    def __init__(
        self, context: StreamContext, own_address: bytes, name: str, partition: int
    ) -> None:
        self._context = context
        self._own_address = own_address
        self._name = name
        self._partition = partition
        self._log = UNKNOWN
        # Shared empty values stand here while there is nothing: see W4 in benchmarks/.
        self._waiting: Sequence[Delivery] = ()
        self._finding = False
        self._missed = 0
        self._subscriptions: Set[Cell] = NONE
        self._in_flight = 0

    def may_passivate(self) -> bool:
        """Stay while a subscription or a submitted operation needs this instance."""
        return not self._subscriptions and not self._in_flight and not self._finding

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests from links and completed operations from the store."""
        match message:
            case Delivery():
                if self._log == UNKNOWN:
                    self._find(message)
                else:
                    self._requests(message)
            case FindStream():
                self._found(message)
            case _Expire(deliveries=seen):
                self._expire(seen)
            case _Leave():
                self.system.exit(self.address)
            case Append():
                self._appended(message)
            case Read():
                self._in_flight -= 1
                self._read(message)
            case Unsubscribed(subscription=cell):
                self._subscriptions -= {cell}
            case _:
                pass

    # Finding the stream ----------------------------------------------------------------------

    def _find(self, delivery: Delivery) -> None:
        self._waiting = [*self._waiting, delivery]
        # What waits may all be pulls: its connection must not hand on more and more of them.
        delivery.origin.reserved_bytes += _largest_answers(delivery)
        if not self._finding:
            self._finding = True
            operation = FindStream(reply_to=self.address, name=self._name)
            if self._context.store.read(operation):
                self._found(operation)

    def _found(self, operation: FindStream) -> None:
        self._finding = False
        waiting, self._waiting = self._waiting, ()
        for delivery in waiting:
            delivery.origin.reserved_bytes -= _largest_answers(delivery)
        record = operation.record
        if record is not None and self._partition < record.partitions:
            self._log = log_id(record.id, self._partition)
            for delivery in waiting:
                self._requests(delivery)
            return
        reason = "unknown_address" if operation.error is None else operation.error.code
        for delivery in waiting:
            self._context.router.undeliverable(reason, delivery)
        self._missed += len(waiting)
        self.wake_after(MISSING_SECONDS, _Expire(self._missed))

    def _expire(self, missed: int) -> None:
        """End an actor without a stream, once nothing has come for it for a while."""
        if self._log == UNKNOWN and not self._finding and missed == self._missed:
            self._context.router.unregister(self._own_address)
            # What is on its way already comes before this message, and is still answered.
            self.system.post(self.address, _Leave())

    # Requests --------------------------------------------------------------------------------

    def _requests(self, delivery: Delivery) -> None:
        origin = delivery.origin
        verbs = self._context.access.verbs(origin.principal, self._name)
        if not verbs:
            self._context.router.undeliverable("refused", delivery)
            return
        pushes: list[tuple[Route, PushRequest]] = []
        refused: list[WireMessage] = []
        answers: list[tuple[Route, bytes]] = []
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                logger.info("bad_request", extra={"stream": self._name, "code": error.code})
                answers.append((wire.return_route, invalid_request(error)))
                continue
            if isinstance(request, PushRequest):
                if "push" not in verbs:
                    refused.append(wire)
                elif len(request.data) > ENTRY_BYTES_MAX:
                    answers.append((wire.return_route, confirm(request, Status.ERROR, 0)))
                else:
                    pushes.append((wire.return_route, request))
            elif _NEEDS.get(type(request), "admin") not in verbs:
                refused.append(wire)
            else:
                self._request(origin, wire.return_route, request, answers)
        if pushes:
            self._append_pushes(origin, pushes)
        if answers:
            self._context.router.reply(origin, self._own_address, answers)
        if refused:
            self._context.router.undeliverable("refused", Delivery(origin, refused))

    def _request(
        self,
        origin: Origin,
        return_route: Route,
        request: object,
        answers: list[tuple[Route, bytes]],
    ) -> None:
        match request:
            case native.AppendRequest():
                self._append_native(origin, return_route, request, answers)
            case PullRequest():
                self._pull(origin, return_route, request, answers)
            case native.ReadRequest():
                reserved = min(request.bytes_max, origin.message_bytes_max)
                self._submit_read(
                    Read(
                        log=self._log,
                        index=request.index,
                        entries_max=request.entries_max,
                        bytes_max=native.block_budget(origin.message_bytes_max, reserved),
                        token=NativeRead(origin, return_route, request.request_id, reserved),
                    ),
                    origin,
                    reserved,
                )
            case native.SubscribeRequest():
                self._subscribe(origin, return_route, request)
            case _:
                answers.append((return_route, invalid_request(request)))

    # Appending -------------------------------------------------------------------------------

    def _append_pushes(self, origin: Origin, pushes: list[tuple[Route, PushRequest]]) -> None:
        start = 0
        for items in split_items([request.data for _, request in pushes]):
            waiting = pushes[start : start + len(items)]
            self._submit_append(len(items), pack_body(items), Pushes(origin, waiting))
            start += len(items)

    def _append_native(
        self,
        origin: Origin,
        return_route: Route,
        request: native.AppendRequest,
        answers: list[tuple[Route, bytes]],
    ) -> None:
        try:
            check_body(request.count, request.body)
        except CodecError as error:
            answers.append((return_route, failed(request.request_id, error)))
            return
        token = NativeAppend(origin, return_route, request.request_id)
        self._submit_append(request.count, request.body, token)

    def _submit_append(self, count: int, body: bytes | memoryview, token: object) -> None:
        self._in_flight += 1
        self._context.store.submit(
            Append(
                reply_to=self.address,
                token=token,
                log=self._log,
                received_at=self._context.clock.now_ms(),
                count=count,
                body=body,
            )
        )

    def _appended(self, operation: Append) -> None:
        self._in_flight -= 1
        asked: Pushes | NativeAppend = operation.token
        answers = asked.answers(operation)
        self._context.router.reply(asked.origin, self._own_address, answers)
        if operation.error is None and self._subscriptions:
            grown = Grown(next_index=operation.first_index + operation.count)
            for cell in self._subscriptions:
                self.system.post(cell, grown)

    # Reading ---------------------------------------------------------------------------------

    def _pull(
        self,
        origin: Origin,
        return_route: Route,
        request: PullRequest,
        answers: list[tuple[Route, bytes]],
    ) -> None:
        limit = min(request.limit, PULL_ENTRIES_MAX)
        if limit == 0:
            answers.append((return_route, encode_pulled(request, [])))
            return
        reserved = origin.message_bytes_max
        self._submit_read(
            Read(
                log=self._log,
                index=request.index,
                entries_max=limit,
                bytes_max=reserved,
                token=Pull(origin, return_route, request, reserved),
            ),
            origin,
            reserved,
        )

    def _submit_read(self, operation: Read, origin: Origin, reserved: int) -> None:
        operation.reply_to = self.address
        origin.reserved_bytes += reserved
        if self._context.store.read(operation):
            self._read(operation)
        else:
            self._in_flight += 1

    def _read(self, operation: Read) -> None:
        asked: Pull | NativeRead = operation.token
        asked.origin.reserved_bytes -= asked.reserved
        answer = (asked.return_route, asked.answer(operation, self._own_address))
        self._context.router.reply(asked.origin, self._own_address, [answer])

    def _subscribe(
        self, origin: Origin, return_route: Route, request: native.SubscribeRequest
    ) -> None:
        if len(origin.attached) >= SUBSCRIPTIONS_PER_LINK_MAX:
            limit = RequestError("subscription.limit", "This link has too many subscriptions")
            answer = (return_route, failed(request.request_id, limit))
            self._context.router.reply(origin, self._own_address, [answer])
            return
        cell = self.system.spawn(
            partial(
                SubscriptionActor,
                self._context,
                self._log,
                self.address,
                origin,
                return_route,
                request,
            ),
            parent=self.address,
        )
        self._subscriptions |= {cell}
        origin.attached.add(cell)


def stream_resolver(context: StreamContext, parent: Cell) -> Resolve:
    """Make the actors of streams when the first message for their address comes.

    Who may do nothing with a stream of that name makes none.
    """

    def resolve(address: bytes, origin: Origin) -> Cell | None:
        parsed = parse_stream_address(address)
        if parsed is None or not context.access.verbs(origin.principal, parsed[0]):
            return None
        return context.system.spawn(partial(StreamActor, context, address, *parsed), parent=parent)

    return resolve


_NEEDS: Final[dict[type, Verb]] = {
    PullRequest: "pull",
    native.ReadRequest: "pull",
    native.SubscribeRequest: "subscribe",
    native.AppendRequest: "push",
}


def _largest_answers(delivery: Delivery) -> int:
    return delivery.origin.message_bytes_max * len(delivery.messages)
