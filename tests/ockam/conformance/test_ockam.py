"""Ockam: what was captured between real nodes is read, understood and written back unchanged.

The captures are in vectors/ockam.json, their origin in vectors/README.md.
"""

import json
import re
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import (
    WireDecoder,
    WireMessage,
    decode_message,
    encode_message,
    format_route,
    parse_route,
)
from rillnode.codecs.routing.stream import (
    CreateRequest,
    GetIndexRequest,
    GetPartitionIndexRequest,
    PullResponse,
    Request,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    response_tag,
)

RECORDS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "vectors" / "ockam.json").read_text()
)
U16_RECORDS: Final = [r for r in RECORDS if r["level"] == "aug2021" and r["hex"]]
CBOR_RECORDS: Final = [r for r in RECORDS if r["level"] == "head" and r["name"] != "version byte"]
INNER_RECORDS: Final = [r for r in RECORDS if "inner_hex" in r]

ODD_CODES: Final = {
    2: "codec.envelope",  # "garbage" to the stream service
    4: "codec.protocol",  # a protocol that nobody has
    6: "codec.trailing",  # one byte more than the request
    13: "codec.envelope",  # "garbage" to a stream
    17: "codec.envelope",  # "garbage" to the index service
    18: "codec.union",  # neither get nor save
    19: "codec.envelope",  # "x"
    20: "codec.envelope",  # the ping of an empty onward route
}
"""What the malformed requests of the run `odd` are, by their place in it."""

OTHERWISE_READ: Final = {("odd", 8)}
"""Refused by the captured node, but read here: a request in the specification's spelling."""


def identify(record: dict[str, Any]) -> str:
    return f"{record['level']}-{record['run']}-{record['seq']}"


def describe(message: Request | Response) -> str:
    """A message in the words of the captures' notes."""
    match message:
        case GetIndexRequest() | GetPartitionIndexRequest():
            verb = "get "
        case SaveIndexRequest() | SavePartitionIndexRequest():
            verb = "save "
        case _:
            verb = ""
    if isinstance(message, PullResponse):
        messages = [(index, data.decode()) for index, data in message.messages]
        return f"request_id {message.request_id}, messages {messages}"
    named = ((name, getattr(message, name)) for name in message.__struct_fields__)
    return verb + ", ".join(f"{name} {show(value)}" for name, value in named if name != "tag")


def show(value: object) -> str:
    match value:
        case None:
            return "none"
        case bytes():
            return repr(value.decode())
        case IntEnum():
            return str(int(value))
        case _:
            return repr(value)


def check_payload(payload: bytes, record: dict[str, Any], note: str) -> None:
    """Read a payload in its direction; it says what the note says, and is written back alike."""
    message: Request | Response
    if record["direction"] == "client>service":
        message = decode_request(payload)
        assert encode_request(message) == payload
    else:
        message = decode_response(payload)
        assert encode_response(message) == payload
    assert describe(message) == note.strip()


def cbor_items(data: bytes) -> list[Any]:
    """Read CBOR of the 2024 transport: arrays, byte strings, small numbers and null."""
    at = 0

    def read() -> Any:
        nonlocal at
        major, count = data[at] >> 5, data[at] & 31
        at += 1
        if major == 7:
            assert count == 22
            return None
        if count > 23:
            width = 1 << (count - 24)
            count = int.from_bytes(data[at : at + width], "big")
            at += width
        match major:
            case 0:
                return count
            case 2:
                at += count
                return data[at - count : at]
            case 4:
                return [read() for _ in range(count)]
            case _:
                raise AssertionError(major)

    items: list[Any] = read()
    assert at == len(data)
    return items


def test_every_capture_is_looked_at() -> None:
    assert len(RECORDS) == 169
    assert len(U16_RECORDS) == 123
    assert len(CBOR_RECORDS) == 43
    assert len(INNER_RECORDS) == 11
    odd = {
        r["seq"] for r in U16_RECORDS if r["run"] == "odd" and r["direction"] == "client>service"
    }
    assert ODD_CODES.keys() < odd


