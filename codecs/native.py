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
| rillnode_subscribe | a stream | rillnode_blocks or rillnode_found, again and again |
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
`WQ_<queue>_<stream>`, a sink at `sink/<name>`. Names are quoted as in URLs, the first of two
with its `_` as well. A subscription or service is where its answers come from.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any, Final, Self

from msgspec import Struct, field

from rillnode.codecs.bare import Codec, UInt
from rillnode.codecs.entries import Block, Entry, decode_header, entries_of
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.routing.about import (
    AboutRequest as AboutRequest,
    ListRoutesRequest as ListRoutesRequest,
    RouteInfo as RouteInfo,
    RouteResponse as RouteResponse,
    RoutesResponse as RoutesResponse,
    StopRequest as StopRequest,
    WatchRequest as WatchRequest,
)
from rillnode.codecs.varint import encode_uint, read_data, read_uint

PREFIX: Final = b"rillnode_"
"""Begins the name of each protocol here, and of no other."""

LIST_MAX: Final = 500
"""Streams or indexes in one answer; `next` tells where to go on."""

ROUTES_MAX: Final = 250
"""Routes in one answer: they are put together and encoded in one turn each. Own choice."""

WATCH_MILLISECONDS_MAX: Final = 60_000
"""How long one request watches; who wants to know for longer asks again. Own choice."""

_BLOCKS_OVERHEAD_BYTES: Final = 1_024


class AppendRequest(Struct):
    """Add the `count` entries of `body` to a stream.

    Attributes:
        count: number of entries.
        body: the entries, as codecs/entries.py lays them out.
        flags: which columns it has beside data: keys (2), headers (4).
        producer: who has numbered them: a name, or an id made up for a while; what is stored
            already is answered with the index that it has. Empty: nobody.
        epoch: of the opening of the producer's name; 0: it has none.
        sequence: the first entry's number; those of the others follow.
        after: of a name: the number after that of the entry which its producer has pushed before,
            and that is stored or under way: without it nothing of this is stored.
    """

    request_id: UInt
    count: UInt
    body: bytes
    flags: UInt = 0
    producer: bytes = b""
    epoch: UInt = 0
    sequence: UInt = 0
    after: UInt = 0


class AppendItem(Struct):
    """An append to one partition, by its address, as in an AppendRequest."""

    address: bytes
    count: UInt
    body: bytes
    flags: UInt = 0
    sequence: UInt = 0


class AppendManyRequest(Struct):
    """Add a block to each of at most 256 partitions (`APPENDS_MAX`), in order, each by itself.

    Attributes:
        producer: the id of who has numbered the entries of each partition; empty: nobody.
    """

    request_id: UInt
    items: list[AppendItem]
    producer: bytes = b""


class OpenProducerRequest(Struct):
    """Let a producer's numbers in a partition go on; who has opened its name before is fenced."""

    request_id: UInt
    name: str


class ReadRequest(Struct):
    """Read whole blocks from `index` on.

    Attributes:
        created_at: that of the stream that is meant, as StreamInfo has it: an index says nothing of
            a later stream of the name. 0: whichever has the name now.
    """

    request_id: UInt
    index: UInt
    entries_max: UInt
    bytes_max: UInt
    created_at: UInt = 0


class LocateRequest(Struct):
    """Ask for the index of the first entry that came at a time or later; the end where none did.

    Attributes:
        milliseconds: since 1970.
        ago: they are so many before now, by the node's clock, instead.
    """

    request_id: UInt
    milliseconds: UInt
    ago: bool


class SearchRequest(Struct):
    """Read the entries from `index` to before `until` that meet a condition.

    One request looks at a bounded number of entries: whoever asks goes on from where its answer
    has got to.

    Attributes:
        entries_max: enough matches.
        where: the condition (`codecs/where.py`).
        created_at: as of ReadRequest.
    """

    request_id: UInt
    index: UInt
    until: UInt
    entries_max: UInt
    where: str
    created_at: UInt = 0


