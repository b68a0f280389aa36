"""rillnode's own payload protocols, spoken on the same routes as Ockam's.

They do what the Ockam protocols do in batches (whole blocks of entries both ways), and what those
lack: subscriptions, reasons for refusals, administration. They are spoken on links of rillnode's
own only (`noise`, in memory), never on an `ockam` port.

    payload = { protocol: string, data: data }       data = the protocol's request or response

Every request begins with a `request_id` of the asker's choice; its answer, or a `rillnode_failure`,
repeats it. A subscription ends with the failure `stream.removed` when its stream is removed. Where
requests go, and what answers them:

| request | to | answer |
|---|---|---|
| rillnode_append | a stream | rillnode_position of the first entry, once durable |
| rillnode_append_many | `appender` | rillnode_positions of first entries, once all are durable |
| rillnode_open_producer | a stream | rillnode_producer: its epoch, and where its numbers go on |
| rillnode_read | a stream | rillnode_blocks |
| rillnode_locate | a stream | rillnode_position of the first entry that came then or later |
| rillnode_search | a stream | rillnode_found: what meets the condition, and how far it looked |
| rillnode_subscribe | a stream | rillnode_blocks, again and again, from an address of its own |
| rillnode_follow | a stream | rillnode_found, again and again, from an address of its own |
| rillnode_credit, rillnode_unsubscribe | a subscription | none |
| rillnode_open, rillnode_describe | `stream` | rillnode_stream |
| rillnode_open_many | `stream` | rillnode_opened |
| rillnode_list | `stream` | rillnode_streams, at most 500 |
| rillnode_watch_streams | `stream` | rillnode_watched_streams, again and again, likewise |
| rillnode_trim | `stream` | rillnode_position of the first entry kept |
| rillnode_remove | `stream` | rillnode_done, once durable |
| rillnode_load_index, rillnode_save_index | `stream_index` | rillnode_saved_index |
| rillnode_list_indexes | `stream_index` | rillnode_saved_indexes, at most 500 |
| rillnode_join_group | a group | rillnode_group, again and again |
| rillnode_leave_group, rillnode_release_group | a group | rillnode_done, once others may have it |
| rillnode_beat_group | a group | rillnode_done |
| rillnode_save_group | a group | rillnode_saved_index |
| rillnode_list_groups | `stream_index` | rillnode_groups |
| rillnode_status | `node` | rillnode_document |
| rillnode_console | `node` | rillnode_document: `{"ticket", "address", "tls", "seconds"}` |
| rillnode_checkpoint | `backup` | rillnode_document: `{"path"}` of the copy, for it to remove |
| rillnode_sink_ends | a sink | rillnode_ends |
| rillnode_sink_read | a sink | rillnode_blocks |
| rillnode_sink_commit | a sink | rillnode_done, once durable |
| rillnode_sink_report, rillnode_sink_control | a sink | rillnode_done |
| rillnode_serve | `serve` | rillnode_done, then rillnode_calls, from the service's own address |
| rillnode_stop_serving | a service | rillnode_done: no call follows |
| rillnode_answer | a service | none |
| rillnode_work | a queue | rillnode_jobs, again and again, until rillnode_unsubscribe |
| rillnode_settle | a queue | rillnode_settled, once durable |
| rillnode_queue | a queue | rillnode_document: how it stands |
| rillnode_take_back | a queue | rillnode_taken_back |
| rillnode_list_queues | `queues` | rillnode_queues |
| rillnode_about | `about`, then an address | rillnode_route |
| rillnode_watch | `about`, then an address | rillnode_route, once that has ended or time is over |
| rillnode_stop | `about`, then an address | rillnode_done |
| rillnode_list_routes | `about` | rillnode_routes, at most 250 |

A stream is at `ST_S_<partition>_<name>`, a group at `GR_<name>_<stream>`, a queue at
`WQ_<queue>_<stream>`, a sink at `spark_sink/<name>`. Names are quoted as in URLs, the first of two
with its `_` as well. A subscription or service is where its answers come from.
"""

from collections.abc import Sequence
from typing import Any, Final

