"""rillnode's own payload protocols."""

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs import native
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.stream import PushRequest, encode_request

REQUESTS: list[native.Request] = [
    native.OpenManyRequest(19, ["s", "t"], 2),
    native.AppendManyRequest(18, [native.AppendItem(b"ST_S_0_s", 1, b"\1\0\0\0x")]),
    native.AppendManyRequest(18, [native.AppendItem(b"ST_S_0_s", 1, b"\1\0\0\0x", 0, 7)], b"p" * 8),
    native.AppendRequest(1, 2, b"body"),
    native.AppendRequest(1, 2, b"body", 2, b"m7", 3, 2**63 - 1, 2**63 - 2),
    native.OpenProducerRequest(1, "größe"),
    native.AppendRequest(2, 2, b"body", flags=6),
    native.AppendManyRequest(3, [native.AppendItem(b"ST_S_0_s", 1, b"body", flags=2)]),
    native.ReadRequest(2, 5, 10, 1_000),
    native.LocateRequest(3, 1_700_000_000_000, False),
    native.SearchRequest(3, 7, 2**64 - 1, 10, "mag > 5"),
    native.SubscribeRequest(3, 7, 65_536, where="mag > 5"),
    native.SubscribeRequest(3, 0, 65_536),
    native.CreditRequest(3, 100),
    native.UnsubscribeRequest(3),
    native.OpenRequest(4, "größe", 4),
    native.DescribeRequest(5, "s"),
    native.ListRequest(6, "a", "ab"),
    native.WatchStreamsRequest(36, "sensors.*"),
    native.TrimRequest(7, "s", 1, 2**40),
    native.RemoveRequest(7, "s"),
    native.LoadIndexRequest(8, "c", "s", 0),
    native.SaveIndexRequest(9, "c", "s", 0, 2**64 - 1),
    native.ListIndexesRequest(10, "s", "", 0, ""),
    native.JoinGroupRequest(30, b"t" * 16, True),
    native.LeaveGroupRequest(31, b"t" * 16),
    native.BeatGroupRequest(32, b"t" * 16),
    native.ReleaseGroupRequest(33, b"t" * 16, [native.HeldPartition(3, 7)]),
    native.SaveGroupRequest(34, b"t" * 16, 3, 7, 2**64 - 1),
    native.ListGroupsRequest(35, "s"),
    native.StatusRequest(11),
    native.ConsoleRequest(11),
    native.CheckpointRequest(12),
    native.SinkEndsRequest(12),
    native.SinkReadRequest(13, "s", 0, 5, 9, 4_096, 1_767_225_600_000),
    native.SinkCommitRequest(14, [native.SinkPosition("s", 0, 9, 300)]),
    native.SinkReportRequest(15, b"{}"),
    native.SinkControlRequest(16, run=True),
    native.ServeRequest(17, b"printer", b"t" * 16, True, 64, 10_000),
    native.StopServingRequest(18, b"t" * 16),
    native.AnswerRequest(17, 3, b"printed"),
    native.AnswerRequest(17, 4, None, "printer.paper", "no paper"),
    native.WorkRequest(23, b"w" * 16, [native.JobRef(0, 7, 2)], 64, 0, 5, 30_000, True),
    native.SettleRequest(
        24, b"w" * 16, 3, [native.Settlement(0, 7, 2, 0), native.Settlement(0, 8, 1, 1, 500, "no")]
    ),
    native.DescribeQueueRequest(25),
    native.TakeBackRequest(26, 100),
    native.ListQueuesRequest(27, "s", "", ""),
    native.AboutRequest(19),
    native.WatchRequest(20, 30_000),
    native.StopRequest(21),
    native.ListRoutesRequest(22, "sensor*", "stream", b"\x01ST_S_0_sensors"),
]

ROUTE = native.RouteInfo(
    b"ST_S_0_s", "stream", "s/0", "m.StreamActor", "noise:00", b"", 1_700_000_000_000, "idle",
    3, 300, 1, 0, 120, True,
)  # fmt: skip