class SubscribeRequest(Struct):
    """Follow a stream from `index` on; at most `credit_bytes` of blocks are sent ahead.

    With a condition the answers are FoundResponses, else BlocksResponses. Where the log ends before
    `index`, one without blocks says so, once.

    Attributes:
        created_at: as of ReadRequest.
        where: only entries that meet this condition (`codecs/where.py`); empty: all.
    """

    request_id: UInt
    index: UInt
    credit_bytes: UInt
    created_at: UInt = 0
    where: str = ""


class CreditRequest(Struct):
    """Let a subscription send this many bytes of blocks more."""

    request_id: UInt
    credit_bytes: UInt


class UnsubscribeRequest(Struct):
    """End a subscription."""

    request_id: UInt


class OpenRequest(Struct):
    """Create a stream, or open it where it exists; an empty name asks for a made-up one."""

    request_id: UInt
    name: str
    partitions: UInt


class OpenManyRequest(Struct):
    """Create streams, or open those that exist: at most 100 (`OPENS_MAX`), each by itself."""

    request_id: UInt
    names: list[str]
    partitions: UInt


class DescribeRequest(Struct):
    """Tell about one stream."""

    request_id: UInt
    name: str


class ListRequest(Struct):
    """List streams with a prefix, by name, after `after`."""

    request_id: UInt
    prefix: str
    after: str


class WatchStreamsRequest(Struct):
    """Tell which streams there are whose names a pattern stands for, and of each that is made.

    Answered again and again, until an UnsubscribeRequest goes to where the answers come from. The
    pattern is one of grants: `*`, `?` and `[...]`.
    """

    request_id: UInt
    pattern: str


class TrimRequest(Struct):
    """Drop a partition's entries below `before`.

    Attributes:
        created_at: as of ReadRequest.
    """

    request_id: UInt
    name: str
    partition: UInt
    before: UInt
    created_at: UInt = 0


class RemoveRequest(Struct):
    """Remove a stream with everything in it.

    Attributes:
        created_at: as of ReadRequest.
    """

    request_id: UInt
    name: str
    created_at: UInt = 0


class LoadIndexRequest(Struct):
    """Tell a consumer's saved position."""

    request_id: UInt
    client_id: str
    stream: str
    partition: UInt


class SaveIndexRequest(Struct):
    """Save a consumer's position; the answer tells what is saved durably then.

    Attributes:
        created_at: as of ReadRequest.
    """

    request_id: UInt
    client_id: str
    stream: str
    partition: UInt
    index: UInt
    created_at: UInt = 0


class ListIndexesRequest(Struct):
    """List saved positions of one stream, or of all (empty), after a position's key."""

    request_id: UInt
    stream: str
    after_stream: str
    after_partition: UInt
    after_client_id: str


class JoinGroupRequest(Struct):
    """Become a member of a group of consumers; answered by a GroupResponse at each change.

    Asked again with the same token over another link the member goes on with what it has.

    Attributes:
        member: a token of 16 bytes, made up for one member; whoever asks with it is the same.
        shared: whether members share the partitions; else a single consumer has the name, which
            takes part in nothing but that.
        created_at: as of ReadRequest.
    """

    request_id: UInt
    member: bytes
    shared: bool
    created_at: UInt = 0


class LeaveGroupRequest(Struct):
    """Be a member no more; what the member has others get at once."""

    request_id: UInt
    member: bytes


class BeatGroupRequest(Struct):
    """Tell that a member that has partitions is well; answered by a GroupLeaseResponse."""

    request_id: UInt
    member: bytes


class HeldPartition(Struct):
    """A partition that a member has, since the group's generation `generation`."""

    partition: UInt
    generation: UInt


class ReleaseGroupRequest(Struct):
    """Give partitions up that the group has asked for, once the positions in them are saved."""

    request_id: UInt
    member: bytes
    partitions: list[HeldPartition]


class SaveGroupRequest(Struct):
    """Save the group's position in a partition that the member has had since `generation`."""

    request_id: UInt
    member: bytes
    partition: UInt
    generation: UInt
    index: UInt


class ListGroupsRequest(Struct):
    """List the groups of a stream, or (empty) those with members at the node."""

    request_id: UInt
    stream: str


class StatusRequest(Struct):
    """Ask for the node's status."""

    request_id: UInt


class ConsoleRequest(Struct):
    """Ask for a ticket to the node's page, which makes who has it act there as the asker."""

    request_id: UInt


