"""The index service: loads and saves positions, and answers in the asker's protocol.

What the released service does: a position never saved is answered as none and nothing is created;
a save has no answer; a payload that is no index request is logged and has no answer either. Who
asks as only the specification writes gets what it says: a record with 0 is made, and answered.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, assert_never
from urllib.parse import unquote

from msgspec.structs import replace

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.groups.state import GroupState
from rillnode.actors.core.queues.names import queue_record
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.streams.answers import failed, invalid_request, unknown_stream
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext, StreamRemoved
from rillnode.actors.core.streams.index import Positions, Seen
from rillnode.actors.core.streams.listing import Page
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FindStream, ListIndexes, ListRecords, SavedIndexKey, StoreHealth
from rillnode.actors.log.records import beside_stream
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.stream import (
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

logger = event_logger("rillnode.actors.core.streams.index_service")

ADDRESSES = (b"stream_index", b"stream_index_service", b"stream_kafka_index")
"""Of nodes since 2021-05, the specification's, and of nodes that kept their streams in Kafka: these
are in guides and examples until 2024."""

GROUP_RECORDS = 500
"""Records of groups of one stream that are read for one answer."""

PAGE_INDEXES = 100
"""Saved positions read from the store, and looked through, in one turn."""

_Get = GetIndexRequest | GetPartitionIndexRequest | native.LoadIndexRequest
_Save = SaveIndexRequest | SavePartitionIndexRequest | native.SaveIndexRequest


@dataclass(frozen=True, slots=True)
class AskPosition:
    """Load (`index` None) or save a position; an `ask` of the index service returns a Position.

    Attributes:
        seen: what a save follows from, as of SaveIndex.
        created_at: of the stream that it is for, likewise.
    """

    key: SavedIndexKey
    index: int | None = None
    seen: Seen = ()
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """The answer: what is durably saved, or why that could not be done."""

    index: int | None = None
    error: RillnodeError | None = None


@dataclass(slots=True, eq=False)
class _Asked(ServiceRequest):
    """One request of a peer."""

    def refuse(self, error: RillnodeError) -> None:
        """Answer why it was not done, as far as its protocol can say it."""
        match self.request:
            case (
                native.LoadIndexRequest()
                | native.SaveIndexRequest()
                | native.ListIndexesRequest()
                | native.ListGroupsRequest()
            ) as request:
                self.reply(failed(request.request_id, error))
            case GetIndexRequest() | GetPartitionIndexRequest() as request:
                # Who may not ask is told no more than by released nodes.
                known = isinstance(error, RequestError)
                self.reply(
                    invalid_request(request) if known else invalid_request(request, error.text)
                )
            case _:
                pass  # a save has no answer


class IndexService(Worker):
    """Owns all saved positions, at `stream_index` and its other names; one per node."""

    mailbox_messages_max = 16_384
    spare: ClassVar = {StreamRemoved: STREAM_CHANGES_MAX}
    on_failure = "restart"
    interleaves = True
    essential = True

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self._positions = Positions(context.store, context.positions, self._may_begin)

    def started(self) -> None:
        """Take nothing for known: an instance before this one may have failed at a removal."""
        self._context.positions.look_again()

    def handle(
        self, message: Delivery | AskPosition | StreamRemoved | StoreHealth, sender: Cell | None
    ) -> Coroutine[Any, Any, None] | None:
        """Take requests, and news of what makes known positions outdated."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    asked = _Asked(self._context.router, origin, wire)
                    self.begin(self._serve(asked), asked.refuse)
            case AskPosition():
                return self._answer(message, sender)
            case StreamRemoved(record=record):
                self._context.positions.forget(record.name)
            case StoreHealth(writable=writable):
                if writable:
                    # Of writes that failed before some may be there after all.
                    self._context.positions.look_again()
            case _:
                assert_never(message)
        return None

    async def _answer(self, message: AskPosition, sender: Cell | None) -> None:
        key, index, positions = message.key, message.index, self._positions
        try:
            if index is None:
                saved = await positions.get(key)
            else:
                saved = await positions.save(key, index, message.seen, message.created_at)
            position = Position(saved)
        except RillnodeError as error:
            position = Position(error=error)
        if sender is not None:
            self.send(sender, position)

    async def _serve(self, asked: _Asked) -> None:
        try:
            request = decode_request(asked.wire.payload, speaks_native=asked.origin.native)
        except CodecError as error:
            self._malformed(asked, error)
            return
        asked.request = request
        match request:
            case GetIndexRequest() | SaveIndexRequest():
                await self._position(asked, request, request.stream_name, 0)
            case GetPartitionIndexRequest() | SavePartitionIndexRequest():
                await self._position(asked, request, request.stream_name, request.partition)
            case native.LoadIndexRequest() | native.SaveIndexRequest():
                await self._position(asked, request, request.stream, request.partition)
            case native.ListIndexesRequest():
                await self._list(asked, request)
            case native.ListGroupsRequest(stream=stream):
                groups = await (self._groups_of(asked, stream) if stream else self._groups(asked))
                response = native.ListGroupsResponse(request.request_id, groups)
                asked.reply(native.encode(response))
            case _:
                self._malformed(asked, request)

    def _malformed(self, asked: _Asked, cause: object) -> None:
        code = cause.code if isinstance(cause, CodecError) else "request.unknown"
        logger.info("bad_request", extra={"code": code})
        # A name that is no text is the one error that a well-formed request can hold.
        if asked.origin.native or code == "codec.utf8":
            asked.reply(invalid_request(cause))

    async def _position(
        self, asked: _Asked, request: _Get | _Save, stream: str, partition: int
    ) -> None:
        key = SavedIndexKey(stream, partition, request.client_id)
        self._admit(asked, key)
        if isinstance(request, _Save):
            self._check_single(key)
        positions = self._positions
        match request:
            case SaveIndexRequest() | SavePartitionIndexRequest():
                await positions.save(key, request.index)  # which has no answer
            case native.SaveIndexRequest(request_id=request_id, created_at=created_at):
                index = await positions.save(key, request.index, created_at=created_at)
                asked.reply(native.encode(native.SavedIndexResponse(request_id, index)))
            case native.LoadIndexRequest(request_id=request_id):
                index = await positions.get(key)
                asked.reply(native.encode(native.SavedIndexResponse(request_id, index)))
            case GetIndexRequest() | GetPartitionIndexRequest():
                specified = is_specified(request)
                index = await (positions.ensure(key) if specified else positions.get(key))
                asked.reply(_told(request, index))

    def _admit(self, asked: _Asked, key: SavedIndexKey) -> None:
        """Refuse who may not ask.

        Raises:
            RequestError: `index.invalid`; `stream.unknown`.
        """
        if max(len(key.stream.encode()), len(key.client_id.encode())) > NAME_BYTES_MAX:
            logger.info("bad_request", extra={"code": "index.invalid"})
            text = f"Stream names and client ids have at most {NAME_BYTES_MAX} bytes"
            raise RequestError("index.invalid", text)
        principal = asked.origin.principal
        allowed = self._context.access.allows(principal, "pull", key.stream)
        if key.partition >= 2**32 or not allowed:
            self._context.router.undelivered["refused"] += 1
            logger.info("refused", extra={"principal": principal, "stream": key.stream[:64]})
            raise not_granted("stream.unknown", principal, "pull", key.stream)

    async def _may_begin(self, key: SavedIndexKey) -> Seen:
        """What the first position of a name follows from: that no work queue has the name.

        Raises:
            RequestError: `queue.name`, one has.
            StoreError: that cannot be told.
        """
        record = await queue_record(self._context.store, key.stream, key.client_id)
        return () if record is None else ((record, 0),)

    def _check_single(self, key: SavedIndexKey) -> None:
        """See that no group saves this position by itself.

        Raises:
            RequestError: `group.in_use`.
        """
        view = self._context.groups.of(key.stream, key.client_id)
        if view is not None and view.state.shared:
            text = "Members of a group share this name: they alone save its positions"
            raise RequestError("group.in_use", text)

    async def _groups_of(self, asked: _Asked, stream: str) -> list[native.GroupInfo]:
        """The groups of a stream, whichever nodes their members are at."""
        self._admit(asked, SavedIndexKey(stream, 0, ""))
        find = FindStream(name=stream)
        await read(self._context.store, find)
        if find.record is None:
            raise unknown_stream(stream)
        look = ListRecords(prefix=beside_stream(find.record.id), limit=GROUP_RECORDS)
        await read(self._context.store, look)
        groups = Page[native.GroupInfo]()
        for key, value in look.records:
            name, state = unquote(key.rpartition("/")[2]), GroupState.decode(value)
            if look.lasts:
                # Members of before the node's last start are told of no more.
                view = self._context.groups.of(stream, name)
                members = () if view is None else view.state.members
                state = replace(state, members=members)
            groups.take([_group_info(stream, name, state)], _members_of)
        return groups.items

    async def _groups(self, asked: _Asked) -> list[native.GroupInfo]:
        """The groups with members at this node."""
        allows, principal = self._context.access.allows, asked.origin.principal
        groups = Page[native.GroupInfo]()
        groups.take(
            (
                _group_info(view.stream, view.name, view.state)
                for view in self._context.groups
                if allows(principal, "pull", view.stream)
            ),
            _members_of,
        )
        return groups.items

    async def _list(self, asked: _Asked, request: native.ListIndexesRequest) -> None:
        allows, principal = self._context.access.allows, asked.origin.principal
        answer, more, after = Page[native.SavedIndex](), True, None
        if request.after_partition >= 2**32:
            raise RequestError("index.invalid", "A partition's number is below 2^32")
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
        asked.reply(native.encode(response))


def _group_info(stream: str, name: str, state: GroupState) -> native.GroupInfo:
    held = state.held()
    members = [
        native.GroupMember(one.id[:8], one.principal, held.get(one.id, [])) for one in state.members
    ]
    return native.GroupInfo(stream, name, state.shared, state.generation, members)


def _members_of(info: native.GroupInfo) -> int:
    return len(info.members)


def _told(request: GetIndexRequest | GetPartitionIndexRequest, index: int | None) -> bytes:
    tag, client_id, stream = response_tag(request.tag), request.client_id, request.stream_name
    if isinstance(request, GetIndexRequest):
        return encode_response(IndexResponse(client_id, stream, index, tag))
    response = PartitionIndexResponse(client_id, stream, request.partition, index, tag)
    return encode_response(response)
