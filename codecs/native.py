"""rillnode's own payload protocols, spoken on the same routes as Ockam's.

They do what the Ockam protocols do in batches (whole blocks of entries both ways), and what those
lack: subscriptions, reasons for refusals, administration. They are spoken on links of rillnode's
own only (`noise`, in memory), never on an `ockam` port.

    payload = { protocol: string, data: data }       data = the protocol's request or response

Every request begins with a `request_id` of the asker's choice; its answer, or a `Failure`, repeats
it. A subscription ends with the Failure `stream.removed` when its stream is removed. Requests go
to these addresses:

| protocol | to | answer |
|---|---|---|
| rillnode_append | a stream | Position of the first entry, once durable |
| rillnode_append_many | `appender` | Positions of the first entries, once all are durable |
| rillnode_open_producer | a stream | Producer: its epoch, and where its numbers go on |
| rillnode_read | a stream | Blocks |
| rillnode_locate | a stream | Position of the first entry that came at a time or later |
| rillnode_search | a stream | Found: the entries that meet a condition, and how far it looked |
| rillnode_subscribe | a stream | Blocks, again and again, from the subscription's own address |
| rillnode_follow | a stream | Found, again and again, from the subscription's own address |
| rillnode_credit, rillnode_unsubscribe | a subscription | none |
| rillnode_open, rillnode_describe | `stream` | StreamInfo |
| rillnode_open_many | `stream` | StreamInfo of each, or why not |
| rillnode_list | `stream` | StreamList |
| rillnode_watch_streams | `stream` | WatchedStreams, again and again, from an address of its own |
| rillnode_trim | `stream` | Position of the first entry kept |
| rillnode_remove | `stream` | Done |
| rillnode_load_index, rillnode_save_index | `stream_index` | SavedPosition |
| rillnode_list_indexes | `stream_index` | IndexList |
| rillnode_join_group | a group | Group, again and again |
| rillnode_leave_group, rillnode_release_group | a group | Done, once others may have it |
| rillnode_beat_group | a group | Done |
| rillnode_save_group | a group | SavedPosition |
| rillnode_list_groups | `stream_index` | Groups |
| rillnode_status | `node` | Document |
| rillnode_checkpoint | `backup` | Document: `{"path": ...}` of the store's copy |
| rillnode_sink_ends | `spark_sink/<name>` | SinkEnds |
| rillnode_sink_read | `spark_sink/<name>` | Blocks |
| rillnode_sink_commit, rillnode_sink_report | `spark_sink/<name>` | Done |
| rillnode_sink_control | `spark_sink/<name>` | Done |
| rillnode_serve | `serve` | Done, then Calls, again and again, from the service's own address |
| rillnode_stop_serving | a service | Done: no call follows |
| rillnode_answer | a service | none |
| rillnode_work | a queue, `WQ_...` | Jobs, again and again, until rillnode_unsubscribe |
| rillnode_settle | a queue | Settled, once durable |
| rillnode_queue | a queue | Document: how it stands |
| rillnode_take_back | a queue | TakenBack |
| rillnode_list_queues | `queues` | Queues |
| rillnode_about | `about`, then an address | Route |
| rillnode_watch | `about`, then an address | Route, once that has ended or its time is over |
| rillnode_stop | `about`, then an address | Done |
| rillnode_list_routes | `about` | Routes |
"""

from collections.abc import Sequence
from typing import Any, Final

