import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.stream_item import STREAM_ITEM, StreamItem
from rillnode.codecs.routing.routes import WireMessage, encode_message, local
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    BinaryRequest,
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    error_tag,
    response_tag,
)
from rillnode.codecs.varint import U64_MAX


def payload_of(name: str, body: str) -> bytes:
    data = bytes.fromhex(body)
    return bytes([len(name)]) + name.encode() + bytes([len(data)]) + data


# Each form was derived by hand and is equal to what the Elixir encoder of 2021-08 writes.
REQUESTS: list[tuple[str, str, Request]] = [
    ("stream_create", "010173", CreateRequest("s")),
    ("stream_create", "00", CreateRequest(None)),
    ("stream_create_partitioned", "01017303", CreatePartitionedRequest("s", 3)),
    ("stream_push", "ac02026869", PushRequest(300, b"hi")),
    ("stream_pull", "07000a", PullRequest(7, 0, 10)),
    ("stream_index", "0001630173", GetIndexRequest("c", "s")),
    ("stream_index", "01016301738001", SaveIndexRequest("c", "s", 128)),
    ("stream_index_partitioned", "000163017302", GetPartitionIndexRequest("c", "s", 2)),
    ("stream_index_partitioned", "01016301730209", SavePartitionIndexRequest("c", "s", 2, 9)),
    ("binary", "027879", BinaryRequest(b"xy")),
    ("stream_bidirectional", "01730164", BidirectionalRequest("s", "d")),
    (
        "stream_bidirectional_publisher",
        "017001630164",
        BidirectionalPublisherRequest("p", "c", "d"),
    ),
]
RESPONSES: list[tuple[str, str, Response]] = [
    ("stream_create", "0173", CreateResponse("s")),
    ("stream_create_partitioned", "017302", CreatePartitionedResponse("s", 2)),
    ("stream_push", "ac020005", PushConfirm(300, Status.OK, 5)),
    ("stream_push", "ac020100", PushConfirm(300, Status.ERROR, 0)),
    ("stream_pull", "070200016101026263", PullResponse(7, [(0, b"a"), (1, b"bc")])),
    ("stream_index", "01630173018001", IndexResponse("c", "s", 128)),
    ("stream_index", "0163017300", IndexResponse("c", "s", None)),
    ("stream_index_partitioned", "01630173020109", PartitionIndexResponse("c", "s", 2, 9)),
    ("error", "0f496e76616c69642072657175657374", ErrorResponse("Invalid request")),
]


@each_row(REQUESTS)
def test_requests_have_their_bytes(name: str, body: str, request_: Request) -> None:
    payload = payload_of(name, body)
    assert encode_request(request_) == payload
    assert decode_request(payload) == request_
    assert decode_request(memoryview(payload)) == request_


@each_row(RESPONSES)
def test_responses_have_their_bytes(name: str, body: str, response: Response) -> None:
    payload = payload_of(name, body)
    assert encode_response(response) == payload
    assert decode_response(payload) == response
    assert decode_response(memoryview(payload)) == response


# Spellings ------------------------------------------------------------------------------------


@each_row(REQUESTS)
def test_a_request_keeps_its_spelling(name: str, body: str, plain: Request) -> None:
    payload = payload_of(f"{name}:request", body)
    request = decode_request(payload)
    assert type(request) is type(plain)
    assert request.tag == f"{name}:request"
    assert encode_request(request) == payload
    with pytest.raises(CodecError) as caught:
        decode_response(payload)
    assert caught.value.code == "codec.protocol"


@each_row(RESPONSES)
def test_a_response_keeps_its_spelling(name: str, body: str, plain: Response) -> None:
    payload = payload_of(f"{name}:response", body)
    response = decode_response(payload)
    assert type(response) is type(plain)
    assert response.tag == f"{name}:response"
    assert encode_response(response) == payload
    with pytest.raises(CodecError) as caught:
        decode_request(payload)
    assert caught.value.code == "codec.protocol"


