"""The protocol message: what one WebSocket message holds, in clear or sealed.

Bytes after a message are ignored, as clients do: a later version may have more to say. A message
that is written back is the same bytes without them.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import Codec
from rillnode.codecs.nextgraph.admin import AdminResponse
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.external import ExtRequest, ExtResponse
from rillnode.codecs.nextgraph.start import (
    AuthResult,
    ClientAuth,
    Noise,
    Probe,
    ProbeResponse,
    Relay,
    RelayResponse,
    ServerHello,
    Start,
    Tunnel,
    TunnelResponse,
)
from rillnode.codecs.nextgraph.types import V0


class AppMessage(Struct):
    """A message between an app and the verifier that a broker runs for it, not looked into."""

    body: bytes


class CoreMessage(Struct):
    """A message between core brokers, not looked into."""

    body: bytes


_Read = (
    Probe
    | ProbeResponse
    | Relay
    | RelayResponse
    | Tunnel
    | TunnelResponse
    | Annotated[Noise, V0]
    | Start
    | Annotated[ServerHello, V0]
    | Annotated[ClientAuth, V0]
    | Annotated[AuthResult, V0]
    | Annotated[ExtRequest, V0]
    | Annotated[ExtResponse, V0]
    | Annotated[AdminResponse, V0]
    | Annotated[ClientMessage, V0]
)
ProtocolMessage = _Read | AppMessage | CoreMessage

_CODEC: Final[Codec[_Read]] = Codec(_Read, serde=True)
_APP_TAG: Final = b"\x0f"
_CORE_TAG: Final = b"\x10"


def decode_message(data: bytes | memoryview) -> ProtocolMessage:
    """Decode a message.

    Raises:
        CodecError: the data is none.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    if data.startswith(_APP_TAG):
        return AppMessage(data[1:])
    if data.startswith(_CORE_TAG):
        return CoreMessage(data[1:])
    return _CODEC.decode_prefix(data)[0]


def encode_message(message: ProtocolMessage) -> bytes:
    """Encode a message.

    Raises:
        CodecError: a number, a length or a count does not fit its type.
    """
    if isinstance(message, AppMessage):
        return _APP_TAG + message.body
    if isinstance(message, CoreMessage):
        return _CORE_TAG + message.body
    return _CODEC.encode(message)