from rillnode.codecs.bare import Codec
from rillnode.codecs.entries import Block, Entry, decode_header, entries_of
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.native_messages import (
    AnswerRequest as AnswerRequest,
)
from rillnode.codecs.native_messages import (
    AppendItem as AppendItem,
)
from rillnode.codecs.native_messages import (
    AppendManyRequest as AppendManyRequest,
)
from rillnode.codecs.native_messages import (
    AppendRequest as AppendRequest,
)
from rillnode.codecs.native_messages import (
    BeatGroupRequest as BeatGroupRequest,
)
from rillnode.codecs.native_messages import (
    BlockItem as BlockItem,
)
from rillnode.codecs.native_messages import (
    BlocksResponse as BlocksResponse,
)
from rillnode.codecs.native_messages import (
    Call as Call,
)
from rillnode.codecs.native_messages import (
    CallsResponse as CallsResponse,
)
from rillnode.codecs.native_messages import (
    CheckpointRequest as CheckpointRequest,
)
from rillnode.codecs.native_messages import (
    ConsoleRequest as ConsoleRequest,
)
from rillnode.codecs.native_messages import (
    CreditRequest as CreditRequest,
)
from rillnode.codecs.native_messages import (
    DescribeQueueRequest as DescribeQueueRequest,
)
from rillnode.codecs.native_messages import (
    DescribeRequest as DescribeRequest,
)
from rillnode.codecs.native_messages import (
    DocumentResponse as DocumentResponse,
)
from rillnode.codecs.native_messages import (
    DoneResponse as DoneResponse,
)
from rillnode.codecs.native_messages import (
    Failure as Failure,
)
from rillnode.codecs.native_messages import (
    FollowRequest as FollowRequest,
)
from rillnode.codecs.native_messages import (
    FoundResponse as FoundResponse,
)
from rillnode.codecs.native_messages import (
    GroupInfo as GroupInfo,
)
from rillnode.codecs.native_messages import (
    GroupMember as GroupMember,
)
from rillnode.codecs.native_messages import (
    GroupResponse as GroupResponse,
)
from rillnode.codecs.native_messages import (
    HeldPartition as HeldPartition,
)
from rillnode.codecs.native_messages import (
    Hop as Hop,
)
from rillnode.codecs.native_messages import (
    JobRef as JobRef,
)
from rillnode.codecs.native_messages import (
    JobRun as JobRun,
)
from rillnode.codecs.native_messages import (
    JobsResponse as JobsResponse,
)
from rillnode.codecs.native_messages import (
    JoinGroupRequest as JoinGroupRequest,
)
from rillnode.codecs.native_messages import (
    LeaveGroupRequest as LeaveGroupRequest,
)
from rillnode.codecs.native_messages import (
    ListGroupsRequest as ListGroupsRequest,
)
from rillnode.codecs.native_messages import (
    ListGroupsResponse as ListGroupsResponse,
)
from rillnode.codecs.native_messages import (
    ListIndexesRequest as ListIndexesRequest,
)
from rillnode.codecs.native_messages import (
    ListIndexesResponse as ListIndexesResponse,
)
from rillnode.codecs.native_messages import (
    ListQueuesRequest as ListQueuesRequest,
)
from rillnode.codecs.native_messages import (
    ListRequest as ListRequest,
)
from rillnode.codecs.native_messages import (
    ListResponse as ListResponse,
)
from rillnode.codecs.native_messages import (
    LoadIndexRequest as LoadIndexRequest,
)
from rillnode.codecs.native_messages import (
    LocateRequest as LocateRequest,
)
from rillnode.codecs.native_messages import (
    NodeAddress as NodeAddress,
)
from rillnode.codecs.native_messages import (
    OpenManyRequest as OpenManyRequest,
)
from rillnode.codecs.native_messages import (
    OpenManyResponse as OpenManyResponse,
)
from rillnode.codecs.native_messages import (
    OpenProducerRequest as OpenProducerRequest,
)
from rillnode.codecs.native_messages import (
    OpenRequest as OpenRequest,
)
from rillnode.codecs.native_messages import (
    PartitionInfo as PartitionInfo,
)
from rillnode.codecs.native_messages import (
    PositionResponse as PositionResponse,
)
from rillnode.codecs.native_messages import (
    PositionsResponse as PositionsResponse,
)
from rillnode.codecs.native_messages import (
    ProducerResponse as ProducerResponse,
)
from rillnode.codecs.native_messages import (
    QueueName as QueueName,
)
from rillnode.codecs.native_messages import (
    QueuesResponse as QueuesResponse,
)
from rillnode.codecs.native_messages import (
    ReadRequest as ReadRequest,
)
from rillnode.codecs.native_messages import (
    ReleaseGroupRequest as ReleaseGroupRequest,
)
from rillnode.codecs.native_messages import (
    RemoveRequest as RemoveRequest,
)
from rillnode.codecs.native_messages import (
    Request as Request,
)
from rillnode.codecs.native_messages import (
    Response as Response,
)
from rillnode.codecs.native_messages import (
    SavedIndex as SavedIndex,
)
from rillnode.codecs.native_messages import (
    SavedIndexResponse as SavedIndexResponse,
)
from rillnode.codecs.native_messages import (
    SaveGroupRequest as SaveGroupRequest,
)
from rillnode.codecs.native_messages import (
    SaveIndexRequest as SaveIndexRequest,
)
from rillnode.codecs.native_messages import (
    SearchRequest as SearchRequest,
)
from rillnode.codecs.native_messages import (
    ServeRequest as ServeRequest,
)
from rillnode.codecs.native_messages import (
    SettledResponse as SettledResponse,
)
from rillnode.codecs.native_messages import (
    Settlement as Settlement,
)
from rillnode.codecs.native_messages import (
    SettleRequest as SettleRequest,
)
from rillnode.codecs.native_messages import (
    SinkCommitRequest as SinkCommitRequest,
)
from rillnode.codecs.native_messages import (
    SinkControlRequest as SinkControlRequest,
)
from rillnode.codecs.native_messages import (
    SinkEnd as SinkEnd,
)
from rillnode.codecs.native_messages import (
    SinkEndsRequest as SinkEndsRequest,
)
from rillnode.codecs.native_messages import (
    SinkEndsResponse as SinkEndsResponse,
)
from rillnode.codecs.native_messages import (
    SinkPosition as SinkPosition,
)
from rillnode.codecs.native_messages import (
    SinkReadRequest as SinkReadRequest,
)
from rillnode.codecs.native_messages import (
    SinkReportRequest as SinkReportRequest,
)
from rillnode.codecs.native_messages import (
    StatusRequest as StatusRequest,
)
from rillnode.codecs.native_messages import (
    StopServingRequest as StopServingRequest,
)
from rillnode.codecs.native_messages import (
    StreamInfo as StreamInfo,
)
from rillnode.codecs.native_messages import (
    StreamResponse as StreamResponse,
)
from rillnode.codecs.native_messages import (
    SubscribeRequest as SubscribeRequest,
)
from rillnode.codecs.native_messages import (
    TakeBackRequest as TakeBackRequest,
)
from rillnode.codecs.native_messages import (
    TakenBackResponse as TakenBackResponse,
)
from rillnode.codecs.native_messages import (
    TrimRequest as TrimRequest,
)
from rillnode.codecs.native_messages import (
    UnsubscribeRequest as UnsubscribeRequest,
)
from rillnode.codecs.native_messages import (
    WatchStreamsRequest as WatchStreamsRequest,
)
from rillnode.codecs.native_messages import (
    WatchStreamsResponse as WatchStreamsResponse,
)
from rillnode.codecs.native_messages import (
    WorkRequest as WorkRequest,
)
from rillnode.codecs.routing.about import (
    AboutRequest as AboutRequest,
)
from rillnode.codecs.routing.about import (
    ListRoutesRequest as ListRoutesRequest,
)
from rillnode.codecs.routing.about import (
    RouteInfo as RouteInfo,
)
from rillnode.codecs.routing.about import (
    RouteResponse as RouteResponse,
)
from rillnode.codecs.routing.about import (
    RoutesResponse as RoutesResponse,
)
from rillnode.codecs.routing.about import (
    StopRequest as StopRequest,
)
from rillnode.codecs.routing.about import (
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


REQUESTS: Final[dict[str, type[Request]]] = {
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

RESPONSES: Final[dict[str, type[Response]]] = {
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


TAGS: Final = frozenset((*REQUESTS, *RESPONSES))
"""The names of these protocols, as envelopes have them."""


def _envelope(tag: str) -> bytes:
    return encode_uint(len(tag)) + tag.encode()


_REQUEST_CODECS: Final[dict[bytes, Codec[Any]]] = {
    tag.encode(): Codec(message) for tag, message in REQUESTS.items()
}
_RESPONSE_CODECS: Final[dict[bytes, Codec[Any]]] = {
    tag.encode(): Codec(message) for tag, message in RESPONSES.items()
}
_ENCODERS: Final[dict[type, tuple[bytes, Codec[Any]]]] = {
    message: (_envelope(tag), (_REQUEST_CODECS | _RESPONSE_CODECS)[tag.encode()])
    for tag, message in (REQUESTS | RESPONSES).items()
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