class CheckpointRequest(Struct):
    """Have the node copy its store beside itself, for a backup on the node's machine."""

    request_id: UInt


class SinkEndsRequest(Struct):
    """Ask for the extents of all partitions that a sink takes from."""

    request_id: UInt


class SinkReadRequest(Struct):
    """Read whole blocks that hold `index` to `until` of one of a sink's partitions.

    `created_at` is that of the stream that is meant, as SinkEnd has it; 0 is whichever has the name
    now. What a stream had that was removed since is answered as trimmed.
    """

    request_id: UInt
    stream: str
    partition: UInt
    index: UInt
    until: UInt
    bytes_max: UInt
    created_at: UInt


class SinkPosition(Struct):
    """Up to where (exclusive) a sink has committed one partition.

    `created_at` is as of SinkReadRequest; a position in a stream that was removed since is let go.
    """

    stream: str
    partition: UInt
    index: UInt
    created_at: UInt


class SinkCommitRequest(Struct):
    """Save what a sink has committed; answered when that is durable."""

    request_id: UInt
    positions: list[SinkPosition]


class SinkReportRequest(Struct):
    """A job's progress: a small JSON document."""

    request_id: UInt
    document: bytes


class SinkControlRequest(Struct):
    """Let a sink's job pause or run, for administrators of the node."""

    request_id: UInt
    run: bool


class ServeRequest(Struct):
    """Have messages to an address come to the asker as calls.

    Asked again with the same token it renews: over another link, or before the lease is over.

    Attributes:
        address: a local address of the node.
        token: made up for one service; whoever asks with it is the same.
        group: others may have the address too, and each call goes to one of them.
        calls_max: calls that may be open at a time.
        lease_milliseconds: how long the address is kept while nobody serves it.
    """

    request_id: UInt
    address: bytes
    token: bytes
    group: bool
    calls_max: UInt
    lease_milliseconds: UInt


class StopServingRequest(Struct):
    """Send no more calls to the service with this token; what is open is still answered."""

    request_id: UInt
    token: bytes


class AnswerRequest(Struct):
    """The outcome of a call; it has no answer itself, and needs no id.

    Attributes:
        payload: the answer; None: there is none.
        code: why there is none, an error code; empty: nothing has failed.
        text: likewise, for people.
    """

    request_id: UInt
    call_id: UInt
    payload: bytes | None
    code: str = ""
    text: str = ""


class JobRef(Struct):
    """A job that a worker has: an entry, and which attempt at it this is, from 1."""

    partition: UInt
    index: UInt
    attempt: UInt


class WorkRequest(Struct):
    """Be a worker of a queue, whose jobs come as they are there; the latest to join has the say.

    Asked again with the same token it goes on: over another link, or with other limits.

    Attributes:
        worker: a token that is made up for one worker; 16 bytes.
        holds: the jobs that the worker has already; what else the queue has given it was lost on
            its way, and is given again.
        in_flight: jobs that the worker takes before it has answered; its credit.
        queue_in_flight: jobs that all workers together may have; 0: no limit but the queue's own.
        attempts: after so many an entry is a dead letter.
        visibility_milliseconds: what is not answered by then is given again.
        by_key: entries of one key are with one worker at a time, in their order.
        created_at: as of ReadRequest.
    """

    request_id: UInt
    worker: bytes
    holds: list[JobRef]
    in_flight: UInt
    queue_in_flight: UInt
    attempts: UInt
    visibility_milliseconds: UInt
    by_key: bool
    created_at: UInt = 0


class Settlement(Struct):
    """A worker's word on jobs that follow each other in a partition, each with the same attempt.

    Attributes:
        index: of the first.
        outcome: 0: it is done. 1: give it again. 2: it is a dead letter. 3: more time is needed. 4:
            it was not begun; this attempt does not count.
        milliseconds: the pause before it is given again, or the time that is needed from now on;
            None: the queue's own, which grows with each attempt.
        reason: for people, why it failed or is rejected.
    """

    partition: UInt
    index: UInt
    attempt: UInt
    outcome: UInt
    milliseconds: UInt | None = None
    reason: str = ""
    count: UInt = 1


