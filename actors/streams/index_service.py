"""The index service: finds the actor of a saved index, and answers in the asker's protocol.

What the released service does: a position never saved is answered as none and nothing is created;
a save has no answer; a payload that is no index request is logged and has no answer either. Who
asks as only the specification writes gets what it says: a record with 0 is made, and answered.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import ListIndexes, SavedIndexKey, StoreHealth
from rillnode.actors.storage.waiting import read
from rillnode.actors.streams.answers import failed, invalid_request
from rillnode.actors.streams.context import StreamContext, StreamRemoved
from rillnode.actors.streams.index import (
    FORGET,
    EnsurePosition,
    GetPosition,
    IndexActor,
    Position,
    SavePosition,
)
from rillnode.actors.streams.listing import Page
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.ockam.routing import Route, WireMessage
from rillnode.codecs.ockam.stream import (
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    encode_response,
    is_specified,
    response_tag,
)
from rillnode.codecs.requests import decode_request

logger = logging.getLogger("rillnode.actors.streams.index_service")

ADDRESSES = (b"stream_index", b"stream_index_service", b"stream_kafka_index")
"""Of nodes since 2021-05, the specification's, and of nodes that kept their streams in Kafka: these
are in guides and examples until 2024."""

INDEX_ACTORS_MAX = 10_000
"""Index actors kept; above it those that have been without work for longest are ended."""

PAGE_INDEXES = 100
"""Saved positions read from the store, and looked through, in one turn."""

_Get = GetIndexRequest | GetPartitionIndexRequest | native.LoadIndexRequest
_Save = SaveIndexRequest | SavePartitionIndexRequest | native.SaveIndexRequest


@dataclass(frozen=True, slots=True)
class AskPosition:
    """An actor of this node loads (`index` None) or saves a position.

    A `Position` with this message as its token goes to `reply_to`.
    """

    key: SavedIndexKey
    reply_to: Cell
    index: int | None = None
    token: object = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which peer asked for what, at which of the service's addresses."""

    origin: Origin
    return_route: Route
    request: _Get | _Save
    address: bytes


@dataclass(slots=True)
class _Owner:
    """An index actor and the number of its requests that are not answered yet."""

    cell: Cell
    unanswered: int = 0