RESPONSES: list[native.Response] = [
    native.StreamResponse(
        1,
        native.StreamInfo(
            "s", 5, "noise:00", None, 7, None, [native.PartitionInfo(0, b"ST_S_0_s", 1, 2, 3)]
        ),
    ),
    native.ListResponse(1, [], ""),
    native.WatchStreamsResponse(36, [native.StreamInfo("s", 5, "", None, None, None, [])], True),
    native.PositionResponse(2, 9),
    native.OpenManyResponse(19, [], [native.Failure(0, "stream.unknown", "no")]),
    native.ProducerResponse(2, 3, 4, 5),
    native.ProducerResponse(2, 3, 0, None),
    native.PositionsResponse(18, [4, 0], [native.Failure(1, "quota.bytes", "too much", False)]),
    native.BlocksResponse(3, 0, 9, [native.BlockItem(4, b"block")]),
    native.FoundResponse(3, 0, 9, 8, [native.BlockItem(4, b"block")]),
    native.SavedIndexResponse(4, None),
    native.SavedIndexResponse(4, 0),
    native.ListIndexesResponse(5, [native.SavedIndex("s", 0, "c", 3)], None),
    native.GroupResponse(30, 7, [native.HeldPartition(3, 7), native.HeldPartition(4, 2)], [4]),
    native.ListGroupsResponse(
        35, [native.GroupInfo("s", "c", True, 7, [native.GroupMember("00ff", "noise:00", [3, 4])])]
    ),
    native.DocumentResponse(6, b"{}"),
    native.SinkEndsResponse(7, [native.SinkEnd("s", 9, 0, 1, 2)]),
    native.GroupLeaseResponse(31, 1_950),
    native.DoneResponse(8),
    native.CallsResponse(
        17, [native.Call(3, "noise:00", [native.Hop(0, b"tray")], [native.Hop(1, b"h:1")], b"page")]
    ),
    native.JobsResponse(
        23,
        [native.JobRun(0, 7, 2, b"block", [0, 20])],
        [native.JobRef(1, 2, 3)],
    ),
    native.SettledResponse(24, [1]),
    native.TakenBackResponse(26, 3, 1, 0),
    native.QueuesResponse(27, [native.QueueName("s", "q")], native.QueueName("s", "q")),
    native.RouteResponse(19, ROUTE),
    native.RoutesResponse(22, [ROUTE], b"\x01ST_S_0_s"),
    native.Failure(9, "stream.unknown", "no", True),
    native.Failure(10, "actor.busy", "later", True, 30_000),
    native.Failure(11, "producer.stale", "again", index=7),
]


@each_row(REQUESTS, lambda request: type(request).__name__)
def test_request_survives_the_wire(request_: native.Request) -> None:
    payload = native.encode(request_)
    assert native.is_native(payload)
    assert native.decode_request(payload) == request_


@each_row(RESPONSES, lambda response: type(response).__name__)
def test_response_survives_the_wire(response: native.Response) -> None:
    assert native.decode_response(native.encode(response)) == response


def test_every_message_is_tried_here() -> None:
    tried: set[type] = {type(message) for message in [*REQUESTS, *RESPONSES]}
    assert tried == set(native.MESSAGES)