class SettleRequest(Struct):
    """Settle jobs; answered when that is durable.

    Attributes:
        worker: the worker's token.
        number: the worker's own, one more with each request: the same one asked again is answered
            as it was, and done once. A worker has at most 8 such requests under way at a time.
        begun: it is a worker no more, and what it has is given to others; what it has begun has
            cost an attempt. None: it stays one.
    """

    request_id: UInt
    worker: bytes
    number: UInt
    items: list[Settlement]
    begun: list[JobRef] | None = None


class DescribeQueueRequest(Struct):
    """Tell about a queue."""

    request_id: UInt


class TakeBackRequest(Struct):
    """Give dead letters of a queue to its workers again, at most so many, the oldest first."""

    request_id: UInt
    entries_max: UInt


class ListQueuesRequest(Struct):
    """List queues of one stream, or of all (empty), after a queue."""

    request_id: UInt
    stream: str
    after_stream: str
    after_queue: str


class PartitionInfo(Struct):
    """One partition of a stream: its address and committed extent."""

    partition: UInt
    address: bytes
    first_index: UInt
    next_index: UInt
    data_bytes: UInt


class StreamInfo(Struct):
    """A stream; times in milliseconds since 1970, retention limits where there are any.

    Attributes:
        created_at: also says which stream of the name it is: no two were created at the same time.
    """

    name: str
    created_at: UInt
    owner: str
    retain_milliseconds: UInt | None
    retain_entries_max: UInt | None
    retain_bytes_max: UInt | None
    partitions: list[PartitionInfo]


class StreamResponse(Struct):
    """Answers OpenRequest and DescribeRequest."""

    request_id: UInt
    stream: StreamInfo


class ListResponse(Struct):
    """Answers ListRequest; `next_after` is empty at the end."""

    request_id: UInt
    streams: list[StreamInfo]
    next_after: str


class WatchStreamsResponse(Struct):
    """Answers WatchStreamsRequest: streams that were not told of, or have more partitions now.

    Attributes:
        listed: all that there were at the beginning have been told.
    """

    request_id: UInt
    streams: list[StreamInfo]
    listed: bool


class PositionResponse(Struct):
    """Answers AppendRequest, LocateRequest and TrimRequest."""

    request_id: UInt
    index: UInt


class ProducerResponse(Struct):
    """Answers OpenProducerRequest.

    Attributes:
        epoch: what the producer's appends have to say.
        next_sequence: the number after its last one; 0 where there is none.
        last_index: the index that the last one has, where that is known.
    """

    request_id: UInt
    epoch: UInt
    next_sequence: UInt
    last_index: UInt | None


class BlockItem(Struct):
    """One stored block and the index of its first entry."""

    first_index: UInt
    value: bytes


class BlocksResponse(Struct):
    """Answers reads and subscriptions; the reader drops entries outside what it asked for.

    Attributes:
        first_index: first index that the log still keeps.
        next_index: index after the last committed entry when it was read.
    """

    request_id: UInt
    first_index: UInt
    next_index: UInt
    blocks: list[BlockItem]


class FoundResponse(Struct):
    """Answers SearchRequest, and SubscribeRequest again and again: entries that match, no others.

    Attributes:
        first_index: first index that the log still keeps.
        next_index: index after the last committed entry when it was read.
        reached: index after the last entry that was looked at.
        blocks: each is a run of neighbours that match.
    """

    request_id: UInt
    first_index: UInt
    next_index: UInt
    reached: UInt
    blocks: list[BlockItem]


class SavedIndex(Struct):
    """A consumer's saved position."""

    stream: str
    partition: UInt
    client_id: str
    index: UInt


class SavedIndexResponse(Struct):
    """Answers LoadIndexRequest and SaveIndexRequest; None where nothing was ever saved."""

    request_id: UInt
    index: UInt | None


class GroupResponse(Struct):
    """Answers JoinGroupRequest, again and again: what a member has.

    Attributes:
        generation: counts the changes of the group: members that come and go, partitions that move.
        held: its partitions.
        asked: those of them that it is to give up.
    """

    request_id: UInt
    generation: UInt
    held: list[HeldPartition]
    asked: list[UInt]