from rillnode.codecs.bare import Codec
from rillnode.codecs.entries import Block, Entry, decode_header, entries_of
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.native_messages import (
    AnswerRequest as AnswerRequest,
    AppendItem as AppendItem,
    AppendManyRequest as AppendManyRequest,
    AppendRequest as AppendRequest,
    BeatGroupRequest as BeatGroupRequest,
    BlockItem as BlockItem,
    BlocksResponse as BlocksResponse,
    Call as Call,
    CallsResponse as CallsResponse,
    CheckpointRequest as CheckpointRequest,
    ConsoleRequest as ConsoleRequest,
    CreditRequest as CreditRequest,
    DescribeQueueRequest as DescribeQueueRequest,
    DescribeRequest as DescribeRequest,
    DocumentResponse as DocumentResponse,
    DoneResponse as DoneResponse,
    Failure as Failure,
    FollowRequest as FollowRequest,
    FoundResponse as FoundResponse,
    GroupInfo as GroupInfo,
    GroupMember as GroupMember,
    GroupResponse as GroupResponse,
    HeldPartition as HeldPartition,
    Hop as Hop,
    JobRef as JobRef,
    JobRun as JobRun,
    JobsResponse as JobsResponse,
    JoinGroupRequest as JoinGroupRequest,
    LeaveGroupRequest as LeaveGroupRequest,
    ListGroupsRequest as ListGroupsRequest,
    ListGroupsResponse as ListGroupsResponse,
    ListIndexesRequest as ListIndexesRequest,
    ListIndexesResponse as ListIndexesResponse,
    ListQueuesRequest as ListQueuesRequest,
    ListRequest as ListRequest,
    ListResponse as ListResponse,
    LoadIndexRequest as LoadIndexRequest,
    LocateRequest as LocateRequest,
    NodeAddress as NodeAddress,
    OpenManyRequest as OpenManyRequest,
    OpenManyResponse as OpenManyResponse,
    OpenProducerRequest as OpenProducerRequest,
    OpenRequest as OpenRequest,
    PartitionInfo as PartitionInfo,
    PositionResponse as PositionResponse,
    PositionsResponse as PositionsResponse,
    ProducerResponse as ProducerResponse,
    QueueName as QueueName,
    QueuesResponse as QueuesResponse,
    ReadRequest as ReadRequest,
    ReleaseGroupRequest as ReleaseGroupRequest,
    RemoveRequest as RemoveRequest,
    Request as Request,
    Response as Response,
    SavedIndex as SavedIndex,
    SavedIndexResponse as SavedIndexResponse,
    SaveGroupRequest as SaveGroupRequest,
    SaveIndexRequest as SaveIndexRequest,
    SearchRequest as SearchRequest,
    ServeRequest as ServeRequest,
    SettledResponse as SettledResponse,
    Settlement as Settlement,
    SettleRequest as SettleRequest,
    SinkCommitRequest as SinkCommitRequest,
    SinkControlRequest as SinkControlRequest,
    SinkEnd as SinkEnd,
    SinkEndsRequest as SinkEndsRequest,
    SinkEndsResponse as SinkEndsResponse,
    SinkPosition as SinkPosition,
    SinkReadRequest as SinkReadRequest,
    SinkReportRequest as SinkReportRequest,
    StatusRequest as StatusRequest,
    StopServingRequest as StopServingRequest,
    StreamInfo as StreamInfo,
    StreamResponse as StreamResponse,
    SubscribeRequest as SubscribeRequest,
    TakeBackRequest as TakeBackRequest,
    TakenBackResponse as TakenBackResponse,
    TrimRequest as TrimRequest,
    UnsubscribeRequest as UnsubscribeRequest,
    WatchStreamsRequest as WatchStreamsRequest,
    WatchStreamsResponse as WatchStreamsResponse,
    WorkRequest as WorkRequest,
)
from rillnode.codecs.routing.about import (
    AboutRequest as AboutRequest,
    ListRoutesRequest as ListRoutesRequest,
    RouteInfo as RouteInfo,
    RouteResponse as RouteResponse,
    RoutesResponse as RoutesResponse,
    StopRequest as StopRequest,
    WatchRequest as WatchRequest,
)
from rillnode.codecs.varint import encode_uint, read_uint

PREFIX: Final = b"rillnode_"
"""Begins the name of each protocol here, and of no other."""

LIST_MAX: Final = 500
"""Streams or indexes in one answer; `next` tells where to go on."""

ROUTES_MAX: Final = 250
"""Routes in one answer: they are put together and encoded in one turn each. Own choice."""

WATCH_MILLISECONDS_MAX: Final = 60_000
"""How long one request watches; who wants to know for longer asks again. Own choice."""

_BLOCKS_OVERHEAD_BYTES: Final = 1_024


