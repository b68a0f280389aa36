"""The stream actor: one partition's log as the protocols see it.

An instance is made by the first message for its address, and asks the store for the stream's record
before it serves that message; others wait in the mailbox meanwhile. Where there is no such stream
who may know of it is told so, others as if there were one, and the actor goes again.

All pushes of one mailbox turn become one append; they are confirmed when the store has made them
durable. What a native client's producer has numbered is stored once (`actors/log/producers.py`);
nothing is known again by its request id: another publisher that sends twice is stored twice.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from typing import Any, ClassVar, Final, assert_never

from msgspec.structs import force_setattr

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error, unknown_stream
from rillnode.actors.core.streams.appending import Appends, Refused, was_stored
from rillnode.actors.core.streams.asked import Answers, confirm, is_allowed
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext, StreamRemoved
from rillnode.actors.core.streams.pulling import can_be_pulled
from rillnode.actors.core.streams.reading import Reads
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    Append,
    FindStream,
    Locate,
    OpenProducer,
    Read,
    StreamRecord,
    log_id,
    removed_error,
)
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import ENTRY_BYTES_MAX, SUBSCRIPTIONS_PER_LINK_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import Route, WireMessage
from rillnode.codecs.routing.stream import PullRequest, PushRequest, Status
from rillnode.codecs.where import Where

logger = event_logger("rillnode.actors.core.streams.stream")

UNKNOWN: Final = -1
"""Stands for the log until the stream is found."""

NOT_YET: Final[Any] = None
"""Likewise, for what appends to it."""

MISSING_SECONDS: Final = 1.0
"""How long an actor stays for whose address there is no stream."""


@dataclass(frozen=True, slots=True)
class _Expire:
    """Time to end, if nothing has missed the stream since."""

    missed: int


@dataclass(frozen=True, slots=True)
class _Leave:
    """Nothing follows: end."""


Message = Delivery | StreamRecord | StreamRemoved | _Expire | _Leave


class StreamActor(Worker):
    """A partition of a stream, at `ST_S_<partition>_<name>`."""

    mailbox_messages_max = 4_096
    spare: ClassVar = {StreamRemoved: STREAM_CHANGES_MAX, _Leave: 1}
    on_failure = "restart"
    idle_seconds = 60.0
    batches: ClassVar = {"_take": "pull"}

    def __init__(
        self, context: StreamContext, own_address: bytes, name: str, partition: int
    ) -> None:
        self._context = context
        self._own_address = own_address
        self._name = name
        self._partition = partition
        self._log = UNKNOWN
        self._created_at = 0
        # All that an instance ever has is named here: what came later would take a dictionary.
        self._appends: Appends = NOT_YET
        self._reads: Reads | None = None  # until somebody reads
        self._missed = 0
        self.operations_due = 0

    def handle(self, message: Message, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """Take requests, and what becomes of the stream; while it is looked for all else waits."""
        match message:
            case Delivery():
                if self._log == UNKNOWN:
                    return self._find(message)
                self._take(message)
            case StreamRecord():
                if self._log == log_id(message.id, self._partition):
                    self._appends.update(message)
            case StreamRemoved(record=record):
                if self._log in (UNKNOWN, log_id(record.id, self._partition)):
                    self._forget()
            case _Expire(missed=missed):
                if self._log == UNKNOWN and missed == self._missed:
                    self._context.router.unregister(self._own_address)
                    # What is on its way already comes before this message, and is still answered.
                    self.system.post(self.address, _Leave())
            case _Leave():
                self._leave()
            case _:
                assert_never(message)
        return None

    def owes(self) -> bool:
        """Whether appends or reads are under way, all of which somebody has asked for."""
        return self.operations_due > 0

    # Finding the stream ----------------------------------------------------------------------

    async def _find(self, message: Delivery) -> None:
        """Look for the stream, then serve who has asked."""
        account, reserved = message.origin.account, message.answers_bytes_max
        # It may all be pulls: its connection must not hand on more and more of them.
        account.reserved_bytes += reserved
        try:
            error = await self._look()
        finally:
            account.reserved_bytes -= reserved
        if error is None:
            self._take(message)
        else:
            self._lose(message, error)

    async def _look(self) -> RillnodeError | None:
        """Ask the store for the stream; return why it cannot be served."""
        context, find = self._context, FindStream(name=self._name)
        with context.removals as removed:
            while True:
                try:
                    await read(context.store, find)
                except StoreError as error:
                    return error
                record = find.record
                if record is None or record.id not in removed:
                    break
                find = FindStream(name=self._name)
        if record is None or self._partition >= record.partitions:
            return unknown_stream(self._name)
        self._log = log_id(record.id, self._partition)
        self._created_at = record.created_at
        self._appends = Appends(context, self._own_address, self._log, record.owner)
        self._appends.update(record)
        self._reads = None
        if context.quotas.enabled:
            context.quotas.found(record, find.extents)
        return None

    def _lose(self, message: Delivery, error: RillnodeError) -> None:
        """There is no stream, or it could not be looked up."""
        if isinstance(error, StoreError):
            # Who has come so far may know the stream: not known is not "there is none".
            self._context.router.refuse(error.code, message, error)
        elif self._context.access.verbs(message.origin.principal, self._name):
            self._context.router.undeliverable("unknown_address", message, error)
        else:
            self._context.router.keep_out(self._own_address, message)
        self._leave_later()

    def _forget(self) -> None:
        """The stream is no more; there may be another of its name by now."""
        self._log = UNKNOWN
        self._leave_later()

    def _leave_later(self) -> None:
        self._missed += 1
        self.wake_after(MISSING_SECONDS, _Expire(self._missed))

    def _leave(self) -> None:
        """End, unless the stream was found just then and nobody has taken the place."""
        router = self._context.router
        if self._log != UNKNOWN and router.lookup(self._own_address) is None:
            router.register(self._own_address, self.address)
        else:
            self.system.exit(self.address)

    # Requests --------------------------------------------------------------------------------

    def batch_of(self) -> tuple[str, int]:
        """The partition."""
        return self._name, self._partition

    def _take(self, delivery: Delivery) -> None:
        origin = delivery.origin
        verbs = self._context.access.verbs(origin.principal, self._name)
        if not verbs:
            self._context.router.keep_out(self._own_address, delivery)
            return
        pushes: list[tuple[Route, PushRequest]] = []
        refused: list[WireMessage] = []
        answers: Answers = []
        pending = iter(delivery.messages)
        try:
            for wire in pending:
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
                elif not is_allowed(request, verbs):
                    refused.append(wire)
                else:
                    self._request(origin, wire, request, answers)
        except BaseException:
            # Those before it have their outcome below: only the others are told of the failure.
            left = length_hint(pending) + 1
            force_setattr(delivery, "messages", delivery.messages[-left:])
            raise
        finally:
            if pushes:
                for append in self._appends.pushes(origin, pushes):
                    self._append(append)
            if answers:
                self._context.router.reply(origin, self._own_address, answers)
            if refused:
                self._context.router.keep_out(self._own_address, Delivery(origin, refused))

    def _request(
        self, origin: Origin, wire: WireMessage, request: object, answers: Answers
    ) -> None:
        return_route = wire.return_route
        match request:
            case native.AppendRequest():
                self._append(self._appends.block(origin, return_route, request, answers))
            case PullRequest():
                self._issue(self._reading().pull(origin, return_route, request, answers))
            case native.ReadRequest() | native.SearchRequest() | native.SubscribeRequest() if (
                request.created_at not in (0, self._created_at)
            ):
                error = removed_error(self._log >> 32)
                answers.append((return_route, failed(request.request_id, error)))
            case native.ReadRequest():
                self._issue(self._reading().blocks(origin, return_route, request))
            case native.OpenProducerRequest():
                self._open(self._appends.opening(origin, return_route, request, answers))
            case native.SearchRequest():
                self._issue(self._reading().matching(origin, return_route, request, answers))
            case native.LocateRequest():
                self._issue(self._reading().locate(origin, return_route, request))
            case native.SubscribeRequest():
                self._subscribe(origin, return_route, request)
            case native.UnsubscribeRequest():
                self._unsubscribe(origin, wire, request)
            case _:
                answers.append((return_route, invalid_request(request)))

    def _append(self, append: Append | Refused | None) -> None:
        if isinstance(append, Refused):
            self.begin(self._append_again(append), partial(self._appends.refuse, append))
        elif append is not None:
            self._context.store.submit(self.then(append, self._appended, self._appends.settle))

    async def _append_again(self, refused: Refused) -> None:
        """Answer what was stored before, which no quota refuses."""
        if await was_stored(self._context.store, refused.append):
            self._append(refused.append)
        else:
            self._appends.refuse(refused)

    def _appended(self, append: Append) -> None:
        self._appends.settle(append)
        self._written(append)

    def _open(self, opening: OpenProducer | None) -> None:
        if opening is not None:
            self._context.store.submit(self.then(opening, self._opened, self._appends.opened))

    def _opened(self, opening: OpenProducer) -> None:
        self._appends.opened(opening)
        self._written(opening)

    def _written(self, operation: Append | OpenProducer) -> None:
        error = operation.error
        if error is not None and error.code == "stream.removed" and operation.log == self._log:
            self._forget()

    def _issue(self, operation: Read | Locate | None) -> None:
        """Read for a peer, and what follows from it; some reads are complete at once."""
        store, reads = self._context.store, self._reading()
        while operation is not None:
            reader = operation.token.origin.room(store) or store
            if not reader.read(self.then(operation, self._read, reads.late)):
                return
            self.operations_due -= 1
            operation = reads.done(operation)

    def _read(self, operation: Read | Locate) -> None:
        self._issue(self._reading().done(operation))

    def _reading(self) -> Reads:
        if self._reads is None:
            self._reads = Reads(self._context, self._own_address, self._name, self._log)
        return self._reads

    def _subscribe(
        self, origin: Origin, return_route: Route, request: native.SubscribeRequest
    ) -> None:
        try:
            if len(origin.attached) >= SUBSCRIPTIONS_PER_LINK_MAX:
                raise RequestError("subscription.limit", "This link has too many subscriptions")
            where = Where(request.where) if request.where else None
        except RillnodeError as error:
            answer = (return_route, failed(request.request_id, error))
            self._context.router.reply(origin, self._own_address, [answer])
            return
        actor = partial(
            self._context.actor(SubscriptionActor),
            self._context,
            self._name,
            self._log,
            origin,
            return_route,
            request,
            where,
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
