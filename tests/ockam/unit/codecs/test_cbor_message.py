import tracemalloc

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ADDRESS_BYTES_MAX, ROUTE_HOPS_MAX, STRING_CHUNKS_MAX
from rillnode.codecs.routing.cbor_message import CborDecoder, encode_header, encode_with_header
from rillnode.codecs.routing.routes import TCP, Address, WireMessage, local

ONWARD, BACK = (local("stream"),), (local("me"),)
PLAIN = WireMessage(ONWARD, BACK, b"hi")
PLAIN_HEX = "84 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 f6"


def decode(text: str | bytes) -> WireMessage:
    frame = bytes.fromhex(text) if isinstance(text, str) else text
    (message,) = CborDecoder().decode([frame])
    return message


def encode(message: WireMessage) -> bytes:
    header = encode_header(message.onward_route, message.return_route)
    return encode_with_header(header, message.payload)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (PLAIN, PLAIN_HEX),
        (WireMessage((), (), b""), "84 80 80 40 f6"),
        (
            WireMessage((Address(TCP, b"127.0.0.1:4000"), local("echo")), (), b"x" * 24),
            "84 82 82 01 4e 3132372e302e302e313a34303030 82 00 44 6563686f 80 58 18"
            + "78" * 24
            + "f6",
        ),
        (
            WireMessage((Address(24, b""),), (Address(2**64 - 1, b"\xff"),), bytes(256)),
            "84 81 82 18 18 40 81 82 1b ffffffffffffffff 41 ff 59 0100" + "00" * 256 + "f6",
        ),
        (
            WireMessage((Address(256, b"a"),), (Address(65_536, b"b"),), bytes(65_536)),
            "84 81 82 19 0100 41 61 81 82 1a 00010000 41 62 5a 00010000" + "00" * 65_536 + "f6",
        ),
    ],
    ids=["plain", "empty", "tcp hop", "wide numbers", "wider numbers"],
)
def test_messages_are_written_in_their_shortest_form(message: WireMessage, text: str) -> None:
    assert encode(message) == bytes.fromhex(text)
    assert decode(text) == message


@each_row(
    [
        "98 04 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 f6",
        "84 9b 0000000000000001 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 f6",
        "84 81 82 1b 0000000000000000 5a 00000006 73747265616d 81 82 18 00 42 6d65 42 6869 f6",
        "84 81 82 00 46 73747265616d 81 82 00 42 6d65 59 0002 6869 f6",
        "9f 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 f6 ff",
        "9f 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 ff",
        "84 9f 82 00 46 73747265616d ff 9f 82 00 42 6d65 ff 42 6869 f6",
        "84 81 9f 00 46 73747265616d ff 81 82 00 42 6d65 42 6869 f6",
        "84 81 82 00 5f 43 737472 43 65616d ff 81 82 00 42 6d65 5f 40 41 68 41 69 ff f6",
        "83 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869",
        "84 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 63 616263",
        "84 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 7f 61 61 62 6263 ff",
    ]
)
def test_other_forms_of_the_same_message_are_read(text: str) -> None:
    assert decode(text) == PLAIN


@each_row(
    [
        ("", "codec.truncated", 0),
        ("f6", "codec.cbor", 0),
        ("a4", "codec.cbor", 0),
        ("82", "codec.cbor", 0),
        ("85", "codec.cbor", 0),
        ("9c", "codec.cbor", 0),  # a reserved form of length
        ("98", "codec.truncated", 1),
        ("84", "codec.truncated", 1),
        ("84 00", "codec.cbor", 1),
        ("84 9b ffffffffffffffff", "codec.truncated", 10),
        ("84 9f", "codec.truncated", 2),
        ("84 81 81 00", "codec.cbor", 2),
        ("84 81 83 00 40 00", "codec.cbor", 2),
        ("84 81 82 20 40", "codec.cbor", 3),  # a negative type
        ("84 81 82 1f 40", "codec.cbor", 3),
        ("84 81 82 00 61 61", "codec.cbor", 4),  # a text is no bytes
        ("84 81 82 00 5b ffffffffffffffff", "codec.truncated", 13),
        ("84 81 9f 00 40 40 ff", "codec.cbor", 5),
        ("84 81 9f 00 40", "codec.truncated", 5),
        ("84 80 80 5f 5f ff ff f6", "codec.cbor", 4),
        ("84 80 80 5f 61 61 ff f6", "codec.cbor", 4),
        ("84 80 80 5f 41 61", "codec.truncated", 6),
        ("84 80 80 40", "codec.truncated", 4),
        ("84 80 80 42 61", "codec.truncated", 5),
        ("84 80 80 40 01", "codec.cbor", 4),  # tracing that is neither text nor null
        ("84 80 80 40 f7", "codec.cbor", 4),
        ("84 80 80 40 62 61", "codec.truncated", 6),
        ("84 80 80 40 f6 00", "codec.trailing", 5),
        ("83 80 80 40 f6", "codec.trailing", 4),
        ("9f 80 80 40 f6 f6 ff", "codec.cbor", 5),
        ("9f 80 80 40 f6", "codec.truncated", 5),
        ("9f 80 80 40 ff ff", "codec.trailing", 5),
    ]
)
def test_what_is_no_message_is_refused_where_it_is_wrong(text: str, code: str, offset: int) -> None:
    with pytest.raises(CodecError) as caught:
        decode(text)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_every_truncation_is_found() -> None:
    frame = encode(PLAIN)
    for end in range(len(frame)):
        with pytest.raises(CodecError) as caught:
            decode(frame[:end])
        assert caught.value.code == "codec.truncated"
        assert caught.value.offset <= end