_REQUESTS: Final[dict[str, type[Request]]] = {
    "rillnode_append": AppendRequest,
    "rillnode_append_many": AppendManyRequest,
    "rillnode_open_producer": OpenProducerRequest,
    "rillnode_read": ReadRequest,
    "rillnode_locate": LocateRequest,
    "rillnode_search": SearchRequest,
    "rillnode_subscribe": SubscribeRequest,
    "rillnode_follow": FollowRequest,
    "rillnode_credit": CreditRequest,
    "rillnode_unsubscribe": UnsubscribeRequest,
    "rillnode_open": OpenRequest,
    "rillnode_open_many": OpenManyRequest,
    "rillnode_describe": DescribeRequest,
    "rillnode_list": ListRequest,
    "rillnode_watch_streams": WatchStreamsRequest,
    "rillnode_trim": TrimRequest,
    "rillnode_remove": RemoveRequest,
    "rillnode_load_index": LoadIndexRequest,
    "rillnode_save_index": SaveIndexRequest,
    "rillnode_list_indexes": ListIndexesRequest,
    "rillnode_join_group": JoinGroupRequest,
    "rillnode_leave_group": LeaveGroupRequest,
    "rillnode_beat_group": BeatGroupRequest,
    "rillnode_release_group": ReleaseGroupRequest,
    "rillnode_save_group": SaveGroupRequest,
    "rillnode_list_groups": ListGroupsRequest,
    "rillnode_status": StatusRequest,
    "rillnode_console": ConsoleRequest,
    "rillnode_checkpoint": CheckpointRequest,
    "rillnode_sink_ends": SinkEndsRequest,
    "rillnode_sink_read": SinkReadRequest,
    "rillnode_sink_commit": SinkCommitRequest,
    "rillnode_sink_report": SinkReportRequest,
    "rillnode_sink_control": SinkControlRequest,
    "rillnode_serve": ServeRequest,
    "rillnode_stop_serving": StopServingRequest,
    "rillnode_answer": AnswerRequest,
    "rillnode_work": WorkRequest,
    "rillnode_settle": SettleRequest,
    "rillnode_queue": DescribeQueueRequest,
    "rillnode_take_back": TakeBackRequest,
    "rillnode_list_queues": ListQueuesRequest,
    "rillnode_about": AboutRequest,
    "rillnode_watch": WatchRequest,
    "rillnode_stop": StopRequest,
    "rillnode_list_routes": ListRoutesRequest,
}

_RESPONSES: Final[dict[str, type[Response]]] = {
    "rillnode_stream": StreamResponse,
    "rillnode_streams": ListResponse,
    "rillnode_watched_streams": WatchStreamsResponse,
    "rillnode_opened": OpenManyResponse,
    "rillnode_position": PositionResponse,
    "rillnode_positions": PositionsResponse,
    "rillnode_producer": ProducerResponse,
    "rillnode_blocks": BlocksResponse,
    "rillnode_found": FoundResponse,
    "rillnode_saved_index": SavedIndexResponse,
    "rillnode_saved_indexes": ListIndexesResponse,
    "rillnode_group": GroupResponse,
    "rillnode_groups": ListGroupsResponse,
    "rillnode_document": DocumentResponse,
    "rillnode_ends": SinkEndsResponse,
    "rillnode_done": DoneResponse,
    "rillnode_calls": CallsResponse,
    "rillnode_jobs": JobsResponse,
    "rillnode_settled": SettledResponse,
    "rillnode_taken_back": TakenBackResponse,
    "rillnode_queues": QueuesResponse,
    "rillnode_route": RouteResponse,
    "rillnode_routes": RoutesResponse,
    "rillnode_failure": Failure,
}


TAGS: Final = frozenset((*_REQUESTS, *_RESPONSES))
"""The names of these protocols, as envelopes have them."""


def _envelope(tag: str) -> bytes:
    return encode_uint(len(tag)) + tag.encode()


_REQUEST_CODECS: Final[dict[bytes, Codec[Any]]] = {
    tag.encode(): Codec(message) for tag, message in _REQUESTS.items()
}
_RESPONSE_CODECS: Final[dict[bytes, Codec[Any]]] = {
    tag.encode(): Codec(message) for tag, message in _RESPONSES.items()
}
_ENCODERS: Final[dict[type, tuple[bytes, Codec[Any]]]] = {
    message: (_envelope(tag), (_REQUEST_CODECS | _RESPONSE_CODECS)[tag.encode()])
    for tag, message in (_REQUESTS | _RESPONSES).items()
}


MESSAGES: Final[frozenset[type]] = frozenset(_ENCODERS)
"""Every message there is."""


def is_native(payload: bytes) -> bool:
    """Whether a payload is of one of these protocols."""
    return payload[1:10] == PREFIX


