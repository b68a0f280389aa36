"""The stream service: makes streams, tells their addresses, describes, trims and removes them.

Work on one name is done in the order of its arrival: while the store is asked about a name, what
else arrives for it waits. No answer depends on what this process has seen before. Who may do
nothing with a name is refused before anything is looked up, as if there were no such stream.
"""

from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import msgspec

from rillnode.actors.core.access import NODE_PRINCIPAL, Verb
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.streams.answers import (
    creation_done,
    invalid_request,
    is_error,
    refused,
    removal_done,
    unknown_stream,
)
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext, stream_address
from rillnode.actors.core.streams.describe import retention_of, stream_info, told
from rillnode.actors.core.streams.listing import Page
from rillnode.actors.core.streams.records import Changed, Found, Named, Records, Wanted
from rillnode.actors.core.streams.revising import EnsureStream, Revised, ReviseStream
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.core.streams.watching import StreamWatchActor, check_pattern
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    ListStreams,
    Retention,
    StoreHealth,
    StreamRecord,
    removed_error,
)
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import NAME_BYTES_MAX, OPENS_MAX, PARTITIONS_MAX, WATCHES_PER_LINK_MAX
from rillnode.codecs.requests import decode_service_request
from rillnode.codecs.routing import stream_admin
from rillnode.codecs.routing.stream import CreatePartitionedRequest, CreateRequest

logger = event_logger("rillnode.actors.core.streams.service")

ADDRESSES = (b"stream", b"stream_service", b"stream_kafka")
"""Of nodes since 2021-05, the specification's, and of nodes that kept their streams in Kafka: these
are in guides and examples until 2024."""


@dataclass(slots=True, eq=False)
class _Ask(ServiceRequest):
    """One request of a peer."""

    def describe(self, name: str, found: Found) -> None:
        """Answer how the stream is now."""
        self.reply(told(self.request, _there(name, found.record), found.extents))

    def refuse(self, error: RillnodeError) -> None:
        """Answer why it was not done."""
        self.reply(refused(self.request, error))