def test_messages_before_a_malformed_one_are_read() -> None:
    messages = CborDecoder().decode([encode(PLAIN), b"\x84\x80\x80"])
    assert next(messages) == PLAIN
    with pytest.raises(CodecError):
        next(messages)


def test_equal_headers_share_their_routes() -> None:
    other = WireMessage(BACK, ONWARD, b"there")
    decoder = CborDecoder()
    first, answer, second = decoder.decode([encode(PLAIN), encode(other), encode(PLAIN)])
    assert first.return_route is second.return_route
    assert answer == other
    (third,) = decoder.decode([encode(PLAIN._replace(payload=b"later"))])
    assert third.onward_route is first.onward_route
    assert third.payload == b"later"


def test_a_remembered_header_does_not_hide_what_follows_the_payload() -> None:
    decoder = CborDecoder()
    short = bytes.fromhex("83 80 80 40")
    assert list(decoder.decode([short, short])) == [WireMessage((), (), b"")] * 2
    with pytest.raises(CodecError) as caught:
        list(decoder.decode([short + b"\xf6"]))
    assert caught.value.code == "codec.trailing"


def test_routes_and_addresses_are_limited_both_ways() -> None:
    longest = (Address(0, bytes(ADDRESS_BYTES_MAX)),) * ROUTE_HOPS_MAX
    message = WireMessage(longest, longest, b"")
    assert decode(encode(message)) == message
    hop = "82 00 40"
    address = f"82 00 59 {ADDRESS_BYTES_MAX + 1:04x}" + "00" * (ADDRESS_BYTES_MAX + 1)
    for text in (
        "84 98" + f"{ROUTE_HOPS_MAX + 1:02x}" + hop * (ROUTE_HOPS_MAX + 1),
        "84 9f" + hop * (ROUTE_HOPS_MAX + 1) + "ff",
        "84 81" + address,
    ):
        with pytest.raises(CodecError) as caught:
            decode(text + "80 40 f6")
        assert caught.value.code == "codec.limit"
    for route in ((*longest, local("")), (Address(0, bytes(ADDRESS_BYTES_MAX + 1)),)):
        with pytest.raises(CodecError) as caught:
            encode_header((), route)
        assert caught.value.code == "codec.limit"


@pytest.mark.parametrize("kind", [-1, 2**64])
def test_a_type_that_cbor_has_no_number_for_is_not_written(kind: int) -> None:
    with pytest.raises(CodecError) as caught:
        encode_header((Address(kind, b""),), ())
    assert caught.value.code == "codec.range"


def test_chunks_are_limited() -> None:
    chunks = b"\x40" * STRING_CHUNKS_MAX
    assert decode(b"\x84\x80\x80\x5f" + chunks + b"\xff\xf6").payload == b""
    with pytest.raises(CodecError) as caught:
        decode(b"\x84\x80\x80\x5f\x40" + chunks + b"\xff\xf6")
    assert caught.value.code == "codec.limit"


@pytest.mark.parametrize(
    "frame",
    [
        b"\x84" + b"\x81" * 1_000_000,
        b"\x9f" * 1_000_000,
        b"\x84" + b"\x9a\xff\xff\xff\xff" + b"\x80" * 1_000_000,
        b"\x84\x80\x80" + b"\x5f" * 1_000_000,
        b"\x84\x80\x80\x5f" + b"\x40" * 1_000_000,
        b"\x84\x80\x80\x5b\x7f\xff\xff\xff\xff\xff\xff\xff" + bytes(1_000_000),
    ],
    ids=["nested", "nested without end", "long", "chunks of chunks", "chunks", "huge"],
)
def test_hostile_heads_cost_next_to_nothing(frame: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