def encode(message: Request | Response) -> bytes:
    """Encode a request or response with its envelope.

    Raises:
        CodecError: a field is out of its range.
    """
    envelope, codec = _ENCODERS[type(message)]
    body = codec.encode(message)
    return b"".join((envelope, encode_uint(len(body)), body))


def decode_request(payload: bytes) -> Request:
    """Decode a request out of its envelope.

    Raises:
        CodecError: no envelope, `codec.protocol` for an unknown one, or a malformed body.
    """
    request: Request = _decode(payload, _REQUEST_CODECS)
    return request


def decode_response(payload: bytes) -> Response:
    """Decode a response out of its envelope; raises as `decode_request` does."""
    response: Response = _decode(payload, _RESPONSE_CODECS)
    return response


def encode_blocks(
    request_id: int, first_index: int, next_index: int, blocks: Sequence[Block]
) -> bytes:
    """Encode a BlocksResponse straight from stored blocks: each is copied once."""
    parts = [encode_uint(request_id), encode_uint(first_index), encode_uint(next_index)]
    parts.append(encode_uint(len(blocks)))
    for block in blocks:
        parts += (encode_uint(block.first_index), encode_uint(len(block.value)), block.value)
    size = sum(map(len, parts))
    return b"".join((_ENCODERS[BlocksResponse][0], encode_uint(size), *parts))


def found(request_id: int, extent: tuple[int, int], reached: int, blocks: Sequence[Block]) -> bytes:
    """Encode a FoundResponse; `extent` is the log's first index kept and its end."""
    items = [BlockItem(block.first_index, block.value) for block in blocks]
    return encode(FoundResponse(request_id, *extent, reached, items))


def blocks_of(response: BlocksResponse | FoundResponse) -> list[Block]:
    """The blocks of a response."""
    return [Block(item.first_index, item.value) for item in response.blocks]


def entries_of_run(run: JobRun) -> list[Entry]:
    """The entries that a worker is given together.

    Raises:
        CodecError: they are no block, or come at other times than there are entries.
    """
    block, times = Block(run.first_index, run.value), None
    if run.later:
        header = decode_header(run.value)
        times = [header.received_at + later for later in run.later]
        if len(times) != header.count:
            text = f"{header.count} entries have come at {len(times)} times"
            raise CodecError("entries.count", text)
    return entries_of(block, partition=run.partition, received_at=times)


def block_budget(message_bytes_max: int, wanted: int) -> int:
    """Bytes of blocks that an answer may hold, out of what was asked for."""
    return max(1, min(wanted, message_bytes_max - _BLOCKS_OVERHEAD_BYTES))


def failure_of(failure: Failure) -> RequestError:
    """A node's failure as the error that a caller gets."""
    context = {} if failure.index is None else {"index": failure.index}
    return RequestError(
        failure.code,
        failure.text,
        retryable=failure.retryable,
        retry_seconds=failure.retry_milliseconds / 1_000,
        **context,
    )


def failure_for(payload: bytes, error: RillnodeError) -> bytes | None:
    """The failure that answers a payload which reached nobody; None where it is an answer itself.

    It repeats the request's id, and has 0 for payloads of other protocols.
    """
    if not is_native(payload):
        return encode(Failure.of(0, error))
    try:
        _, start = _open(payload, _REQUEST_CODECS)
        request_id, _ = read_uint(payload, start)
    except CodecError:
        return None
    return encode(Failure.of(request_id, error))


def _decode(payload: bytes, codecs: dict[bytes, Codec[Any]]) -> Any:
    codec, start = _open(payload, codecs)
    message, end = codec.decode_prefix(payload, start)
    if end != len(payload):
        raise CodecError("codec.trailing", "bytes follow the message", offset=end)
    return message


def _open(payload: bytes, codecs: dict[bytes, Codec[Any]]) -> tuple[Codec[Any], int]:
    """Read an envelope: the body's codec and offset."""
    length, start = read_uint(payload, 0)
    end = start + length
    codec = codecs.get(bytes(payload[start:end]))
    if codec is None:
        raise CodecError("codec.protocol", "unknown protocol", offset=start)
    size, start = read_uint(payload, end)
    if start + size != len(payload):
        code = "codec.truncated" if start + size > len(payload) else "codec.trailing"
        raise CodecError(code, "the body's length is not what is there", offset=start)
    return codec, start
