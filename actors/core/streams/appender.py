"""Appends to many partitions by one request.

A request brings a block for each of up to `APPENDS_MAX` partitions, and has one answer, when all
that could be appended is durable. No stream's actor takes part, so what an entry costs depends on
how much comes together and not on how many streams it is for.

What comes over one link is stored in its order, and so is what goes to a stream's own actor;
nothing keeps the order between the two. So a client sends what it has for one partition by one of
these ways until all of it is answered.
"""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.router import UNKNOWN
from rillnode.actors.core.streams.answers import failed, invalid_request, unknown_stream
from rillnode.actors.core.streams.appending import Appends, Gathered, Part, Refused, was_stored
from rillnode.actors.core.streams.context import (
    ADDRESS_PREFIX,
    StreamContext,
    StreamRemoved,
    parse_stream_address,
    stream_address,
)
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append, FindStream, StreamRecord, log_id
from rillnode.actors.log.waiting import read, write
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.limits import APPENDS_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import WireMessage

ADDRESS: Final = b"appender"

PARTITIONS_MAX: Final = 65_536
"""Partitions known as being in use, and as many again that may be so no more."""

TOLD_PARTITIONS_MAX: Final = 16
"""Of a stream with more, only those are known that were looked for."""


class Partition(Appends):
    """A partition that something was appended to lately."""

    __slots__ = ("name",)

    def __init__(
        self, context: StreamContext, address: bytes, log: int, name: str, owner: str
    ) -> None:
        self.name = name
        super().__init__(context, address, log, owner)


class _Told(Struct, gc=False, frozen=True):
    """A partition that was told of: most are never pushed to, so that it is not more than this."""

    log: int
    owner: str


class Partitions:
    """The partitions of a node that are appended to so, by address.

    There are two generations: when the young one is full it becomes the old one, and what has not
    been used since then is forgotten.
    """

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._young: dict[bytes, Partition | _Told] = {}
        self._old: dict[bytes, Partition | _Told] = {}
        self._looking = 0
        self._told: dict[str, StreamRecord | None] = {}

    def __enter__(self) -> Mapping[str, StreamRecord | None]:
        """Somebody looks for streams: what is told of any from now on, until nobody does.

        That is newer than what the store finds meanwhile.
        """
        self._looking += 1
        return self._told

    def __exit__(self, *_: object) -> None:
        self._looking -= 1
        if not self._looking:
            self._told = {}

    def find(self, address: bytes) -> Partition | None:
        """A partition, if it is known."""
        known = self._young.get(address)
        if known is None and (known := self._old.pop(address, None)) is not None:
            self._young[address] = known
        if isinstance(known, _Told):
            parsed = parse_stream_address(address)
            assert parsed is not None, "it was made of a name"
            known = Partition(self._context, address, known.log, parsed[0], known.owner)
            del self._young[address]  # the key that there was: one address is enough
            self._young[address] = known
        return known

    def add(self, address: bytes, number: int, record: StreamRecord) -> None:
        """Know one more, of which something is wanted."""
        log = log_id(record.id, number)
        known = Partition(self._context, address, log, record.name, record.owner)
        known.update(record)
        self._keep(address, known)

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Take over what is told of a stream, or forget one that is no more.

        Who opens a stream is likely to push to it: then it need not be looked for.
        """
        record = change.record if isinstance(change, StreamRemoved) else change
        if self._looking:
            self._told[record.name] = record if change is record else None
        for number in range(record.partitions):
            address, log = stream_address(record.name, number), log_id(record.id, number)
            known = self._young.get(address) or self._old.get(address)
            if change is record and isinstance(known, Partition) and known.log == log:
                known.update(record)
            elif change is record and record.partitions <= TOLD_PARTITIONS_MAX:
                if record.require_signed:
                    self.add(address, number, record)
                else:
                    self._keep(address, _Told(log, record.owner))
            else:
                self._young.pop(address, None)
                self._old.pop(address, None)

    def _keep(self, address: bytes, known: Partition | _Told) -> None:
        if len(self._young) >= PARTITIONS_MAX:
            self._old, self._young = self._young, {}
        self._young[address] = known
        self._old.pop(address, None)

    def forget(self, partition: Partition) -> None:
        """Its stream is no more; harmless when repeated."""
        if self._young.get(partition.address) is partition:
            del self._young[partition.address]


class AppenderService(Worker):
    """Hands each link's appends to an actor of its own, at `appender`; one per node."""

    mailbox_messages_max = 16_384
    on_failure = "resume"

    def __init__(self, context: StreamContext, partitions: Partitions) -> None:
        self._new = partial(AppenderActor, context, partitions)

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        origin = message.origin
        cell = origin.appender
        if cell is None or cell.mailbox is GONE:
            cell = origin.appender = self.system.spawn(partial(self._new, origin.principal))
            origin.attach(cell)
        message.again()
        # Not by `send`: where there is no room who has asked is told, and this has not failed.
        self.system.post(cell, message)