class GroupLeaseResponse(Struct):
    """Answers BeatGroupRequest: how long nobody else gets what the member has.

    Attributes:
        milliseconds: from when it was asked, unless the member gives something up. As that was
            before it was answered, they hold from when the request was sent.
    """

    request_id: UInt
    milliseconds: UInt


class GroupMember(Struct):
    """A member of a group: the beginning of its token in hex, whose it is, and what it has."""

    id: str
    principal: str
    partitions: list[UInt]


class GroupInfo(Struct):
    """A group of consumers, or a single one (not `shared`), of one stream."""

    stream: str
    name: str
    shared: bool
    generation: UInt
    members: list[GroupMember]


class ListGroupsResponse(Struct):
    """Answers ListGroupsRequest."""

    request_id: UInt
    groups: list[GroupInfo]


class ListIndexesResponse(Struct):
    """Answers ListIndexesRequest; `last` tells where to go on, None at the end."""

    request_id: UInt
    indexes: list[SavedIndex]
    last: SavedIndex | None


class DocumentResponse(Struct):
    """Answers StatusRequest, ConsoleRequest and CheckpointRequest: JSON text."""

    request_id: UInt
    document: bytes


class SinkEnd(Struct):
    """The committed extent of one of a sink's partitions.

    A stream that was removed and made anew has another `created_at`, milliseconds since 1970.
    """

    stream: str
    created_at: UInt
    partition: UInt
    first_index: UInt
    next_index: UInt


class SinkEndsResponse(Struct):
    """Answers SinkEndsRequest."""

    request_id: UInt
    ends: list[SinkEnd]


class DoneResponse(Struct):
    """Answers requests that have nothing to tell but success."""

    request_id: UInt


class Hop(Struct):
    """An address of a route."""

    type: UInt
    value: bytes


class Call(Struct):
    """A message to a served address.

    Attributes:
        principal: whom its sender has proved to be to the node.
        onward_route: what follows the address.
        return_route: where its answer goes, from the node on; empty: nobody waits.
    """

    call_id: UInt
    principal: str
    onward_route: list[Hop]
    return_route: list[Hop]
    payload: bytes


class CallsResponse(Struct):
    """Answers ServeRequest, again and again: messages to the address."""

    request_id: UInt
    calls: list[Call]


class JobRun(Struct):
    """Entries that a worker is to work on, which follow each other in a partition.

    Attributes:
        first_index: of the first of them.
        attempt: which one at each of them this is, from 1.
        value: a block of them, as logs have blocks, with the time when the first came.
        later: how many milliseconds after that each came; empty: all came with the first.
    """

    partition: UInt
    first_index: UInt
    attempt: UInt
    value: bytes
    later: list[UInt]


class JobsResponse(Struct):
    """Answers WorkRequest, again and again: jobs; at first none, to say that it is a worker.

    Attributes:
        jobs: for the worker.
        gone: of those that it holds, what it has no more: they were given to others.
    """

    request_id: UInt
    jobs: list[JobRun]
    gone: list[JobRef]


class SettledResponse(Struct):
    """Answers SettleRequest.

    Attributes:
        late: which jobs of the request, counted through all items from 0, were not the worker's any
            more: not answered in time and given again, or settled.
    """

    request_id: UInt
    late: list[UInt]


class TakenBackResponse(Struct):
    """Answers TakeBackRequest.

    Attributes:
        taken: dead letters that are given to workers again.
        gone: those whose entry the stream does not keep any more.
        left: entries of the stream of dead letters that were not looked at.
    """

    request_id: UInt
    taken: UInt
    gone: UInt
    left: UInt


class QueueName(Struct):
    """A work queue of a stream."""

    stream: str
    queue: str


class QueuesResponse(Struct):
    """Answers ListQueuesRequest; `last` tells where to go on, None at the end."""

    request_id: UInt
    queues: list[QueueName]
    last: QueueName | None


class NodeAddress(Struct):
    """The address of a node's `noise` listener, `host:port`, and the identity that it proves."""

    address: str
    identity: str


