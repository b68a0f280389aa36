"""The stream service: makes streams, tells their addresses, describes, trims and removes them.

Work on one name is done in the order of its arrival: while the store is asked about a name, what
else arrives for it waits. No answer depends on what this process has seen before. Who may do
nothing with a name is refused before anything is looked up, as if there were no such stream.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

import msgspec

from rillnode.actors.access import NODE_PRINCIPAL
from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import (
    FindStream,
    ListStreams,
    LogExtent,
    PutStream,
    RemoveStream,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.streams.answers import (
    creation_done,
    failed,
    invalid_request,
    is_error,
    refused,
    removal_done,
)
from rillnode.actors.streams.ask import OVER_QUOTA, UNKNOWN, Ask, EnsureStream
from rillnode.actors.streams.context import (
    StreamContext,
    StreamRemoved,
    stream_address,
    tell_removed,
)
from rillnode.actors.streams.describe import retention_of, stream_info, told
from rillnode.actors.streams.listing import Listing
from rillnode.actors.streams.revising import Revised, ReviseStream, Revision, repeat_revision
from rillnode.actors.streams.rules import RESERVED_PREFIX, StreamRules
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from rillnode.codecs.ockam import stream_admin
from rillnode.codecs.ockam.routing import WireMessage
from rillnode.codecs.ockam.stream import CreatePartitionedRequest, CreateRequest
from rillnode.codecs.requests import decode_service_request

logger = logging.getLogger("rillnode.actors.streams.service")

ADDRESSES = (b"stream", b"stream_service", b"stream_kafka")
"""Of nodes since 2021-05, the specification's, and of nodes that kept their streams in Kafka: these
are in guides and examples until 2024."""

Changed = Callable[[StreamRecord | StreamRemoved], None]
"""Told of every stream that is served, as it is then, and of each that is removed."""


class StreamService(Worker):
    """One per node, under `ADDRESSES`."""

    mailbox_messages_max = 16_384
    on_failure = "restart"
    essential = True

    def __init__(self, context: StreamContext, changed: Changed, rules: StreamRules) -> None:
        self._context = context
        self._changed = changed
        self._rules = rules
        # Of each name that the store is being asked about, what waits for the answer.
        self._names: dict[str, list[Ask]] = {}
        self._node = Origin(NODE_PRINCIPAL, 0, native=False)

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests and completed operations."""
        match message:
            case Delivery():
                self._requests(message)
            case FindStream():
                self._found(message)
            case PutStream():
                self._put(message)
            case RemoveStream():
                self._removed(message)
            case ListStreams():
                self._listed(message)
            case Trim():
                self._trimmed(message)
            case EnsureStream(name=name, partitions=partitions, retention=retention):
                self._enqueue(name, Ask(self._node, (), message, None, partitions, retention))
            case ReviseStream(name=name) if sender is not None:
                self._enqueue(name, Revision(message, sender).work)
            case _:
                pass

    # Requests --------------------------------------------------------------------------------

    def _requests(self, delivery: Delivery) -> None:
        origin = delivery.origin
        for wire in delivery.messages:
            try:
                request = decode_service_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                logger.info("bad_request", extra={"code": error.code})
                if not is_error(error):
                    self._reply(self._ask(origin, wire, None), invalid_request(error))
                continue
            self._request(self._ask(origin, wire, request), request)

    def _ask(self, origin: Origin, wire: WireMessage, request: object) -> Ask:
        return Ask(origin, wire.return_route, request, address=wire.onward_route[0].value)

    def _request(self, ask: Ask, request: object) -> None:
        match request:
            case CreateRequest(stream_name=name):
                self._create(replace(ask, partitions=1), name)
            case CreatePartitionedRequest(stream_name=name, partitions=partitions):
                self._create(replace(ask, partitions=partitions), name)
            case native.OpenRequest(name=name, partitions=partitions):
                self._create(replace(ask, partitions=partitions), name or None)
            case native.DescribeRequest(name=name):
                self._admit(name, ask)
            case native.TrimRequest(name=name) | native.RemoveRequest(name=name):
                self._admit(name, replace(ask, needs="admin"))
            case stream_admin.AdminRequest(command=command):
                self._administer(replace(ask, needs="admin"), command)
            case native.ListRequest():
                listing = Listing[native.StreamInfo](
                    ask.origin, ask.return_route, request, ask.address
                )
                self._list(listing, request.after)
            case _:
                self._reply(ask, invalid_request(request))

    def _create(self, ask: Ask, name: str | None) -> None:
        if name is None:
            name = f"generated_{self._context.entropy(4).hex()}"
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not 0 < ask.partitions <= PARTITIONS_MAX:
            text = (
                f"A stream has a name of 1 to {NAME_BYTES_MAX} bytes "
                f"and 1 to {PARTITIONS_MAX} partitions"
            )
            self._refuse(ask, RequestError("stream.invalid", text))
            return
        partitions_max = self._rules.find(name).partitions_max
        if ask.partitions > partitions_max and self._admits(name, ask):
            text = f"A stream of this name has at most {partitions_max} partitions here"
            self._refuse(ask, RequestError("stream.invalid", text))
            return
        self._admit(name, ask)

    def _administer(self, ask: Ask, command: stream_admin.Command) -> None:
        name = command.stream_name
        if isinstance(command, stream_admin.Retain) and self._admits(name, ask):
            try:
                ask = replace(ask, retention=retention_of(command.limits))
            except RequestError as error:
                self._refuse(ask, error)
                return
        self._admit(name, ask)

    def _admit(self, name: str, ask: Ask) -> None:
        """Take a request, or refuse it without a look at whether there is such a stream."""
        if self._admits(name, ask):
            self._enqueue(name, ask)
            return
        self._context.router.undelivered["refused"] += 1
        logger.info("refused", extra={"principal": ask.origin.principal, "stream": name[:64]})
        self._refuse(ask, UNKNOWN)

    def _admits(self, name: str, ask: Ask) -> bool:
        if len(name) > NAME_BYTES_MAX:
            return False  # no stream has such a name, and no answer about it is remembered
        verbs = self._context.access.verbs(ask.origin.principal, name)
        return bool(verbs) and (ask.needs is None or ask.needs in verbs)

    # One name at a time ----------------------------------------------------------------------

    def _enqueue(self, name: str, work: Ask) -> None:
        waiting = self._names.get(name)
        if waiting is not None:
            waiting.append(work)
            return
        self._names[name] = [work]
        self._find(name)

    def _find(self, name: str) -> None:
        operation = FindStream(reply_to=self.address, name=name)
        if self._context.store.read(operation):
            self._found(operation)

    def _found(self, operation: FindStream) -> None:
        name = operation.name or ""
        if operation.error is not None:
            self._fail(name, operation.error)
            return
        self._known(name, operation.record, operation.extents)

    def _known(self, name: str, record: StreamRecord | None, extents: Sequence[LogExtent]) -> None:
        waiting = self._names.get(name)
        if waiting is None:
            return  # asked for before a restart
        while waiting:
            if waiting[0].removes and record is not None:
                # It is answered when the stream is gone, and what follows it finds none.
                operation = RemoveStream(reply_to=self.address, token=waiting[0], name=name)
                self._context.store.submit(operation)
                return
            if isinstance(waiting[0].request, Revision):
                if self._revises(waiting[0].request, record):
                    return
                del waiting[0]
                continue
            together = [*takewhile(lambda work: work.changes, waiting)] or waiting[:1]
            wanted = self._wanted(name, record, together)
            if wanted is not None and wanted != record:
                # Answers are given when the new record is durable; what arrives till then waits.
                put = PutStream(reply_to=self.address, token=record is None, record=wanted)
                self._context.store.submit(put)
                return
            del waiting[: len(together)]
            for work in together:
                self._serve(name, record, work, extents)
        del self._names[name]

    def _revises(self, revision: Revision, record: StreamRecord | None) -> bool:
        """Give the store what a revision changes, or answer one that has nothing left to change."""
        found = record or self._fresh(revision.request.name, revision.request.principal)
        step = revision.next_step(found, self._rules, self._context.quotas)
        if isinstance(step, Revised):
            if step.record is not None:
                self._changed(step.record)
            self.system.post(revision.asker, step)
            return False
        step.reply_to = self.address
        self._context.store.submit(step)
        return True

    def _wanted(
        self, name: str, record: StreamRecord | None, waiting: Sequence[Ask]
    ) -> StreamRecord | None:
        """The record that those waiting ask for, as far as they may."""
        wanted = record
        for work in waiting:
            if work.partitions and self._may_create(name, work):
                wanted = wanted or self._new_record(name, work)
            elif work.partitions or work.retention is None:
                continue
            if wanted is not None:
                wanted = msgspec.structs.replace(
                    wanted,
                    partitions=max(wanted.partitions, work.partitions),
                    retention=work.retention or wanted.retention,
                )
        return wanted

    def _may_create(self, name: str, work: Ask) -> bool:
        if name.startswith(RESERVED_PREFIX):
            return False
        return self._context.access.allows(work.origin.principal, "create", name)

    def _new_record(self, name: str, work: Ask) -> StreamRecord | None:
        """A stream of the asker's, unless its quota is used up."""
        owner = work.origin.principal
        return self._fresh(name, owner) if self._context.quotas.admit_stream(owner, name) else None

    def _fresh(self, name: str, owner: str) -> StreamRecord:
        now_ms, rule = self._context.clock.now_ms(), self._rules.find(name)
        return StreamRecord(name=name, created_at=now_ms, owner=owner, retention=rule.retention)

    def _put(self, operation: PutStream) -> None:
        record, created, error = operation.record, operation.token, operation.error
        if created and error is not None:
            self._context.quotas.not_created(record.owner, record.name)
        if created and error is None:
            self._known(record.name, record, [LogExtent()] * record.partitions)
        elif error is None or error.code == "store.exists":
            # Another node may have been first: what is asked for is asked of its stream.
            if error is not None:
                repeat_revision(self._names.get(record.name, ()))
            self._find(record.name)
        else:
            self._fail(record.name, error)

    def _fail(self, name: str, error: StoreError) -> None:
        for work in self._names.pop(name, ()):
            self._refuse(work, error)

    # Serving what waited ---------------------------------------------------------------------

    def _serve(
        self, name: str, record: StreamRecord | None, work: Ask, extents: Sequence[LogExtent]
    ) -> None:
        if record is None:
            creates = work.partitions and self._may_create(name, work)
            self._refuse(work, OVER_QUOTA if creates else UNKNOWN)
            return
        self._changed(record)
        match work.request:
            case CreateRequest() | CreatePartitionedRequest() as request:
                self._init(record, work, request)
            case native.TrimRequest(partition=partition, before=before):
                self._trim(record, work, partition, before)
            case stream_admin.AdminRequest(
                command=stream_admin.Trim(partition=partition, before=before)
            ) if not work.done:
                self._trim(record, work, partition, before)
            case (
                native.OpenRequest() | native.DescribeRequest() | stream_admin.AdminRequest()
            ) as request:
                self._reply(work, told(request, record, extents))
            case _:
                pass

    def _init(
        self, record: StreamRecord, work: Ask, request: CreateRequest | CreatePartitionedRequest
    ) -> None:
        """Answer a create: one INIT for each partition asked for, from the stream's address."""
        for partition in range(min(work.partitions, record.partitions)):
            payload = creation_done(request, record.name, partition)
            address = stream_address(record.name, partition)
            self._context.router.reply(work.origin, address, [(work.return_route, payload)])

    def _trim(self, record: StreamRecord, work: Ask, partition: int, before: int) -> None:
        if partition >= record.partitions:
            self._refuse(work, RequestError("stream.partition", "The stream has no such partition"))
            return
        log = log_id(record.id, partition)
        token = (work, record)
        self._context.store.submit(Trim(reply_to=self.address, token=token, log=log, before=before))

    def _trimmed(self, operation: Trim) -> None:
        work, record = operation.token
        if operation.error is not None:
            self._refuse(work, operation.error)
            return
        self._context.quotas.keeps(record.owner, operation.log, operation.extent)
        if isinstance(work.request, native.TrimRequest):
            first = operation.extent.first_index
            response = native.PositionResponse(work.request.request_id, first)
            self._reply(work, native.encode(response))
        else:
            self._enqueue(record.name, replace(work, done=True))

    def _removed(self, operation: RemoveStream) -> None:
        work, record, name = operation.token, operation.record, operation.name
        if operation.error is not None or record is None:
            self._fail(name, operation.error or StoreError("store.failed", "Nothing was removed"))
            return
        logger.info("stream_removed", extra={"stream": name, "by": work.origin.principal})
        self._context.quotas.removed(record)
        self._changed(tell_removed(self._context, record))
        if isinstance(work.request, Revision):
            self.system.post(work.request.asker, Revised())
        else:
            self._reply(work, removal_done(work.request))
        if name in self._names:
            del self._names[name][0]
            self._known(name, None, ())

    def _list(self, listing: Listing[native.StreamInfo], after: str) -> None:
        operation = ListStreams(
            reply_to=self.address,
            token=listing,
            after=after,
            prefix=listing.request.prefix,
        )
        if self._context.store.read(operation):
            self._listed(operation)

    def _listed(self, operation: ListStreams) -> None:
        listing: Listing[native.StreamInfo] = operation.token
        request_id, principal = listing.request.request_id, listing.origin.principal
        if operation.error is not None:
            payload = failed(request_id, operation.error)
            self._reply(listing, payload)
            return
        verbs = self._context.access.verbs
        found = zip(operation.records, operation.extents, strict=True)
        visible = (stream_info(*one) for one in found if verbs(principal, one[0].name))
        listing.take(visible, lambda info: len(info.partitions))
        if operation.more and not listing.full:
            self._list(listing, operation.records[-1].name)
            return
        after = listing.items[-1].name if listing.full else ""
        response = native.ListResponse(request_id, listing.items, after)
        self._reply(listing, native.encode(response))

    # Refusals --------------------------------------------------------------------------------

    def _refuse(self, work: Ask, error: RillnodeError) -> None:
        if work.origin is self._node:
            logger.warning("stream_not_made", extra={"code": error.code, "reason": error.text})
            return
        if isinstance(work.request, Revision):
            self.system.post(work.request.asker, Revised(error=error))
            return
        self._reply(work, refused(work.request, error))

    def _reply(self, asked: Ask | Listing[native.StreamInfo], payload: bytes) -> None:
        answer = (asked.return_route, payload)
        self._context.router.reply(asked.origin, asked.address, [answer])