class IndexService(Worker):
    """One per node, under `ADDRESSES`."""

    mailbox_messages_max = 16_384
    on_failure = "restart"
    essential = True

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._owners: OrderedDict[SavedIndexKey, _Owner] = OrderedDict()

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests, index actors' answers and completed listings."""
        match message:
            case Delivery():
                self._requests(message)
            case AskPosition(key=key, index=None):
                self._forward(key, GetPosition(message))
            case AskPosition(key=key, index=int(index)):
                self._forward(key, SavePosition(message, index))
            case Position():
                self._answer(message)
            case StreamRemoved(record=record):
                self._forget(
                    owner for key, owner in self._owners.items() if key.stream == record.name
                )
            case StoreHealth(writable=True):
                # Of writes that failed before some may be there after all.
                self._forget(self._owners.values())
            case _:
                pass

    def _forget(self, owners: Iterable[_Owner]) -> None:
        for owner in owners:
            self.system.post(owner.cell, FORGET)

    def _requests(self, delivery: Delivery) -> None:
        origin = delivery.origin
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                self._malformed(origin, wire, error)
                continue
            match request:
                case GetIndexRequest() | SaveIndexRequest():
                    self._ask(origin, wire, request, request.stream_name, 0)
                case GetPartitionIndexRequest() | SavePartitionIndexRequest():
                    self._ask(origin, wire, request, request.stream_name, request.partition)
                case native.LoadIndexRequest() | native.SaveIndexRequest():
                    self._ask(origin, wire, request, request.stream, request.partition)
                case native.ListIndexesRequest():
                    listing = self._list(origin, wire, request)
                    self.begin(listing, partial(self._not_listed, origin, wire, request))
                case _:
                    self._malformed(origin, wire, request)

    def _malformed(self, origin: Origin, wire: WireMessage, cause: object) -> None:
        code = cause.code if isinstance(cause, CodecError) else "request.unknown"
        logger.info("bad_request", extra={"code": code})
        # A name that is no text is the one error that a well-formed request can hold.
        if origin.native or code == "codec.utf8":
            self._tell(origin, wire, invalid_request(cause))

    def _ask(
        self, origin: Origin, wire: WireMessage, request: _Get | _Save, stream: str, partition: int
    ) -> None:
        client_id = request.client_id
        if max(len(stream.encode()), len(client_id.encode())) > NAME_BYTES_MAX:
            logger.info("bad_request", extra={"code": "index.invalid"})
            text = f"Stream names and client ids have at most {NAME_BYTES_MAX} bytes"
            self._refuse(origin, wire, request, RequestError("index.invalid", text))
            return
        if partition >= 2**32 or not self._context.access.allows(origin.principal, "pull", stream):
            self._context.router.undelivered["refused"] += 1
            logger.info("refused", extra={"principal": origin.principal, "stream": stream[:64]})
            error = RequestError("stream.unknown", "No such stream, or it is not yours to pull")
            self._refuse(origin, wire, request, error)
            return
        key = SavedIndexKey(stream, partition, client_id)
        asked = _Asked(origin, wire.return_route, request, wire.onward_route[0].value)
        match request:
            case SaveIndexRequest() | SavePartitionIndexRequest() | native.SaveIndexRequest():
                self._forward(key, SavePosition(asked, request.index))
            case GetIndexRequest() | GetPartitionIndexRequest() if is_specified(request):
                self._forward(key, EnsurePosition(asked))
            case _:
                self._forward(key, GetPosition(asked))

    def _forward(
        self, key: SavedIndexKey, request: GetPosition | EnsurePosition | SavePosition
    ) -> None:
        owner = self._owner(key)
        owner.unanswered += 1
        self.system.post(owner.cell, request)

    def _owner(self, key: SavedIndexKey) -> _Owner:
        owner = self._owners.get(key)
        if owner is None:
            cell = self.system.spawn(
                partial(IndexActor, self._context, key, self.address), parent=self.address
            )
            owner = self._owners[key] = _Owner(cell)
            if len(self._owners) > INDEX_ACTORS_MAX:
                self._end_idle()
        else:
            self._owners.move_to_end(key)
        return owner

    def _end_idle(self) -> None:
        key, oldest = next(iter(self._owners.items()))
        if oldest.unanswered:
            self._owners.move_to_end(key)
            return
        del self._owners[key]
        self.system.exit(oldest.cell)

    def _answer(self, position: Position) -> None:
        owner = self._owners.get(position.key)
        if owner is not None:
            owner.unanswered -= 1
        asked = position.token
        if isinstance(asked, AskPosition):
            self.system.post(asked.reply_to, position)
            return
        if not isinstance(asked, _Asked):
            return
        origin, request = asked.origin, asked.request
        payload: bytes
        match request:
            case SaveIndexRequest() | SavePartitionIndexRequest():
                return
            case native.LoadIndexRequest() | native.SaveIndexRequest():
                if position.error is not None:
                    payload = failed(request.request_id, position.error)
                else:
                    response = native.SavedIndexResponse(request.request_id, position.index)
                    payload = native.encode(response)
            case _ if position.error is not None:
                payload = invalid_request(request, position.error.text)
            case GetIndexRequest():
                tag = response_tag(request.tag)
                payload = encode_response(
                    IndexResponse(request.client_id, request.stream_name, position.index, tag)
                )
            case GetPartitionIndexRequest():
                tag = response_tag(request.tag)
                payload = encode_response(
                    PartitionIndexResponse(
                        request.client_id,
                        request.stream_name,
                        request.partition,
                        position.index,
                        tag,
                    )
                )
        self._reply(origin, asked.address, asked.return_route, payload)

    async def _list(
        self, origin: Origin, wire: WireMessage, request: native.ListIndexesRequest
    ) -> None:
        allows, principal = self._context.access.allows, origin.principal
        answer, more, after = Page[native.SavedIndex](), True, None
        if request.after_stream:
            after = SavedIndexKey(
                request.after_stream, request.after_partition, request.after_client_id
            )
        while more and not answer.full:
            page = ListIndexes(stream=request.stream, after=after, limit=PAGE_INDEXES)
            await read(self._context.store, page)
            answer.take(
                native.SavedIndex(key.stream, key.partition, key.client_id, index)
                for key, index in page.indexes
                if allows(principal, "pull", key.stream)
            )
            more = len(page.indexes) == page.limit
            after = page.indexes[-1][0] if more else None
        last = answer.items[-1] if answer.full else None
        response = native.ListIndexesResponse(request.request_id, answer.items, last)
        self._tell(origin, wire, native.encode(response))

    def _not_listed(
        self,
        origin: Origin,
        wire: WireMessage,
        request: native.ListIndexesRequest,
        error: RillnodeError,
    ) -> None:
        self._tell(origin, wire, failed(request.request_id, error))

    def _refuse(
        self, origin: Origin, wire: WireMessage, request: _Get | _Save, error: RequestError
    ) -> None:
        match request:
            case native.LoadIndexRequest() | native.SaveIndexRequest():
                self._tell(origin, wire, failed(request.request_id, error))
            case GetIndexRequest() | GetPartitionIndexRequest():
                self._tell(origin, wire, invalid_request(request))
            case _:
                pass  # a save has no answer

    def _tell(self, origin: Origin, wire: WireMessage, payload: bytes) -> None:
        self._reply(origin, wire.onward_route[0].value, wire.return_route, payload)

    def _reply(self, origin: Origin, address: bytes, return_route: Route, payload: bytes) -> None:
        self._context.router.reply(origin, address, [(return_route, payload)])