class Failure(Struct):
    """Answers any request that was not done: why, and whether and when it may be asked again.

    Attributes:
        retry_milliseconds: how long to wait before that; 0 where nothing tells.
        nodes: where it may be asked instead, with `store.elsewhere`.
        index: with `producer.stale`, the one that the number has, where that is known.
    """

    request_id: UInt
    code: str
    text: str
    retryable: bool = False
    retry_milliseconds: UInt = 0
    nodes: list[NodeAddress] = field(default_factory=list[NodeAddress])
    index: UInt | None = None

    @classmethod
    def of(cls, request_id: int, error: RillnodeError) -> Self:
        """The failure that tells of an error."""
        wait = ceil(1_000 * error.retry_seconds)
        told: Any = error.context.get("nodes", ())
        nodes = [NodeAddress(*one) for one in told]
        index: Any = error.context.get("index") if error.code == "producer.stale" else None
        return cls(request_id, error.code, error.text, error.retryable, wait, nodes, index)


class OpenManyResponse(Struct):
    """Answers OpenManyRequest; what is in neither list did not fit, and is to be asked for again.

    Attributes:
        streams: those that are open, in the order of their names in the request.
        failures: why others are not; `request_id` is the place of the name, from 0.
    """

    request_id: UInt
    streams: list[StreamInfo]
    failures: list[Failure]


class PositionsResponse(Struct):
    """Answers AppendManyRequest.

    Attributes:
        indexes: of each item's first entry, in their order; 0 where it failed.
        failures: why; `request_id` is the item's number, from 0.
    """

    request_id: UInt
    indexes: list[UInt]
    failures: list[Failure]


Request = (
    AppendRequest
    | AppendManyRequest
    | OpenProducerRequest
    | ReadRequest
    | LocateRequest
    | SearchRequest
    | SubscribeRequest
    | CreditRequest
    | UnsubscribeRequest
    | OpenRequest
    | OpenManyRequest
    | DescribeRequest
    | ListRequest
    | WatchStreamsRequest
    | TrimRequest
    | RemoveRequest
    | LoadIndexRequest
    | SaveIndexRequest
    | ListIndexesRequest
    | JoinGroupRequest
    | LeaveGroupRequest
    | BeatGroupRequest
    | ReleaseGroupRequest
    | SaveGroupRequest
    | ListGroupsRequest
    | StatusRequest
    | ConsoleRequest
    | CheckpointRequest
    | SinkEndsRequest
    | SinkReadRequest
    | SinkCommitRequest
    | SinkReportRequest
    | SinkControlRequest
    | ServeRequest
    | StopServingRequest
    | AnswerRequest
    | WorkRequest
    | SettleRequest
    | DescribeQueueRequest
    | TakeBackRequest
    | ListQueuesRequest
    | AboutRequest
    | WatchRequest
    | StopRequest
    | ListRoutesRequest
)

Response = (
    StreamResponse
    | ListResponse
    | WatchStreamsResponse
    | PositionResponse
    | PositionsResponse
    | ProducerResponse
    | OpenManyResponse
    | BlocksResponse
    | FoundResponse
    | SavedIndexResponse
    | ListIndexesResponse
    | GroupResponse
    | GroupLeaseResponse
    | ListGroupsResponse
    | DocumentResponse
    | SinkEndsResponse
    | DoneResponse
    | CallsResponse
    | JobsResponse
    | SettledResponse
    | TakenBackResponse
    | QueuesResponse
    | RouteResponse
    | RoutesResponse
    | Failure
)


REQUESTS: Final[dict[str, type[Request]]] = {
    "rillnode_append": AppendRequest,
    "rillnode_append_many": AppendManyRequest,
    "rillnode_open_producer": OpenProducerRequest,
    "rillnode_read": ReadRequest,
    "rillnode_locate": LocateRequest,
    "rillnode_search": SearchRequest,
    "rillnode_subscribe": SubscribeRequest,
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
    "rillnode_group_lease": GroupLeaseResponse,
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
    start, end = read_data(payload, 0)
    codec = codecs.get(payload[start:end])
    if codec is None:
        raise CodecError("codec.protocol", "unknown protocol", offset=start)
    start, end = read_data(payload, end)
    if end != len(payload):
        raise CodecError("codec.trailing", "bytes follow the body", offset=end)
    return codec, start