@each_row(U16_RECORDS, identify)
def test_wire_messages_are_read_and_written_back(record: dict[str, Any]) -> None:
    data = bytes.fromhex(record["hex"])
    frame = data[2:]
    assert int.from_bytes(data[:2], "big") == len(frame)
    message = decode_message(frame, strict=True)
    assert decode_message(frame) == message
    assert encode_message(*message) == frame
    assert format_route(message.onward_route) == ";".join(record["onward"])
    assert format_route(message.return_route) == ";".join(record["return"])
    assert parse_route(" => ".join(record["onward"])) == message.onward_route


def test_one_connection_reads_all_messages() -> None:
    frames = [bytes.fromhex(record["hex"])[2:] for record in U16_RECORDS]
    decoder = WireDecoder(strict=True)
    for _ in range(2):
        assert list(decoder.decode(frames)) == [decode_message(frame) for frame in frames]


@each_row(
    [r for r in U16_RECORDS if re.match(r"stream_\w+ (request|response)|error", r["name"])],
    identify,
)
def test_payloads_are_read_and_written_back(record: dict[str, Any]) -> None:
    payload = decode_message(bytes.fromhex(record["hex"])[2:]).payload
    if record["run"] == "odd" and record["seq"] in ODD_CODES:
        with pytest.raises(CodecError) as caught:
            decode_request(payload)
        assert caught.value.code == ODD_CODES[record["seq"]]
    else:
        check_payload(payload, record, record["note"])


@each_row(
    [r for r in U16_RECORDS if r["run"] == "odd" and r["direction"] == "client>service"], identify
)
def test_malformed_requests_give_the_matching_error(record: dict[str, Any]) -> None:
    payload = decode_message(bytes.fromhex(record["hex"])[2:]).payload
    code = ODD_CODES.get(record["seq"])
    if code is None:
        decode_request(payload)
        return
    with pytest.raises(CodecError) as caught:
        decode_request(payload)
    assert caught.value.code == code


def test_the_specifications_spelling_is_read() -> None:
    (record,) = (r for r in U16_RECORDS if (r["run"], r["seq"]) in OTHERWISE_READ)
    request = decode_request(decode_message(bytes.fromhex(record["hex"])[2:]).payload)
    assert request == CreateRequest("a", "stream_create:request")
    assert response_tag(request.tag) == "stream_create:response"


@each_row(INNER_RECORDS, identify)
def test_messages_inside_a_secure_channel_are_read_and_written_back(record: dict[str, Any]) -> None:
    frame = bytes.fromhex(record["inner_hex"])
    message = decode_message(frame, strict=True)
    assert encode_message(*message) == frame
    _, _, note = record["note"].partition("inner: ")
    check_payload(message.payload, record, note)


@each_row(CBOR_RECORDS, identify)
def test_payloads_of_2024_are_the_same(record: dict[str, Any]) -> None:
    data = bytes.fromhex(record["hex"])
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    onward, back, payload, tracing = cbor_items(data[4:])
    assert tracing is None
    routes = [tuple((kind, value) for kind, value in route) for route in (onward, back)]
    assert routes == [parse_route(";".join(record[way])) for way in ("onward", "return")]
    if record["name"] == "plain payload":
        assert payload == bytes.fromhex(record["note"])
    else:
        check_payload(payload, record, record["note"])


def test_a_wire_message_may_hold_a_payload_that_is_one_too() -> None:
    # A bi-directional item's message, inside the item: return stream "back".
    item = bytes.fromhex("04 6261636b 11 01 01 00 04 706f6e67 01 00 04 70696e67 01 30")
    assert decode_message(item[6:], strict=True) == WireMessage(
        parse_route("pong"), parse_route("ping"), b"0"
    )
