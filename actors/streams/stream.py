"""The stream actor: one partition's log as the protocols see it.

An instance is made by the first message for its address, and asks the store for the stream's
record; what comes meanwhile waits, in order. Where there is no such stream nobody is told more
than of any unknown address, and the actor goes again.

All pushes of one mailbox turn become one append; they are confirmed when the store has made them
durable. Entries are never deduplicated by request id: a publisher that sends twice is stored twice.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from msgspec.structs import replace

from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import (
    Append,
    FindStream,
    Read,
    StreamRecord,
    log_id,
    removed_error,
)
from rillnode.actors.streams.answers import failed, invalid_request, is_error
from rillnode.actors.streams.appending import Appends, settle
from rillnode.actors.streams.ask import UNKNOWN as UNKNOWN_STREAM
from rillnode.actors.streams.asked import NEEDS, NativeRead, confirm
from rillnode.actors.streams.context import StreamContext, StreamRemoved
from rillnode.actors.streams.inside import AppendEntries, Inside
from rillnode.actors.streams.pulling import (
    Collected,
    Oversized,
    Pull,
    can_be_pulled,
    collect,
    encode_pulled,
)
from rillnode.actors.streams.subscription import SubscriptionActor
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, StoreError
from rillnode.codecs.limits import ENTRY_BYTES_MAX, SUBSCRIPTIONS_PER_LINK_MAX
from rillnode.codecs.ockam.routing import Route, WireMessage
from rillnode.codecs.ockam.stream import PullRequest, PushRequest, Status
from rillnode.codecs.requests import decode_request

logger = logging.getLogger("rillnode.actors.streams.stream")

Request = Delivery | AppendEntries
"""What waits while the stream is looked for."""

UNKNOWN: Final = -1
"""Stands for the log until the stream is found."""

LOOK_READ_BYTES: Final = 1_048_576
"""Read at a time where entries are too large for who asked."""

MISSING_SECONDS: Final = 1.0
"""How long an actor stays for whose address there is no stream."""


@dataclass(frozen=True, slots=True)
class _Expire:
    """Time to end, if no message has come since."""

    deliveries: int


@dataclass(frozen=True, slots=True)
class _Leave:
    """Nothing follows: end."""


Message = Request | StreamRecord | StreamRemoved | FindStream | Append | Read | _Expire | _Leave


class StreamActor(Worker):
    """One partition of one stream."""

    mailbox_messages_max = 4_096
    on_failure = "restart"
    idle_seconds = 60.0

    subscription_actor: Callable[..., SubscriptionActor] = SubscriptionActor
    _appends: Appends

    def __init__(
        self, context: StreamContext, own_address: bytes, name: str, partition: int
    ) -> None:
        self._context = context
        self._own_address = own_address
        self._name = name
        self._partition = partition
        self._log = UNKNOWN
        # Shared empty values stand here while there is nothing: see W4 in benchmarks/.
        self._waiting: Sequence[Request] = ()
        self._finding = False
        self._outdated = False
        self._missed = 0
        self._in_flight = 0
        self._oversized: Oversized | None = None

    def may_passivate(self) -> bool:
        """Stay while a submitted operation needs this instance."""
        if self._finding or self._in_flight:
            return False
        return self._log == UNKNOWN or not self._appends.in_flight

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take requests from links and completed operations from the store."""
        match message:
            case Delivery() | AppendEntries():
                if self._log == UNKNOWN:
                    self._find(message)
                else:
                    self._take(message)
            case FindStream():
                self._found(message)
            case _Expire(deliveries=seen):
                self._expire(seen)
            case _Leave():
                if self._log == UNKNOWN and not self._finding:
                    self.system.exit(self.address)
            case Append():
                self._appended(message)
            case Read():
                self._in_flight = max(0, self._in_flight - 1)
                self._read(message)
            case StreamRecord():
                if self._log == log_id(message.id, self._partition):
                    self._appends.update(message)
            case StreamRemoved(record=record):
                self._removed(record)
            case _:
                assert_never(message)

    # Finding the stream ----------------------------------------------------------------------

    def _find(self, message: Request) -> None:
        self._waiting = [*self._waiting, message]
        if isinstance(message, Delivery):
            # It may all be pulls: its connection must not hand on more and more of them.
            message.origin.account.reserved_bytes += message.answers_bytes_max
        if not self._finding:
            self._finding = True
            self._look()

    def _look(self) -> None:
        operation = FindStream(reply_to=self.address, name=self._name)
        if self._context.store.read(operation):
            self._found(operation)

    def _found(self, operation: FindStream) -> None:
        if self._outdated:
            # A stream was removed while the store was looking, and may be what it found.
            self._outdated = False
            self._look()
            return
        waiting = self._found_out()
        record = operation.record
        if record is not None and self._partition < record.partitions:
            self._log = log_id(record.id, self._partition)
            self._appends = Appends(
                self._context, self.address, self._own_address, self._log, record.owner
            )
            self._appends.update(record)
            if self._context.quotas.enabled:
                self._context.quotas.found(record, operation.extents)
            self._take_all(waiting)
            return
        for message in waiting:
            self._lose(message, operation.error)
        self._leave_later(len(waiting))

    def stopped(self) -> None:
        """Leave what waits to the instance that comes after this one."""
        for message in self._found_out():
            self.system.post(self.address, message)

    def _found_out(self) -> Sequence[Request]:
        """Nothing is looked for any more: what has waited for it, in order."""
        waiting, self._waiting = self._waiting, ()
        if self._finding:
            self._finding = False
            for message in waiting:
                if isinstance(message, Delivery):
                    message.origin.account.reserved_bytes -= message.answers_bytes_max
        return waiting

    def _take_all(self, waiting: Sequence[Request]) -> None:
        """Take what has waited; what fails costs nobody else's message its outcome."""
        for place, message in enumerate(waiting):
            try:
                self._take(message)
            except BaseException:
                self._waiting = waiting[place + 1 :]
                error = ActorError("actor.failed", "The node failed at this request")
                self.system.outcomes[type(message)](message, error)
                raise

    def _lose(self, message: Request, error: StoreError | None) -> None:
        """There is no stream, or it could not be looked up."""
        match message:
            case Delivery() if error is not None:
                # Who has come so far may know the stream: not known is not "there is none".
                self._context.router.undeliverable(error.code, message, error.code, error.text)
            case Delivery():
                self._context.router.undeliverable("unknown_address", message)
            case AppendEntries():
                message.answer(-1, error or UNKNOWN_STREAM)

    def _leave_later(self, missed: int) -> None:
        self._missed += missed
        self.wake_after(MISSING_SECONDS, _Expire(self._missed))

    def _removed(self, record: StreamRecord) -> None:
        """Forget a stream that is no more; there may be another of its name by now."""
        self._outdated = self._finding
        if self._log == log_id(record.id, self._partition):
            self._forget()
        elif self._log == UNKNOWN:
            self._leave_later(1)

    def _forget(self) -> None:
        self._log = UNKNOWN
        self._oversized = None
        self._in_flight += self._appends.in_flight
        self._leave_later(1)

    def _expire(self, missed: int) -> None:
        """End an actor without a stream, once nothing has come for a while and all is answered."""
        if self._log != UNKNOWN or self._finding or missed != self._missed:
            return
        if self._in_flight:
            self._leave_later(0)
        else:
            self._context.router.unregister(self._own_address)
            # What is on its way already comes before this message, and is still answered.
            self.system.post(self.address, _Leave())

    # Requests --------------------------------------------------------------------------------

    def _take(self, message: Request) -> None:
        match message:
            case Delivery():
                self._requests(message)
            case AppendEntries(log=log) if log != self._log:
                message.answer(-1, removed_error(log >> 32))
            case AppendEntries():
                self._appends.inserted(message)

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
                if not is_error(error):
                    answers.append((wire.return_route, invalid_request(error)))
                continue
            if isinstance(request, PushRequest):
                if "push" not in verbs:
                    refused.append(wire)
                elif len(request.data) > ENTRY_BYTES_MAX or not can_be_pulled(
                    origin, wire.return_route, request
                ):
                    self._context.router.undelivered["entry_too_large"] += 1
                    answers.append((wire.return_route, confirm(request, Status.ERROR, 0)))
                else:
                    pushes.append((wire.return_route, request))
            elif NEEDS.get(type(request), "admin") not in verbs:
                refused.append(wire)
            elif isinstance(request, native.UnsubscribeRequest):
                self._unsubscribe(origin, wire, request)
            else:
                self._request(origin, wire.return_route, request, answers)
        if pushes:
            self._appends.pushes(origin, pushes)
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
                self._appends.block(origin, return_route, request, answers)
            case PullRequest():
                self._pull(origin, return_route, request, answers)
            case native.ReadRequest():
                self._submit_read(
                    Read(
                        log=self._log,
                        index=request.index,
                        entries_max=request.entries_max,
                        bytes_max=native.block_budget(origin.message_bytes_max, request.bytes_max),
                        token=NativeRead(origin, return_route, request.request_id),
                    ),
                    origin,
                )
            case native.SubscribeRequest():
                self._subscribe(origin, return_route, request)
            case _:
                answers.append((return_route, invalid_request(request)))

    def _appended(self, operation: Append) -> None:
        settle(self._context, self._own_address, operation)
        # What an instance before a restart has submitted was never counted by this one.
        if operation.log != self._log:
            self._in_flight = max(0, self._in_flight - 1)
            return
        self._appends.in_flight = max(0, self._appends.in_flight - 1)
        if operation.error is not None and operation.error.code == "stream.removed":
            self._forget()

    # Reading ---------------------------------------------------------------------------------

    def _pull(
        self,
        origin: Origin,
        return_route: Route,
        request: PullRequest,
        answers: list[tuple[Route, bytes]],
    ) -> None:
        pull = Pull(origin, return_route, request, origin.message_bytes_max, request.index)
        if pull.limit == 0:
            answers.append((return_route, encode_pulled(request, [])))
            return
        if self._oversized is not None:
            index = self._oversized.behind(request.index, pull.entry_bytes_max())
            pull = replace(pull, first_index=index)
        self._submit_read(_reading(self._log, pull), origin)

    def _submit_read(self, operation: Read, origin: Origin) -> None:
        if self._issue(operation, origin):
            self._read(operation)

    def _issue(self, operation: Read, origin: Origin) -> bool:
        """Read for a peer; return whether that is complete at once, and else is sent back."""
        operation.reply_to = self.address
        store = self._context.store
        complete = (origin.room(store) or store).read(operation)
        if not complete:
            self._in_flight += 1
        return complete

    def _read(self, operation: Read) -> None:
        while True:
            asked: Pull | NativeRead = operation.token
            if isinstance(asked, NativeRead):
                self._answer(asked, asked.answer(operation))
                return
            if operation.error is not None:
                self._answer(asked, invalid_request(asked.request, operation.error.text))
                return
            found = collect(asked, operation, self._own_address)
            if found.too_large and operation.log == self._log:
                self._passed_over(asked, found)
            look_bytes = asked.look_bytes - found.too_large_bytes
            if found.messages or look_bytes <= 0 or not found.too_large:
                payload = encode_pulled(asked.request, found.messages)
                self._answer(asked, payload, unnamed=found.unnamed)
                return
            # The answer has the entries behind them: who asks can only go on from what it gets.
            pull = replace(
                asked,
                first_index=found.next_index,
                look_bytes=look_bytes,
                read_bytes_max=LOOK_READ_BYTES,
            )
            operation = _reading(operation.log, pull)
            if not self._issue(operation, pull.origin):
                return

    def _answer(self, asked: Pull | NativeRead, payload: bytes, *, unnamed: bool = False) -> None:
        if unnamed:
            message = WireMessage(asked.return_route, (), payload)
            self._context.router.route(asked.origin, [message])
        else:
            answer = (asked.return_route, payload)
            self._context.router.reply(asked.origin, self._own_address, [answer])

    def _passed_over(self, pull: Pull, found: Collected) -> None:
        """Count entries that somebody does not get, and remember where they lie."""
        if self._oversized is None:
            self._oversized = Oversized()
        self._oversized.note(found.first_index, found.next_index, found.largest)
        self._context.router.undelivered["entry_skipped"] += found.too_large
        logger.info(
            "entries_skipped",
            extra={
                "stream": self._name,
                "index": found.first_index,
                "entries": found.too_large,
                "bytes": found.too_large_bytes,
                "bytes_max": found.largest,
            },
        )

    def _subscribe(
        self, origin: Origin, return_route: Route, request: native.SubscribeRequest
    ) -> None:
        if len(origin.attached) >= SUBSCRIPTIONS_PER_LINK_MAX:
            limit = RequestError("subscription.limit", "This link has too many subscriptions")
            answer = (return_route, failed(request.request_id, limit))
            self._context.router.reply(origin, self._own_address, [answer])
            return
        actor = partial(
            self.subscription_actor,
            self._context,
            self._name,
            self._log,
            origin,
            return_route,
            request,
        )
        cell = self.system.spawn(actor)
        self._context.followers.add(self._log, cell, (origin, request.request_id))
        origin.attach(cell)

    def _unsubscribe(
        self, origin: Origin, wire: WireMessage, request: native.UnsubscribeRequest
    ) -> None:
        """Pass it on: who has got no answer yet knows no other address."""
        cell = self._context.followers.asked(self._log, (origin, request.request_id))
        if cell is not None:
            self.system.post(cell, Delivery(origin, (wire,)))


def _reading(log: int, pull: Pull) -> Read:
    """The next read for a pull."""
    return Read(
        log=log,
        index=pull.first_index,
        entries_max=pull.limit,
        bytes_max=pull.read_bytes_max,
        token=pull,
    )