class AppenderActor(Worker):
    """Appends what one link has for many partitions, in the order of its coming."""

    mailbox_messages_max = 4_096
    on_failure = "resume"

    def __init__(self, context: StreamContext, partitions: Partitions, principal: str) -> None:
        self._context = context
        self._partitions = partitions
        self._principal = principal
        self.operations_due = 0

    def handle(self, message: Delivery, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """Take requests; while partitions are looked for, what is behind waits."""
        messages = message.messages
        for number, wire in enumerate(messages):
            # Those before it have their outcome: of a failure only the others are told.
            force_setattr(message, "messages", messages[number:])
            request = self._decode(message.origin, wire)
            if request is None:
                continue
            partitions = [self._partitions.find(item.address) for item in request.items]
            if None in partitions and self._missing(request):
                return self._look_and_append(message)
            self._append(message.origin, wire, request, partitions, {})
        return None

    def owes(self) -> bool:
        """Whether appends are under way, all of which somebody has asked for."""
        return self.operations_due > 0

    async def _look_and_append(self, message: Delivery) -> None:
        messages = message.messages
        for number, wire in enumerate(messages):
            force_setattr(message, "messages", messages[number:])
            request = self._decode(message.origin, wire)
            if request is not None:
                failures = await self._look_for(self._missing(request))
                partitions = [self._partitions.find(item.address) for item in request.items]
                self._append(message.origin, wire, request, partitions, failures)

    def _decode(self, origin: Origin, wire: WireMessage) -> native.AppendManyRequest | None:
        """A request; None where there is none, which is answered."""
        request: object
        try:
            request = decode_request(wire.payload, speaks_native=origin.native)
        except CodecError as error:
            request = error
        if isinstance(request, native.AppendManyRequest):
            if len(request.items) <= APPENDS_MAX:
                return request
            text = f"One request appends to at most {APPENDS_MAX} partitions: send several"
            payload = failed(request.request_id, RequestError("append.many", text))
        else:
            payload = invalid_request(request)
        self._context.router.reply(origin, ADDRESS, [(wire.return_route, payload)])
        return None

    # Partitions ------------------------------------------------------------------------------

    def _missing(self, request: native.AppendManyRequest) -> dict[bytes, tuple[str, int]]:
        """Names and numbers of the partitions that are to be looked for, by their addresses."""
        missing: dict[bytes, tuple[str, int]] = {}
        for item in request.items:
            address = item.address
            if self._partitions.find(address) is None and address.startswith(ADDRESS_PREFIX):
                parsed = parse_stream_address(address)
                if parsed is not None and self._may_push(parsed[0]):
                    missing[address] = parsed
        return missing

    def _may_push(self, name: str) -> bool:
        return "push" in self._context.access.verbs(self._principal, name)

    async def _look_for(
        self, missing: dict[bytes, tuple[str, int]]
    ) -> Mapping[bytes, RillnodeError]:
        """Look for partitions; return why some could not be looked for."""
        if not missing:
            return {}
        context, failures = self._context, dict[bytes, RillnodeError]()
        finds = {name: FindStream(name=name) for name, _ in missing.values()}
        with self._partitions as told:
            with suppress(StoreError):  # each of them has its own
                await read(context.store, *finds.values())
            for find in finds.values():
                if context.quotas.enabled and find.record is not None and find.name not in told:
                    context.quotas.found(find.record, find.extents)
            for address, (name, number) in missing.items():
                find = finds[name]
                record = told.get(name, find.record)
                if find.error is not None:
                    failures[address] = find.error
                elif record is not None and number < record.partitions:
                    self._partitions.add(address, number, record)
        return failures

    # Appends ---------------------------------------------------------------------------------

    def _append(
        self,
        origin: Origin,
        wire: WireMessage,
        request: native.AppendManyRequest,
        partitions: Sequence[Partition | None],
        failures: Mapping[bytes, RillnodeError],
    ) -> None:
        gathered = Gathered(self._context, ADDRESS, origin, wire.return_route, request)
        appends: list[Append] = []
        refused: list[Refused] = []
        for number, (item, known) in enumerate(zip(request.items, partitions, strict=True)):
            if known is None or not self._may_push(known.name):
                # To the client what is not there and what is not its own look the same.
                self._context.router.undelivered["refused"] += 1
                error = failures.get(item.address)
                gathered.note(number, -1, error or self._refusal(item.address))
                continue
            append = known.part(gathered, number, item, request.producer, self._principal)
            if isinstance(append, Refused):
                refused.append(append)
            elif append is not None:
                appends.append(append)
        if refused:
            gathered.looks(on=True)
            work = self._append_again(gathered, refused)
            self.begin(work, partial(_refuse, gathered, refused))
        if not appends:
            gathered.answer()
            return
        self.then_all(appends, self._stored, _settle)
        submit = self._context.store.submit
        for append in appends:
            submit(append)

    async def _append_again(self, gathered: Gathered, refused: Sequence[Refused]) -> None:
        """Note what was stored before, which no quota refuses."""
        store, again = self._context.store, list[Append]()
        for one in refused:
            part: Part = one.append.token
            if await was_stored(store, one.append):
                again.append(one.append)
            else:
                part.appends.refuse(one)
        with suppress(StoreError):  # each of them has its own
            await write(store, *again)
        for append in again:
            append.token.appends.settle(append)
        gathered.looks(on=False)

    def _refusal(self, address: bytes) -> RillnodeError:
        parsed = parse_stream_address(address)
        if parsed is None:
            return UNKNOWN
        if self._may_push(parsed[0]):
            return unknown_stream(parsed[0])
        return not_granted("stream.unknown", self._principal, "push", parsed[0])

    def _stored(self, appends: Sequence[Append]) -> None:
        for append in appends:
            if append.error is not None and append.error.code == "stream.removed":
                self._partitions.forget(append.token.appends)
        _settle(appends)


def _refuse(gathered: Gathered, refused: Sequence[Refused], error: RillnodeError) -> None:
    """It is not known whether these were stored before."""
    for one in refused:
        part: Part | None = one.append.token
        if part is not None:
            part.appends.refuse(one, error)
    gathered.looks(on=False)


def _settle(appends: Sequence[Append]) -> None:
    """All are durable, or have failed; harmless when repeated."""
    gathered: Gathered | None = None
    for append in appends:
        if append.token is not None:
            part: Part = append.token
            gathered = part.gathered
            part.appends.settle(append)
    if gathered is not None:
        gathered.answer()
