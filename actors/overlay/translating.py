"""Between a released peer's frames and the wire messages that nodes of this kind exchange.

Trackers and neighbours actors know one form, EXTENDED. What a released peer writes becomes that,
with the address of the actor that it is for; what the actors write becomes the peer's form again.
Released nodes do not answer a request to subscribe, as they count a link from the moment that it
is sent; here the answer is made for them.

Pure: it knows neither links nor time.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec.structs import replace

from rillnode.actors.overlay.context import MEMBER_ADDRESS
from rillnode.actors.overlay.dialect import (
    CONTROL_VERSION,
    MESSAGE_VERSION,
    Dialect,
    control_text,
    decode,
    decode_wrapped,
)
from rillnode.actors.overlay.generations import Generation, generation_of
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.actors.overlay.tracker import ADDRESS as TRACKER_ADDRESS
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.codecs.routing.wire import wire_codec
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Frame,
    Instruction,
    Message,
    StatusMessage,
    StorageNodes,
    Wrapper,
    decode_frame,
    encode_frame,
)
from rillnode.codecs.streamr.stream_message import Layout


class Role(Enum):
    """A released peer's role; what its messages mean follows from it."""

    NODE = "node"
    TRACKED = "tracked"
    TRACKER = "tracker"


_EXPECTED: Final[dict[Role, tuple[type[Message], ...]]] = {
    Role.NODE: (Wrapper,),
    Role.TRACKED: (StatusMessage, FindStorageNodes),
    Role.TRACKER: (Instruction, StorageNodes),
}


class Translator:
    """A translator of what one released peer says and hears.

    Args:
        role: what it is to this node.
        generation: how it writes; None: it is known from its first frame.
    """

    def __init__(self, role: Role, generation: Generation | None = None) -> None:
        self._role = role
        self._wire = wire_codec("bare")
        self._own = Dialect()
        self._requests = 0
        self.generation = generation

    def incoming(self, text: bytes) -> bytes:
        """A frame of the peer as a wire message.

        Raises:
            CodecError: as `decode_frame` and `decode_control`; `network.type`, peers in its role
                do not send this; `network.generation`, it writes otherwise than before.
        """
        frame = decode_frame(text)
        generation = generation_of(frame)
        self.generation = self.generation or generation
        if generation is not self.generation:
            raise CodecError("network.generation", "the peer writes otherwise than before")
        message = frame.message
        if not isinstance(message, _EXPECTED[self._role]):
            raise CodecError("network.type", "such a peer does not send this")
        address = MEMBER_ADDRESS if self._role is Role.TRACKER else TRACKER_ADDRESS
        if isinstance(message, Wrapper):
            address, message = _taken(message)
        return self._encode(address, message)

    def outgoing(self, wire_message: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """A wire message as frames of the peer, and what it would answer if it did.

        Raises:
            CodecError: it has no form in the peer's generation.
        """
        generation = self.generation
        assert generation is not None, "nothing is sent before it is known how the peer writes"
        frames: list[bytes] = []
        answers: list[bytes] = []
        for wire in self._wire.decode((wire_message,)):
            message = decode(wire.payload).message
            if isinstance(message, Wrapper):
                control = decode_wrapped(message)
                if isinstance(control, SubscribeResponse | UnsubscribeResponse):
                    continue
                if isinstance(control, SubscribeRequest):
                    answers.append(self._answer(control))
                if not (
                    isinstance(control, BroadcastMessage)
                    and generation.control == CONTROL_VERSION
                    and control.layout is Layout.RELEASED
                ):
                    message = self._said(control, generation)
            frames.append(self._frame(message, generation))
        return frames, answers

    def _frame(self, message: Message, generation: Generation) -> bytes:
        self._requests += 1
        if isinstance(message, Instruction) and not generation.counted:
            message = replace(message, counter=None)
        frame = Frame(
            message=message,
            form=generation.form,
            version=generation.version,
            request_id=str(self._requests),
        )
        return encode_frame(frame).encode()

    def _said(self, control: ControlMessage, generation: Generation) -> Wrapper:
        version = min(_version(control), generation.message)
        control = replace(control, layout=Layout.RELEASED)
        return Wrapper(payload=encode_control(control, generation.control, version))

    def _answer(self, request: SubscribeRequest) -> bytes:
        response = SubscribeResponse(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id or "",
        )
        address = overlay_address(request.stream_id, request.partition)
        return self._encode(address, Wrapper(payload=control_text(response)))

    def _encode(self, address: bytes, message: Message) -> bytes:
        wire = WireMessage((local(address),), (), self._own.encode(message))
        return self._wire.encode(wire)


def _taken(wrapper: Wrapper) -> tuple[bytes, Wrapper]:
    """Whom a message of the control layer is for, and itself in version 2."""
    version, control = decode_control(wrapper.payload.encode())
    match control:
        case BroadcastMessage(message=message) | UnicastMessage(message=message):
            name = message.id
            address = overlay_address(name.stream_id, name.partition)
        case PublishRequest() | ErrorResponse():
            raise CodecError("network.type", "nodes do not send each other this")
        case _:
            address = overlay_address(control.stream_id, control.partition)
    if version != CONTROL_VERSION:
        wrapper = Wrapper(payload=encode_control(control, CONTROL_VERSION, _version(control)))
    return address, wrapper


def _version(control: ControlMessage) -> int:
    """The version in which the message inside was written."""
    match control:
        case BroadcastMessage(message=message) | UnicastMessage(message=message):
            return message.version
        case _:
            return MESSAGE_VERSION
