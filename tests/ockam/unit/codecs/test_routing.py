import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ADDRESS_BYTES_MAX, ROUTE_HOPS_MAX
from rillnode.codecs.routing.routes import (
    LOCAL,
    TCP,
    Address,
    Route,
    WireDecoder,
    WireMessage,
    decode_message,
    encode_header,
    encode_message,
    encode_with_header,
    format_route,
    local,
    parse_route,
)

ECHO = "0101000c6563686f5f736572766963650100026d65026869"
PRINTER = (
    "01"
    "02010e3132372e302e302e313a3430303000077072696e746572"
    "01010e3132372e302e302e313a33303030"
    "0568656c6c6f"
)


@pytest.mark.parametrize(
    ("onward", "back", "payload", "form"),
    [
        ("0#echo_service", "0#me", b"hi", ECHO),
        ("1#127.0.0.1:4000;0#printer", "1#127.0.0.1:3000", b"hello", PRINTER),
        ("", "", b"", "01000000"),
        ("1#127.0.0.1:4000", "", b"", "0101010e3132372e302e302e313a343030300000"),
    ],
)
def test_messages_have_their_bytes(onward: str, back: str, payload: bytes, form: str) -> None:
    data = bytes.fromhex(form)
    message = WireMessage(parse_route(onward), parse_route(back), payload)
    assert encode_message(*message) == data
    assert decode_message(data, strict=True) == message
    assert decode_message(data) == message


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 70_000])
def test_payloads_of_any_size_follow_a_header(size: int) -> None:
    header = encode_header((local("a"),), ())
    payload = bytes(size)
    frame = encode_with_header(header, payload)
    assert frame == encode_with_header(header, memoryview(payload))
    assert decode_message(frame, strict=True) == WireMessage((local("a"),), (), payload)


# Text -----------------------------------------------------------------------------------------


@each_row(
    [
        ("1#host:4000;0#echo", (Address(TCP, b"host:4000"), Address(LOCAL, b"echo"))),
        ("a => b", (local("a"), local("b"))),
        (" a=>1#h:1 ;b ", (local("a"), Address(TCP, b"h:1"), local("b"))),
        ("0#a#b", (local("a#b"),)),
        ("caf\u00e9", (local("caf\u00e9"),)),
        ("a b", (local("a b"),)),
        ("", ()),
        ("  ", ()),
    ]
)
def test_routes_are_read_from_text(text: str, route: Route) -> None:
    assert parse_route(text) == route


@each_row(
    [
        ("a;", "route.text", 1),
        (";a", "route.text", 0),
        ("a;;b", "route.text", 1),
        ("0#", "route.text", 0),
        ("#a", "route.text", 0),
        ("x#a", "route.text", 0),
        ("a;-1#b", "route.text", 1),
        ("\u0661#a", "route.text", 0),
        ("a;\ud800", "codec.utf8", 1),
        ("9" * 20 + "#a", "codec.range", 0),
        ("9" * 21 + "#a", "route.text", 0),
        ("a;" * ROUTE_HOPS_MAX + "a", "codec.limit", 0),
        ("a" * (ADDRESS_BYTES_MAX + 1), "codec.limit", 0),
    ]
)
def test_text_that_is_no_route_is_refused(text: str, code: str, hop: int) -> None:
    with pytest.raises(CodecError) as caught:
        parse_route(text)
    assert (caught.value.code, caught.value.offset) == (code, hop)


def test_routes_are_shown_as_text() -> None:
    assert format_route((Address(TCP, b"host:4000"), local("echo"))) == "1#host:4000;0#echo"
    assert str(local(b"\xff")) == "0#\\xff"