class StreamService(Worker):
    """The stream service, at `stream` and its other names; one per node."""

    mailbox_messages_max = STREAM_CHANGES_MAX
    on_failure = "restart"
    interleaves = True
    essential = True

    def __init__(self, context: StreamContext, changed: Changed, rules: StreamRules) -> None:
        self._context = context
        self._rules = rules
        self._records = Records(context, changed)

    def handle(
        self, message: Delivery | EnsureStream | ReviseStream | StoreHealth, sender: Cell | None
    ) -> Coroutine[Any, Any, None] | None:
        """Take requests."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    ask = _Ask(self._context.router, origin, wire)
                    self.begin(self._serve(ask), ask.refuse)
                return None
            case EnsureStream():
                return self._ensure(message)
            case ReviseStream():
                return self._revise(message, sender)
            case StoreHealth(writable=writable):
                return self._look_again() if writable else None
            case _:
                assert_never(message)

    # Requests --------------------------------------------------------------------------------

    async def _serve(self, ask: _Ask) -> None:
        try:
            ask.request = decode_service_request(ask.wire.payload, speaks_native=ask.origin.native)
        except CodecError as error:
            logger.info("bad_request", extra={"code": error.code})
            if not is_error(error):
                ask.reply(invalid_request(error))
            return
        match ask.request:
            case CreateRequest(stream_name=name):
                await self._create(ask, name, 1)
            case CreatePartitionedRequest(stream_name=name, partitions=partitions):
                await self._create(ask, name, partitions)
            case native.OpenRequest(name=name, partitions=partitions):
                await self._create(ask, name or None, partitions)
            case native.OpenManyRequest(names=names, partitions=partitions):
                await self._open_many(ask, names, partitions)
            case native.DescribeRequest(name=name):
                self._admit(ask, name, None, "pull")
                async with self._records.of(name) as stream:
                    ask.describe(name, await stream.change(partial(_there, name)))
            case native.TrimRequest(name=name, partition=partition, before=before) as trim:
                self._admit(ask, name, "admin", "admin")
                async with self._records.of(name) as stream:
                    first = await self._trim(name, stream, partition, before, trim.created_at)
                ask.reply(native.encode(native.PositionResponse(ask.request.request_id, first)))
            case native.RemoveRequest(name=name, created_at=created_at):
                self._admit(ask, name, "admin", "admin")
                await self._remove(ask, name, created_at)
            case stream_admin.AdminRequest(command=command):
                self._admit(ask, command.stream_name, "admin", "admin")
                await self._administer(ask, command)
            case native.WatchStreamsRequest():
                self._watch(ask, ask.request)
            case native.ListRequest():
                await self._list(ask, ask.request)
            case _:
                ask.reply(invalid_request(ask.request))

    async def _create(self, ask: _Ask, name: str | None, partitions: int) -> None:
        """Open a stream, and make it, or more partitions of it, where that is needed."""
        if name is None:
            name = f"generated_{self._context.entropy(4).hex()}"
        wanted = self._opened(ask, name, partitions)
        async with self._records.of(name) as stream:
            found = await stream.change(wanted)
            if isinstance(ask.request, native.OpenRequest):
                ask.describe(name, found)
                return
            # One INIT for each partition asked for, from the stream's address.
            for partition in range(min(partitions, _there(name, found.record).partitions)):
                payload = creation_done(ask.request, name, partition)
                answer = (ask.wire.return_route, payload)
                self._context.router.reply(ask.origin, stream_address(name, partition), [answer])

    def _opened(self, ask: _Ask, name: str, partitions: int) -> Wanted:
        """What a stream is to be that is asked for. Raises RequestError: it may not be."""
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not 0 < partitions <= PARTITIONS_MAX:
            text = (
                f"A stream has a name of 1 to {NAME_BYTES_MAX} bytes "
                f"and 1 to {PARTITIONS_MAX} partitions"
            )
            raise RequestError("stream.invalid", text)
        self._admit(ask, name, None, "create")
        if partitions > self._rules.find(name).partitions_max:
            raise self._too_many_partitions(name)
        return partial(self._with_partitions, ask.origin.principal, name, partitions)

    async def _open_many(self, ask: _Ask, names: Sequence[str], partitions: int) -> None:
        """Open streams as `_create` does each, with as many steps for all as for one."""
        if len(names) > OPENS_MAX:
            raise RequestError("stream.many", f"One request opens at most {OPENS_MAX} streams")
        outcomes: dict[str, Found | RillnodeError] = {}
        wanted: dict[str, Wanted] = {}
        for name in dict.fromkeys(names):
            try:
                wanted[name] = self._opened(ask, name, partitions)
            except RequestError as error:
                outcomes[name] = error
        async with AsyncExitStack() as stack:
            # Two that want the same ones ask for them in one order, and so never wait in a circle.
            steps = [
                (await stack.enter_async_context(self._records.of(name)), wanted[name])
                for name in sorted(wanted)
            ]
            found = await self._records.change_all(steps)
        outcomes |= zip(sorted(wanted), found, strict=True)
        page, failures = Page[native.StreamInfo](), list[native.Failure]()
        for number, name in enumerate(names):
            outcome = outcomes.pop(name, None)
            if isinstance(outcome, RillnodeError):
                failures.append(native.Failure.of(number, outcome))
            elif outcome is not None and not page.full:
                info = stream_info(_there(name, outcome.record), outcome.extents)
                page.take((info,), lambda info: len(info.partitions))
        response = native.OpenManyResponse(ask.request.request_id, page.items, failures)
        ask.reply(native.encode(response))

    async def _remove(self, ask: _Ask, name: str, created_at: int = 0) -> None:
        async with self._records.of(name) as stream:
            await stream.change(partial(_gone, name, created_at))
            logger.info("stream_removed", extra={"stream": name, "by": ask.origin.principal})
            ask.reply(removal_done(ask.request))

    async def _administer(self, ask: _Ask, command: stream_admin.Command) -> None:
        name = command.stream_name
        wanted = partial(_there, name)
        match command:
            case stream_admin.Delete():
                await self._remove(ask, name)
                return
            case stream_admin.Retain(limits=limits):
                wanted = partial(_retained, name, retention_of(limits))
            case _:
                pass
        async with self._records.of(name) as stream:
            if isinstance(command, stream_admin.Trim):
                await self._trim(name, stream, command.partition, command.before)
            ask.describe(name, await stream.change(wanted))

    async def _trim(
        self, name: str, stream: Named, partition: int, before: int, created_at: int = 0
    ) -> int:
        found = await stream.change(partial(_meant, name, created_at))
        record = _there(name, found.record)
        if partition >= record.partitions:
            raise RequestError("stream.partition", "The stream has no such partition")
        return await stream.trim(record, partition, before)

    def _watch(self, ask: _Ask, request: native.WatchStreamsRequest) -> None:
        """Have the asker told of streams of a pattern, from an actor of its own."""
        check_pattern(request.pattern)
        origin, links = ask.origin, self._context.watches.links
        if links[origin.account] >= WATCHES_PER_LINK_MAX:
            text = f"A link follows at most {WATCHES_PER_LINK_MAX} patterns of streams"
            raise RequestError("subscription.limit", text)
        if origin.ended:
            return
        links[origin.account] += 1
        make = self._context.actor(StreamWatchActor)
        actor = partial(make, self._context, origin, ask.wire.return_route, request)
        origin.attach(self.system.spawn(actor))

    async def _list(self, ask: _Ask, request: native.ListRequest) -> None:
        verbs, principal = self._context.access.verbs, ask.origin.principal
        answer, after, more = Page[native.StreamInfo](), request.after, True
        while more and not answer.full:
            page = ListStreams(after=after, prefix=request.prefix)
            await read(self._context.store, page)
            found = zip(page.records, page.extents, strict=True)
            visible = (stream_info(*one) for one in found if verbs(principal, one[0].name))
            answer.take(visible, lambda info: len(info.partitions))
            more = page.more
            after = page.records[-1].name if more else ""
        last = answer.items[-1].name if answer.full else ""
        ask.reply(native.encode(native.ListResponse(request.request_id, answer.items, last)))

    async def _look_again(self) -> None:
        """See which streams have gone in removals that have failed."""
        for name in tuple(self._records.doubtful):
            try:
                async with self._records.of(name) as stream:
                    await stream.look()
            except RillnodeError as error:
                logger.info("stream_not_found", extra={"code": error.code})

    async def _ensure(self, message: EnsureStream) -> None:
        wanted = partial(self._configured, message)
        try:
            async with self._records.of(message.name) as stream:
                await stream.change(wanted)
        except RillnodeError as error:
            logger.warning("stream_not_made", extra={"code": error.code, "reason": error.text})

    async def _revise(self, message: ReviseStream, sender: Cell | None) -> None:
        wanted = partial(self._revised, message)
        try:
            async with self._records.of(message.name) as stream:
                revised = Revised((await stream.change(wanted)).record)
        except RillnodeError as error:
            revised = Revised(error=error)
        if sender is not None:
            self.send(sender, revised)

    # Rights ----------------------------------------------------------------------------------

    def _admit(self, ask: _Ask, name: str, needs: Verb | None, tells: Verb) -> None:
        """Refuse who may not ask, without a look at whether there is such a stream.

        Where any right will do (None), `tells` is the one that the refusal names.

        Raises:
            RequestError: `stream.unknown`.
        """
        principal = ask.origin.principal
        if len(name) <= NAME_BYTES_MAX:  # no stream has a longer one
            verbs = self._context.access.verbs(principal, name)
            if verbs and (needs is None or needs in verbs):
                return
        self._context.router.undelivered["refused"] += 1
        logger.info("refused", extra={"principal": principal, "stream": name[:64]})
        raise not_granted("stream.unknown", principal, tells, name[:NAME_BYTES_MAX])

    def _may_create(self, principal: str, name: str) -> bool:
        access = self._context.access
        return not access.is_reserved(name) and access.allows(principal, "create", name)

    # What is wanted of a stream's record -----------------------------------------------------

    def _fresh(self, name: str, owner: str) -> StreamRecord:
        context, retention = self._context, self._rules.find(name).retention
        created_at = context.removals.created_at(name, context.clock.now_ms())
        return StreamRecord(name=name, created_at=created_at, owner=owner, retention=retention)

    def _with_partitions(
        self, principal: str, name: str, partitions: int, record: StreamRecord | None
    ) -> StreamRecord:
        """So many partitions at least, as far as who asks may create them."""
        if self._may_create(principal, name):
            wanted = record or self._fresh(name, principal)
            partitions = max(wanted.partitions, partitions)
            return msgspec.structs.replace(wanted, partitions=partitions)
        if record is None:
            raise not_granted("stream.unknown", principal, "create", name)
        return record

    def _configured(self, message: EnsureStream, record: StreamRecord | None) -> StreamRecord:
        wanted = self._with_partitions(NODE_PRINCIPAL, message.name, message.partitions, record)
        return msgspec.structs.replace(wanted, retention=message.retention)

    def _revised(self, message: ReviseStream, record: StreamRecord | None) -> StreamRecord | None:
        found = record or self._fresh(message.name, message.principal)
        wanted = message.revise(found)
        partitions_max = self._rules.find(found.name).partitions_max
        if wanted is not None and wanted.partitions > max(partitions_max, found.partitions):
            raise self._too_many_partitions(found.name)
        return wanted

    def _too_many_partitions(self, name: str) -> RequestError:
        partitions_max = self._rules.find(name).partitions_max
        text = f"A stream of this name has at most {partitions_max} partitions here"
        return RequestError("stream.invalid", text)


def _there(name: str, record: StreamRecord | None) -> StreamRecord:
    if record is None:
        raise unknown_stream(name)
    return record


def _meant(name: str, created_at: int, record: StreamRecord | None) -> StreamRecord:
    """The stream of a name that was created then; 0: whichever has it now.

    Raises:
        RequestError: `stream.unknown`.
        StoreError: `stream.removed`.
    """
    if created_at and (record is None or record.created_at != created_at):
        raise removed_error(0 if record is None else record.id)
    return _there(name, record)


def _gone(name: str, created_at: int, record: StreamRecord | None) -> None:
    _meant(name, created_at, record)


def _retained(name: str, retention: Retention, record: StreamRecord | None) -> StreamRecord:
    return msgspec.structs.replace(_there(name, record), retention=retention)