# Name and body, each behind its length; the body is a request id, then fields as BARE has them.
VECTORS: list[tuple[native.Request | native.Response, str]] = [
    (native.AboutRequest(19), "0e72696c6c6e6f64655f61626f7574" "01" "13"),
    (native.WatchRequest(20, 30_000), "0e72696c6c6e6f64655f7761746368" "04" "14" "b0ea01"),
    (native.StopRequest(300), "0d72696c6c6e6f64655f73746f70" "02" "ac02"),
    (
        native.ListRoutesRequest(22, "s*", "stream", b"\x01a"),
        "1472696c6c6e6f64655f6c6973745f726f75746573" "0e" "16" "02732a" "0673747265616d" "020161",
    ),
    (
        native.RouteResponse(19, ROUTE),
        "0e72696c6c6e6f64655f726f757465" "3f" "13"
        "0853545f535f305f73" "0673747265616d" "03732f30"
        "0d6d2e53747265616d4163746f72" "086e6f6973653a3030" "00"
        "80d095ffbc31" "0469646c65" "03" "ac02" "01" "00" "78" "01",
    ),
    (
        native.AppendRequest(1, 1, b"\1\0\0\0x", 6, b"m7", 3, 300, 299),
        "0f72696c6c6e6f64655f617070656e64" "11" "01" "01" "050100000078" "06" "026d37" "03" "ac02"
        "ab02",
    ),
    (
        native.AppendManyRequest(1, [native.AppendItem(b"s", 1, b"\1\0\0\0x", 6, 300)], b"p"),
        "1472696c6c6e6f64655f617070656e645f6d616e79"
        "10" "01" "01" "0173" "01" "050100000078" "06" "ac02" "0170",
    ),
    (
        native.OpenProducerRequest(1, "m7"),
        "1672696c6c6e6f64655f6f70656e5f70726f6475636572" "04" "01" "026d37",
    ),
    (
        native.ProducerResponse(1, 3, 300, 299),
        "1172696c6c6e6f64655f70726f6475636572" "07" "01" "03" "ac02" "01ab02",
    ),
    (
        native.LocateRequest(1, 1_700_000_000_000, False),
        "0f72696c6c6e6f64655f6c6f63617465" "08" "01" "80d095ffbc31" "00",
    ),
    (
        native.LocateRequest(300, 3_600_000, True),
        "0f72696c6c6e6f64655f6c6f63617465" "07" "ac02" "80dddb01" "01",
    ),
    (
        native.SearchRequest(1, 7, 300, 10, "a>5", 300),
        "0f72696c6c6e6f64655f736561726368" "0b" "01" "07" "ac02" "0a" "03613e35" "ac02",
    ),
    (
        native.ReadRequest(1, 7, 300, 10, 1_700_000_000_000),
        "0d72696c6c6e6f64655f72656164" "0b" "01" "07" "ac02" "0a" "80d095ffbc31",
    ),
    (
        native.SubscribeRequest(1, 7, 300, 1_700_000_000_000, "a>5"),
        "1272696c6c6e6f64655f737562736372696265" "0e" "01" "07" "ac02" "80d095ffbc31" "03613e35",
    ),
    (
        native.SaveIndexRequest(1, "c", "s", 2, 300, 1_700_000_000_000),
        "1372696c6c6e6f64655f736176655f696e646578" "0e" "01" "0163" "0173" "02" "ac02"
        "80d095ffbc31",
    ),
    (
        native.JoinGroupRequest(1, b"0123456789abcdef", True, 300),
        "1372696c6c6e6f64655f6a6f696e5f67726f7570" "15" "01" "1030313233343536373839616263646566"
        "01" "ac02",
    ),
    (
        native.FoundResponse(1, 0, 9, 8, [native.BlockItem(4, b"b")]),
        "0e72696c6c6e6f64655f666f756e64" "08" "01" "00" "09" "08" "01" "04" "0162",
    ),
    (native.RoutesResponse(22, [], b""), "0f72696c6c6e6f64655f726f75746573" "03" "16" "00" "00"),
]  # fmt: skip


QUEUE_VECTORS: list[tuple[native.Request | native.Response, str]] = [
    (
        native.WorkRequest(
            23, b"0123456789abcdef", [native.JobRef(1, 300, 2)], 64, 0, 5, 500, True, 300
        ),
        "0d72696c6c6e6f64655f776f726b" "1f" "17" "1030313233343536373839616263646566"
        "01" "01ac0202" "40" "00" "05" "f403" "01" "ac02",
    ),
    (
        native.SettleRequest(24, b"w", 3, [native.Settlement(0, 7, 2, 1, 500, "no")], []),
        "0f72696c6c6e6f64655f736574746c65" "12" "18" "0177" "03" "01" "00070201" "01f403" "026e6f"
        "01" "0100",
    ),
    (native.DescribeQueueRequest(25), "0e72696c6c6e6f64655f7175657565" "01" "19"),
    (native.TakeBackRequest(26, 100), "1272696c6c6e6f64655f74616b655f6261636b" "02" "1a" "64"),
    (
        native.ListQueuesRequest(27, "s", "", ""),
        "1472696c6c6e6f64655f6c6973745f717565756573" "05" "1b" "0173" "00" "00",
    ),
    (
        native.JobsResponse(23, [native.JobRun(0, 7, 2, b"job", [0, 300])], []),
        "0d72696c6c6e6f64655f6a6f6273" "0e" "17" "01" "000702" "036a6f62" "0200ac02" "00",
    ),
    (native.SettledResponse(24, [1]), "1072696c6c6e6f64655f736574746c6564" "03" "18" "01" "01"),
    (
        native.TakenBackResponse(26, 3, 1, 0),
        "1372696c6c6e6f64655f74616b656e5f6261636b" "04" "1a" "03" "01" "00",
    ),
    (
        native.QueuesResponse(27, [native.QueueName("s", "q")], None),
        "0f72696c6c6e6f64655f717565756573" "07" "1b" "01" "0173" "0171" "00",
    ),
]  # fmt: skip


