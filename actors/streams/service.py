"""The stream service: makes streams, tells their addresses, describes and trims them.

Work on one name is done in the order of its arrival: while the store is asked about a name, what
else arrives for it waits. No answer depends on what this process has seen before.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rillnode.actors.access import NODE_PRINCIPAL
from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.storage import (
    FindStream,
    ListStreams,
    LogExtent,
    PutStream,
    Retention,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.streams.answers import failed, invalid_request
from rillnode.actors.streams.context import StreamContext, stream_address
from rillnode.actors.streams.describe import stream_info
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from rillnode.codecs.ockam.routing import Route
from rillnode.codecs.ockam.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    encode_response,
    response_tag,
)
from rillnode.codecs.requests import decode_request

logger = logging.getLogger("rillnode.actors.streams.service")

ADDRESSES = (b"stream", b"stream_service")


@dataclass(frozen=True, slots=True)
class EnsureStream:
    """Make a configured stream, or bring its partitions and retention up to the configuration."""

    name: str
    partitions: int
    retention: Retention


_Creating = CreateRequest | CreatePartitionedRequest


@dataclass(frozen=True, slots=True)
class _Ask:
    """One request on one name, and what to do with the record once it is known."""

    origin: Origin
    return_route: Route
    request: _Creating | native.Request | EnsureStream
    partitions: int = 0
    retention: Retention | None = None


@dataclass(slots=True)
class _Name:
    """A name that the store is being asked about, and what waits for the answer."""

    waiting: list[_Ask] = field(default_factory=list[_Ask])


class StreamService(Worker):
    """One per node, under the addresses `stream` and `stream_service`."""

    mailbox_messages_max = 16_384
    on_failure = "restart"

    def __init__(self, context: StreamContext, listener: Callable[[StreamRecord], None]) -> None:
        self._context = context
        self._listener = listener
        self._names: dict[str, _Name] = {}
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
            case ListStreams():
                self._listed(message)
            case Trim():
                self._trimmed(message)
            case EnsureStream():
                ask = _Ask(self._node, (), message, message.partitions, message.retention)
                self._enqueue(message.name, ask)
            case _:
                pass

    # Requests --------------------------------------------------------------------------------

    def _requests(self, delivery: Delivery) -> None:
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=delivery.origin.native)
            except CodecError as error:
                logger.info("bad_request", extra={"code": error.code})
                self._invalid(delivery.origin, wire.return_route, error)
                continue
            self._request(delivery.origin, wire.return_route, request)

    def _request(self, origin: Origin, return_route: Route, request: object) -> None:
        match request:
            case CreateRequest(stream_name=name):
                self._create(origin, return_route, request, name, 1)
            case CreatePartitionedRequest(stream_name=name, partitions=partitions):
                self._create(origin, return_route, request, name, partitions)
            case native.OpenRequest(name=name, partitions=partitions):
                self._create(origin, return_route, request, name or None, partitions)
            case native.DescribeRequest(name=name) | native.TrimRequest(name=name):
                self._enqueue(name, _Ask(origin, return_route, request))
            case native.ListRequest():
                operation = ListStreams(
                    reply_to=self.address,
                    token=(origin, return_route, request),
                    after=request.after,
                    prefix=request.prefix,
                    limit=native.LIST_MAX,
                )
                if self._context.store.read(operation):
                    self._listed(operation)
            case _:
                self._invalid(origin, return_route, request)

    def _create(
        self,
        origin: Origin,
        return_route: Route,
        request: _Creating | native.OpenRequest,
        name: str | None,
        partitions: int,
    ) -> None:
        if name is None:
            name = f"generated_{self._context.entropy(4).hex()}"
        ask = _Ask(origin, return_route, request, partitions)
        valid = 0 < len(name.encode()) <= NAME_BYTES_MAX and 0 < partitions <= PARTITIONS_MAX
        if not valid:
            text = (
                f"A stream has a name of 1 to {NAME_BYTES_MAX} bytes "
                f"and 1 to {PARTITIONS_MAX} partitions"
            )
            self._refuse(ask, RequestError("stream.invalid", text))
            return
        self._enqueue(name, ask)

    # One name at a time ----------------------------------------------------------------------

    def _enqueue(self, name: str, work: _Ask) -> None:
        held = self._names.get(name)
        if held is not None:
            held.waiting.append(work)
            return
        self._names[name] = _Name([work])
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
        held = self._names.get(name)
        if held is None:
            return  # asked for before a restart
        wanted = self._wanted(name, record, held.waiting)
        if wanted is not None and wanted != record:
            # Answers are given when the new record is durable; what arrives till then waits too.
            put = PutStream(reply_to=self.address, token=record is None, record=wanted)
            self._context.store.submit(put)
            return
        del self._names[name]
        for work in held.waiting:
            self._serve(name, record, work, extents)

    def _wanted(
        self, name: str, record: StreamRecord | None, waiting: list[_Ask]
    ) -> StreamRecord | None:
        """The record that the creating requests among those waiting ask for."""
        wanted = record
        for work in waiting:
            if not work.partitions:
                continue
            principal = work.origin.principal
            if not self._context.access.allows(principal, "create", name):
                continue
            if wanted is None:
                wanted = StreamRecord(
                    name=name, created_at=self._context.clock.now_ms(), owner=principal
                )
            partitions = max(wanted.partitions, work.partitions)
            retention = wanted.retention if work.retention is None else work.retention
            wanted = StreamRecord(
                name=name,
                id=wanted.id,
                partitions=partitions,
                created_at=wanted.created_at,
                owner=wanted.owner,
                retention=retention,
            )
        return wanted

    def _put(self, operation: PutStream) -> None:
        name = operation.record.name
        if operation.error is not None:
            self._fail(name, operation.error)
            return
        record, created = operation.record, operation.token
        logger.debug("stream_stored", extra={"stream": name, "partitions": record.partitions})
        if created:
            self._known(name, record, [LogExtent()] * record.partitions)
        else:
            self._find(name)

    def _fail(self, name: str, error: StoreError) -> None:
        held = self._names.pop(name, None)
        for work in held.waiting if held else ():
            self._refuse(work, error)

    # Serving what waited ---------------------------------------------------------------------

    def _serve(
        self,
        name: str,
        record: StreamRecord | None,
        work: _Ask,
        extents: Sequence[LogExtent],
    ) -> None:
        verbs = self._context.access.verbs(work.origin.principal, name)
        if record is None or not verbs:
            text = "No such stream, or it is not yours to use: see `rillnode stream ls`"
            self._refuse(work, RequestError("stream.unknown", text))
            return
        self._listener(record)
        match work.request:
            case CreateRequest() | CreatePartitionedRequest():
                self._init(record, work)
            case (
                native.OpenRequest(request_id=request_id)
                | native.DescribeRequest(request_id=request_id)
            ):
                info = stream_info(record, extents)
                response = native.encode(native.StreamResponse(request_id, info))
                self._reply(work.origin, work.return_route, response)
            case native.TrimRequest() as request:
                self._trim(record, work, request)
            case _:
                pass

    def _init(self, record: StreamRecord, work: _Ask) -> None:
        """Answer a create: one INIT for each partition asked for, from the stream's address."""
        request = work.request
        for partition in range(min(work.partitions, record.partitions)):
            if isinstance(request, CreateRequest):
                tag = response_tag(request.tag)
                payload = encode_response(CreateResponse(record.name, tag))
            elif isinstance(request, CreatePartitionedRequest):
                tag = response_tag(request.tag)
                payload = encode_response(CreatePartitionedResponse(record.name, partition, tag))
            else:
                return
            address = stream_address(record.name, partition)
            self._context.router.reply(work.origin, address, [(work.return_route, payload)])

    def _trim(self, record: StreamRecord, work: _Ask, request: native.TrimRequest) -> None:
        allowed = self._context.access.allows(work.origin.principal, "admin", record.name)
        if not allowed or request.partition >= record.partitions:
            text = "No such partition, or it is not yours to trim"
            self._refuse(work, RequestError("stream.unknown", text))
            return
        self._context.store.submit(
            Trim(
                reply_to=self.address,
                token=(work.origin, work.return_route, request),
                log=log_id(record.id, request.partition),
                before=request.before,
            )
        )

    def _trimmed(self, operation: Trim) -> None:
        origin, return_route, request = operation.token
        self._reply(
            origin,
            return_route,
            failed(request.request_id, operation.error)
            if operation.error
            else native.encode(
                native.PositionResponse(request.request_id, operation.extent.first_index)
            ),
        )

    def _listed(self, operation: ListStreams) -> None:
        origin, return_route, request = operation.token
        if operation.error is not None:
            self._reply(origin, return_route, failed(request.request_id, operation.error))
            return
        infos = [
            stream_info(record, extents)
            for record, extents in zip(operation.records, operation.extents, strict=True)
            if self._context.access.verbs(origin.principal, record.name)
        ]
        full = len(operation.records) == operation.limit
        last = operation.records[-1].name if full else ""
        response = native.ListResponse(request.request_id, infos, last)
        self._reply(origin, return_route, native.encode(response))

    # Refusals --------------------------------------------------------------------------------

    def _invalid(self, origin: Origin, return_route: Route, cause: object) -> None:
        self._reply(origin, return_route, invalid_request(cause))

    def _refuse(self, work: _Ask, error: RillnodeError) -> None:
        if work.origin is self._node:
            logger.warning("stream_not_made", extra={"code": error.code, "reason": error.text})
            return
        match work.request:
            case CreateRequest() | CreatePartitionedRequest() | EnsureStream():
                self._invalid(work.origin, work.return_route, work.request)
            case request:
                self._reply(work.origin, work.return_route, failed(request.request_id, error))

    def _reply(self, origin: Origin, return_route: Route, payload: bytes) -> None:
        self._context.router.reply(origin, ADDRESSES[0], [(return_route, payload)])
