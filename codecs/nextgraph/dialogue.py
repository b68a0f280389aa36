"""Turns frames into messages for both sides of a connection; one error ends it.

A frame is one binary WebSocket message. A side is a state machine without I/O: `receive` takes the
peer's next frame and returns the message that its owner must act on, or None while the opening
takes its course; `take_output` gives the frames that it wants sent. An error ends the connection:
what output is left is still sent, and then it is closed as the error says.

Source: nextgraph-rs 9ea23f60, engine/net/src/connection.rs; the closes of real clients.
"""

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.messages import ProtocolMessage, encode_message
from rillnode.codecs.nextgraph.noise_xk import Channel, Handshake, read_clear
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode

Said = TypeVar("Said")


class Dialogue(Generic[Said]):
    """One side of one connection; `Said` is what its peer may say to its owner.

    Attributes:
        remote_static: the peer's X25519 key, once the handshake is done.
    """

    def __init__(self, handshake: Handshake, first: Callable[[bytes], Said | None]) -> None:
        self._handshake = handshake
        self._state = first
        self._channel: Channel | None = None
        self._output: list[bytes] = []
        self.remote_static: bytes | None = None

    def receive(self, frame: bytes) -> Said | None:
        """Take the peer's next frame; return what its owner must act on.

        Raises:
            NextGraphError: the peer broke the protocol. Nothing more is taken from it.
        """
        try:
            if len(frame) > NEXTGRAPH_MESSAGE_BYTES_MAX:
                text = f"a message has at most {NEXTGRAPH_MESSAGE_BYTES_MAX} bytes"
                raise NextGraphError(ProtocolCode.INVALID_MESSAGE, text)
            return self._state(frame)
        except NextGraphError:
            self._state = self._ended
            raise

    def take_output(self) -> list[bytes]:
        """Frames to be sent, in order."""
        taken = self._output
        self._output = []
        return taken

    def seal(self, plaintext: bytes) -> bytes:
        """Make the next frame to be sent, of an encoded message."""
        assert self._channel is not None, "the handshake is not done"
        return self._channel.seal(plaintext)

    def _say(self, message: ProtocolMessage) -> None:
        self._output.append(self.seal(encode_message(message)))

    def _open(self, frame: bytes) -> ProtocolMessage:
        assert self._channel is not None
        return read_clear(self._channel.open(frame))

    def _establish(self) -> None:
        self._channel = self._handshake.channel()
        self.remote_static = self._handshake.remote_static

    def _ended(self, frame: bytes) -> NoReturn:
        raise NextGraphError(ProtocolCode.INVALID_STATE, "the peer should have nothing to say")


def out_of_place(message: ProtocolMessage) -> NextGraphError:
    """What a message is that does not belong where it came."""
    text = f"{type(message).__name__} is out of place here"
    return NextGraphError(ProtocolCode.INVALID_STATE, text)
