"""Lists readers of Ockam's bytes: wire messages, frames, payloads of services, channels."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rillnode.codecs.errors import TransportError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.ockam import discovery, hub, stream_item
from rillnode.codecs.ockam.channel import ChannelInitiator, ChannelResponder
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.routing import cbor_message, routes as routing, stream, stream_admin
from rillnode.codecs.routing.dialects import EitherDialect
from rillnode.codecs.routing.framing import U16Framing, U32Framing
from rillnode.codecs.routing.wire import wire_codec

KEY: Final = bytes(range(1, 33))
EPHEMERAL: Final = b"e" * 32
HASH: Final = b"h" * 32


def wire(data: bytes) -> None:
    """A message in BARE; what a strict reader takes is the only form that it has."""
    message = routing.decode_message(data)
    again = routing.encode_message(*message)
    assert routing.decode_message(again) == message


def strict_wire(data: bytes) -> None:
    message = routing.decode_message(data, strict=True)
    assert routing.encode_message(*message) == data


def cbor_wire(data: bytes) -> None:
    codec = wire_codec("cbor")
    (message,) = codec.decode((data,))
    assert list(cbor_message.CborDecoder().decode((codec.encode(message),))) == [message]


def framed(make: Callable[[], LinkCodec]) -> Callable[[bytes], None]:
    """A stream of frames; the messages are the same however it is split."""

    def run(data: bytes) -> None:
        whole, split = make(), make()
        messages = whole.receive(data)
        third = len(data) // 3
        pieces = (data[:1], data[1:third], data[third:]) if third else (data,)
        assert [message for piece in pieces for message in split.receive(piece)] == messages
        assert all(messages)
        for codec in (whole, split):
            codec.take_output()
            assert codec.silence_seconds is None or codec.silence_seconds > 0
        with suppress(TransportError):  # it may end before its peer has said a word
            whole.end()

    return run


def service_request(data: bytes) -> None:
    request = stream.decode_request(data)
    assert stream.decode_request(stream.encode_request(request)) == request


def service_response(data: bytes) -> None:
    response = stream.decode_response(data)
    assert stream.decode_response(stream.encode_response(response)) == response


def admin_request(data: bytes) -> None:
    request = stream_admin.decode_request(data)
    assert stream_admin.decode_request(stream_admin.encode_request(request)) == request


def admin_response(data: bytes) -> None:
    response = stream_admin.decode_response(data)
    assert stream_admin.decode_response(stream_admin.encode_response(response)) == response


def discovery_request(data: bytes) -> None:
    request = discovery.decode_request(data)
    service = discovery.Service("echo", (routing.local("echo"),))
    discovery.encode_answer(request, [service], 7)


def alias(data: bytes) -> None:
    assert hub.TEXT.encode(hub.decode_name(data)) == data


def topic(data: bytes) -> None:
    name, of = hub.decode_topic(data)
    assert hub.TEXT.encode(f"{name}:{of}") == data


def route(data: bytes) -> None:
    parsed = routing.parse_route(data.decode("utf-8", "surrogateescape"))
    routing.format_route(parsed)


def channel_opening(data: bytes) -> None:
    """Messages 1 and 3 of one handshake, which the first byte tells apart."""
    if not data or data[0] % 2:
        ChannelResponder(KEY, data[1:], ephemeral=EPHEMERAL).message_2(b"here")
        return
    initiator = ChannelInitiator(Level.BOTH_2022, KEY, ephemeral=EPHEMERAL)
    responder = ChannelResponder(KEY, initiator.message_1(), ephemeral=EPHEMERAL)
    responder.message_2(b"here")
    responder.finish(data[1:])


def channel_message(data: bytes) -> None:
    levels = (Level.BOTH_2022, Level.RUST_2021)
    session = ChannelSession(levels, sealing_key=KEY, opening_key=KEY, handshake_hash=HASH)
    session.open(data)


TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    "ockam_wire": wire,
    "ockam_wire_strict": strict_wire,
    "ockam_wire_cbor": cbor_wire,
    "ockam_frames_u16": framed(U16Framing),
    "ockam_frames_u32": framed(U32Framing),
    "ockam_frames_either": framed(EitherDialect),
    "ockam_request": service_request,
    "ockam_response": service_response,
    "ockam_admin_request": admin_request,
    "ockam_admin_response": admin_response,
    "ockam_entry": stream_item.decode_entry,
    "ockam_discovery": discovery_request,
    "ockam_alias": alias,
    "ockam_topic": topic,
    "ockam_uppercase": hub.uppercase,
    "ockam_route": route,
    "ockam_channel_opening": channel_opening,
    "ockam_channel_message": channel_message,
}

SLOW: Final = ("ockam_channel_opening",)
"""Those that shake hands or check signatures for each input."""