@each_row(QUEUE_VECTORS)
def test_queues_are_worked_by_these_bytes(
    message: native.Request | native.Response, expected: str
) -> None:
    assert native.encode(message).hex() == expected


@each_row(VECTORS)
def test_these_are_their_bytes(message: native.Request | native.Response, expected: str) -> None:
    payload = bytes.fromhex(expected)
    assert native.encode(message).hex() == expected
    if isinstance(message, native.Response):
        assert native.decode_response(payload) == message
    else:
        assert native.decode_request(payload) == message


def test_blocks_encoded_from_the_store_are_a_blocks_response() -> None:
    body = pack_body([b"a", b"bc"])
    value = encode_block(count=2, kind=EntryKind.BYTES, received_at=1, position=0, body=body)
    payload = native.encode_blocks(7, 3, 99, [Block(3, value), Block(5, value)])
    response = native.decode_response(payload)
    assert isinstance(response, native.BlocksResponse)
    assert (response.request_id, response.first_index, response.next_index) == (7, 3, 99)
    assert native.blocks_of(response) == [Block(3, value), Block(5, value)]


def test_failure_answers_everything_but_answers() -> None:
    error = RequestError("x.y", "text", retryable=True, retry_seconds=0.0004)
    for request in REQUESTS:
        failure = native.failure_for(native.encode(request), error)
        assert failure is not None
        told = native.Failure(request.request_id, "x.y", "text", True, 1)
        assert native.decode_response(failure) == told
    for response in RESPONSES:
        assert native.failure_for(native.encode(response), error) is None
    for payload in (b"", b"garbage", b"\x0dstream_create\x03\x01\x01s"):
        failure = native.failure_for(payload, error)
        assert failure is not None
        assert native.decode_response(failure) == native.Failure(0, "x.y", "text", True, 1)
    assert native.failure_for(b"\x0frillnode_appendgarbage", error) is None


def test_native_protocols_are_unknown_where_they_may_not_be_spoken() -> None:
    payload = native.encode(native.StatusRequest(1))
    assert decode_request(payload, speaks_native=True) == native.StatusRequest(1)
    with pytest.raises(CodecError) as caught:
        decode_request(payload, speaks_native=False)
    assert caught.value.code == "codec.protocol"


def test_ockam_protocols_are_spoken_on_native_links_too() -> None:
    request = PushRequest(1, b"data")
    assert decode_request(encode_request(request), speaks_native=True) == request


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for decode in (native.decode_request, native.decode_response):
        offset = 0
        try:
            decode(data)
        except CodecError as error:
            offset = error.offset
        assert 0 <= offset <= len(data)


@given(at=st.integers(0, len(REQUESTS) - 1), cut=st.integers(0, 40), extra=st.binary(max_size=3))
def test_cut_or_lengthened_requests_are_refused(at: int, cut: int, extra: bytes) -> None:
    payload = native.encode(REQUESTS[at])
    damaged = payload[: min(cut, len(payload))] + extra
    if damaged == payload:
        return
    try:
        decoded = native.decode_request(damaged)
    except CodecError:
        return
    assert native.encode(decoded) == damaged
