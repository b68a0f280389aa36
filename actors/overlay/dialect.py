"""The one place where the overlay's actors meet the bytes that peers send.

Actors know the network layer's messages; how a peer writes them is its dialect, and follows from
the first frame that it sends. Nodes of this kind dial with the form EXTENDED.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import BroadcastMessage, ControlMessage
from rillnode.codecs.streamr.json_text import read_json, write_json
from rillnode.codecs.streamr.message import decode_message
from rillnode.codecs.streamr.network import (
    EXTENDED_VERSION,
    Form,
    Frame,
    Message,
    Status,
    StatusMessage,
    Wrapper,
    decode_frame,
    encode_frame,
)
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage

_STATUS: Final = msgspec.json.Decoder(Status)
CONTROL_VERSION: Final = 2
MESSAGE_VERSION: Final = 32
"""Of the control and the message layer, as nodes of this kind write them."""

_BROADCAST: Final = b'[2,0,"",'
"""Begins a BroadcastMessage as nodes of this kind write it: it belongs to no request."""

_ANY_BROADCAST: Final = b",[2,0,"
_WRAPPER: Final = f'["{EXTENDED_VERSION}",4,"'.encode()


class Dialect(NamedTuple):
    """A way to write to one peer.

    Attributes:
        source: how this node names itself to it.
        version: the package's version that frames name, where the form has one.
    """

    source: str = ""
    form: Form = Form.EXTENDED
    version: str = EXTENDED_VERSION

    def encode(self, message: Message, request_id: str = "") -> bytes:
        """Encode a message; a status becomes a text where the specification has one."""
        if isinstance(message, StatusMessage) and self.form in (Form.SPECIFICATION, Form.EXTENDED):
            message = StatusMessage(status=msgspec.json.encode(message.status).decode())
        frame = Frame(
            message=message,
            form=self.form,
            version=self.version,
            request_id=request_id,
            source=self.source,
        )
        return encode_frame(frame).encode()

    def encode_control(self, message: ControlMessage) -> bytes:
        """Encode a message of the control layer as nodes send it to each other."""
        return self.encode(Wrapper(payload=control_text(message)))

    def encode_broadcasts(self, texts: Iterable[bytes]) -> list[bytes]:
        """Encode what `broadcast_of` has made."""
        if self.form is not Form.EXTENDED:
            return [self.encode(Wrapper(payload=text.decode())) for text in texts]
        head = b'["%b",4,%b,' % (self.version.encode(), write_json(self.source).encode())
        return [b"%b%b]" % (head, text) for text in texts]

    def answering(self, frame: Frame) -> "Dialect":
        """The dialect that answers a frame: as it was written."""
        if (self.form, self.version) == (frame.form, frame.version):
            return self
        return Dialect(self.source, frame.form, frame.version)


def decode(payload: bytes) -> Frame:
    """Decode a frame; as `decode_frame`, but a status that came as text is read.

    Raises:
        CodecError: as `decode_frame`, and for the status's text.
    """
    frame = decode_frame(payload)
    match frame.message:
        case StatusMessage(status=str() as text):
            return replace(frame, message=StatusMessage(status=read_json(_STATUS, text)))
        case _:
            return frame


def control_text(message: ControlMessage) -> str:
    """A message of the control layer as nodes of this kind write it.

    What only the specification's layout can tell, as a rotation of group keys, is told in that.
    """
    try:
        return encode_control(message, CONTROL_VERSION, MESSAGE_VERSION)
    except CodecError as error:
        if error.code != "streamr.inexpressible":
            raise
    message = msgspec.structs.replace(message, layout=Layout.SPECIFICATION)
    return encode_control(message, CONTROL_VERSION, MESSAGE_VERSION)


def decode_wrapped(message: Wrapper) -> ControlMessage:
    """Decode what a wrapper holds.

    Raises:
        CodecError: as `decode_control`.
    """
    return decode_control(message.payload.encode())[1]


def broadcast_of(message: StreamMessage, text: bytes | None) -> bytes:
    """The control message that carries a message; `text` is its exact text, where there is one."""
    if text is not None:
        return b"%b%b]" % (_BROADCAST, text)
    return control_text(BroadcastMessage(message=message, request_id="")).encode()


def read_broadcast(text: bytes) -> ControlMessage:
    """Decode what `broadcast_text` has found; as `decode_control`, but faster.

    Raises:
        CodecError: as `decode_control`.
    """
    if text.startswith(_BROADCAST):
        inner = text[len(_BROADCAST) : -1]
        try:
            message = decode_message(inner)
        except CodecError:
            pass  # or something follows the message: read as a whole it tells what is wrong
        else:
            if message.layout is Layout.RELEASED and text.endswith(b"]]"):
                return BroadcastMessage(message=message, message_text=inner, request_id="")
    return decode_control(text)[1]


def broadcast_text(payload: bytes) -> bytes | None:
    """The BroadcastMessage in a frame of the form EXTENDED, found without reading it.

    None where the frame is something else, or is written in an unusual way.
    """
    start = len(_WRAPPER)
    end = payload.find(b'"', start)
    if end < 0 or not payload.startswith(_WRAPPER) or b"\\" in payload[start:end]:
        return None
    if not payload.startswith(_ANY_BROADCAST, end + 1) or payload[-1:] != b"]":
        return None
    return payload[end + 2 : -1]