@pytest.mark.parametrize(
    ("request_tag", "response", "error"),
    [
        ("stream_push", "stream_push", "error"),
        ("stream_push:request", "stream_push:response", "error:response"),
        ("stream_create_partitions", "stream_create_partitions", "error"),
        ("", "", "error"),
    ],
)
def test_answers_are_spelt_as_the_request_was(request_tag: str, response: str, error: str) -> None:
    assert response_tag(request_tag) == response
    assert error_tag(request_tag) == error


def test_the_specification_names_partitioned_creation_otherwise() -> None:
    request = decode_request(payload_of("stream_create_partitions", "01017303"))
    assert request == CreatePartitionedRequest("s", 3, "stream_create_partitions")
    response = CreatePartitionedResponse("s", 2, response_tag(request.tag))
    payload = payload_of("stream_create_partitions", "017302")
    assert encode_response(response) == payload
    assert decode_response(payload) == response


@pytest.mark.parametrize("suffix", ["", ":request"])
def test_partitioned_index_requests_may_come_under_the_plain_name(suffix: str) -> None:
    tag = f"stream_index{suffix}"
    get = GetPartitionIndexRequest("c", "s", 2, tag)
    save = SavePartitionIndexRequest("c", "s", 2, 9, tag)
    assert decode_request(payload_of(tag, "000163017302")) == get
    assert decode_request(payload_of(tag, "01016301730209")) == save
    assert encode_request(get) == payload_of(tag, "000163017302")


@pytest.mark.parametrize(
    ("body", "response"),
    [
        ("016301730000", PartitionIndexResponse("c", "s", 0, None, "stream_index")),
        ("01630173000105", PartitionIndexResponse("c", "s", 0, 5, "stream_index")),
        ("01630173010105", PartitionIndexResponse("c", "s", 1, 5, "stream_index")),
        ("016301730200", PartitionIndexResponse("c", "s", 2, None, "stream_index")),
        # The plain reading goes first: this could also be partition 1 without an index.
        ("016301730100", IndexResponse("c", "s", 0)),
    ],
)
def test_partitioned_index_answers_may_come_under_the_plain_name(
    body: str, response: Response
) -> None:
    assert decode_response(payload_of("stream_index", body)) == response


# Numbers --------------------------------------------------------------------------------------


def test_padded_numbers_are_taken_and_written_back_minimal() -> None:
    request = decode_request(payload_of("stream_push", "858000" + "8100" + "78"))
    assert request == PushRequest(5, b"x")
    assert encode_request(request) == payload_of("stream_push", "050178")


@pytest.mark.parametrize("tag", ["stream_push", "stream_push:request"])
def test_the_lengths_of_an_envelope_may_be_padded(tag: str) -> None:
    name, body = payload_of(tag, "050178")[1:-4], b"\x05\x01x"
    payload = bytes((len(tag) | 0x80, 0x80, 0)) + name + b"\x83\x00" + body
    assert decode_request(payload) == PushRequest(5, b"x", tag)
    with pytest.raises(CodecError) as caught:
        decode_request(payload + b"\0")
    assert caught.value.code == "codec.envelope"


def test_a_request_id_of_any_size_is_repeated() -> None:
    large = "80808080808080808080808001"
    request = decode_request(payload_of("stream_pull", large + "000a"))
    assert request == PullRequest(2**84, 0, 10)
    confirm = PushConfirm(2**84, Status.OK, 5)
    assert encode_response(confirm) == payload_of("stream_push", large + "0005")


def test_indexes_are_held_to_64_bits() -> None:
    top = "ffffffffffffffffff01"
    assert decode_request(payload_of("stream_pull", "01" + top + "01")) == PullRequest(
        1, U64_MAX, 1
    )
    with pytest.raises(CodecError) as caught:
        decode_request(payload_of("stream_pull", "01" + "ffffffffffffffffff03" + "01"))
    assert caught.value.code == "codec.varint"