# Strict and lenient ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("02" + ECHO[2:], "codec.version"),
        ("00" + ECHO[2:], "codec.version"),
        (ECHO + "00", "codec.trailing"),
        ("02" + ECHO[2:] + "01" + "0161", "codec.version"),  # version 2 with a tracing context
        ("8100" + ECHO[2:], "codec.varint"),
        ("01" + "8100" + ECHO[4:], "codec.varint"),
        (ECHO[:-6] + "82006869", "codec.varint"),
    ],
)
def test_only_a_strict_reader_refuses_what_nodes_of_2021_took(form: str, code: str) -> None:
    data = bytes.fromhex(form)
    assert decode_message(data) == decode_message(bytes.fromhex(ECHO))
    with pytest.raises(CodecError) as caught:
        decode_message(data, strict=True)
    assert caught.value.code == code


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form", [ECHO, PRINTER])
def test_every_truncation_is_refused(form: str, strict: bool) -> None:
    data = bytes.fromhex(form)
    for end in range(len(data)):
        with pytest.raises(CodecError) as caught:
            decode_message(data[:end], strict=strict)
        assert (caught.value.code, caught.value.offset) == ("codec.truncated", end)


def test_routes_have_limits() -> None:
    longest = (local("a"),) * ROUTE_HOPS_MAX
    largest = (local("a" * ADDRESS_BYTES_MAX),)
    assert decode_message(encode_message(longest, largest, b"")) == (longest, largest, b"")
    for route in ((*longest, local("a")), (local("a" * (ADDRESS_BYTES_MAX + 1)),)):
        with pytest.raises(CodecError) as caught:
            encode_header(route, ())
        assert caught.value.code == "codec.limit"


@pytest.mark.parametrize(
    ("form", "offset"),
    [
        ("01" + "41", 1),
        ("01" + "ffffffff0f", 1),
        ("01" + "01" + "00" + "8110" + "00" * 2049 + "0000", 3),
        ("01" + "00" + "01" + "00" + "8110" + "00" * 2049 + "00", 4),
    ],
)
def test_routes_over_the_limits_are_refused(form: str, offset: int) -> None:
    with pytest.raises(CodecError) as caught:
        decode_message(bytes.fromhex(form))
    assert (caught.value.code, caught.value.offset) == ("codec.limit", offset)


# One connection -------------------------------------------------------------------------------


def frames_of(*names: str) -> list[bytes]:
    routes = [((local(name),), (local("me"),)) for name in names]
    return [encode_message(*way, bytes([nth])) for nth, way in enumerate(routes)]


def test_messages_with_equal_headers_share_their_routes() -> None:
    decoder = WireDecoder()
    first, other, second = decoder.decode(frames_of("a", "b", "a"))
    (third,) = decoder.decode(frames_of("a"))
    assert [m.payload for m in (first, other, second)] == [b"\x00", b"\x01", b"\x02"]
    assert first.onward_route is second.onward_route is third.onward_route
    assert first.return_route is second.return_route is third.return_route
    assert other.onward_route == (local("b"),)


def test_any_number_of_headers_may_alternate() -> None:
    names = [f"worker-{nth % 7}" for nth in range(50)]
    decoder = WireDecoder(strict=True)
    for _ in range(2):
        messages = list(decoder.decode(frames_of(*names)))
        assert [m.onward_route for m in messages] == [(local(name),) for name in names]


def test_a_header_that_begins_another_is_not_taken_for_it() -> None:
    # The first message's header and payload begin the second's header.
    short = encode_message((), (), b"")
    long = encode_message((), (local("a"),), b"")
    assert (
        list(WireDecoder().decode([short, long, short, long]))
        == [((), (), b""), ((), (local("a"),), b"")] * 2
    )


def test_large_headers_are_decoded_without_being_kept() -> None:
    decoder = WireDecoder()
    route = (local("a" * ADDRESS_BYTES_MAX),) * 3
    frame = encode_message(route, (), b"x")
    first, second = decoder.decode([frame, frame])
    (third,) = decoder.decode([frame])
    assert first == second == third == WireMessage(route, (), b"x")
    assert third.onward_route is not first.onward_route


def test_messages_before_a_malformed_frame_are_not_lost() -> None:
    decoder = WireDecoder(strict=True)
    seen: list[bytes] = []

    def read(frames: list[bytes]) -> None:
        for message in decoder.decode(frames):
            seen.append(message.payload)

    with pytest.raises(CodecError):
        read([*frames_of("a", "a"), b"garbage", *frames_of("a")])
    assert seen == [b"\x00", b"\x01"]