# Malformed ------------------------------------------------------------------------------------


@each_row(
    [
        b"",
        b"\x00",
        b"garbage",
        b"\xff",
        b"\x0bstream_push",
        b"\x0bstream_push\x05\xac",
        b"\x0bstream_push\x02\x01\x00rest",
        b"\x0bstream_push\x80",
        b"\x0bstream_pus",
        b"\x32stream_push",
        b"\x8bstream_push",
        b"\x04nope\x00rest",
        b"\x04nope\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
    ]
)
def test_what_is_no_envelope_is_told_so(payload: bytes) -> None:
    for decode in (decode_request, decode_response):
        with pytest.raises(CodecError) as caught:
            decode(payload)
        assert caught.value.code == "codec.envelope"
        assert 0 <= caught.value.offset <= len(payload)


@pytest.mark.parametrize(
    ("payload", "tag"),
    [
        (payload_of("nope", ""), "nope"),
        (payload_of("nope:request", "00"), "nope:request"),
        (payload_of("stream_push:respons", "00"), "stream_push:respons"),
        (payload_of("", "00"), ""),
        (b"\x04\xff\xfe\xfd\xfc\x00", "\ufffd" * 4),
        (b"\xac\x02" + b"n" * 300 + b"\x00", "n" * 64),
    ],
)
def test_an_unknown_protocol_is_told_from_a_malformed_one(payload: bytes, tag: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_request(payload)
    assert caught.value.code == "codec.protocol"
    assert caught.value.context["tag"] == tag


def test_an_error_is_no_request() -> None:
    with pytest.raises(CodecError) as caught:
        decode_request(encode_response(ErrorResponse("no")))
    assert caught.value.code == "codec.protocol"


@each_row(
    [
        ("stream_create", "01016100", "codec.trailing"),
        ("stream_create", "02", "codec.optional"),
        ("stream_create:request", "0101ff", "codec.utf8"),
        ("stream_push", "0102", "codec.truncated"),
        ("stream_push", "010161" + "00", "codec.trailing"),
        ("stream_push", "", "codec.truncated"),
        ("stream_pull", "0700", "codec.truncated"),
        ("stream_index", "0201630173", "codec.union"),
        ("stream_index", "00016301730200", "codec.trailing"),
        ("stream_index", "0101630173020900", "codec.trailing"),
        ("stream_index", "0001ff0173", "codec.utf8"),
        ("stream_index_partitioned", "0001630173", "codec.truncated"),
    ]
)
def test_a_malformed_body_names_its_protocol(name: str, body: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_request(payload_of(name, body))
    assert caught.value.code == code
    assert caught.value.context["tag"] == name


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("stream_push", "010205", "codec.enum"),
        ("stream_push", "01000500", "codec.trailing"),
        ("stream_pull", "0705", "codec.truncated"),
        ("stream_pull", "07ffffffff0f", "codec.limit"),
        ("stream_index", "0163017302", "codec.optional"),
        ("stream_index", "01630173010500", "codec.trailing"),
    ],
)
def test_a_malformed_answer_is_refused(name: str, body: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_response(payload_of(name, body))
    assert caught.value.code == code


def test_only_known_tags_are_written() -> None:
    with pytest.raises(CodecError) as caught:
        encode_request(PushRequest(1, b"", "stream_shove"))
    assert caught.value.code == "codec.protocol"


# Bi-directional items -------------------------------------------------------------------------


def test_bidirectional_items_have_their_bytes() -> None:
    wire = WireMessage((local("pong"),), (local("ping"),), b"0")
    item = StreamItem("back", encode_message(*wire))
    data = bytes.fromhex("046261636b1101010004706f6e6701000470696e670130")
    assert STREAM_ITEM.encode(item) == data
    assert STREAM_ITEM.decode(data) == item
