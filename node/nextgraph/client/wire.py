"""One WebSocket to a NextGraph broker: the handshake, then client messages in both directions."""

import asyncio
from contextlib import suppress
from typing import Final

import aiohttp

from rillnode.codecs.errors import CodecError, HandshakeError, TransportError
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, FromBroker
from rillnode.codecs.nextgraph.external import ExtResponse
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.results import ProtocolCode, closing_code
from rillnode.codecs.nextgraph.start import AuthResult
from rillnode.transports.keepalive import keep_alive

_OPEN_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 30
"""How long a broker is silent before the system probes it; released brokers take a WebSocket ping
for a malformed message and close."""

_CLOSE_SECONDS: Final = 2.0

_SEAL_BYTES_MAX: Final = 64
"""What sealing adds to a message at most: two tags, a length and 16 bytes of authentication."""


class Wire:
    """An open WebSocket whose client has been admitted."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, dialogue: ClientDialogue) -> None:
        self._socket = socket
        self._dialogue = dialogue

    async def send(self, message: ClientMessage) -> None:
        """Send a message; waits while the broker takes nothing more. One call at a time.

        Raises:
            CodecError: it cannot be expressed; `codec.limit`, it is longer than brokers take.
            TransportError: `link.closed`.
        """
        data = encode_message(message)
        if len(data) + _SEAL_BYTES_MAX > NEXTGRAPH_MESSAGE_BYTES_MAX:
            text = f"a message of {len(data):,} bytes: {NEXTGRAPH_MESSAGE_BYTES_MAX:,} are taken"
            raise CodecError("codec.limit", text)
        await _send(self._socket, self._dialogue.seal(data))

    async def receive(self) -> ClientMessage:
        """Wait for the next message.

        Raises:
            NextGraphError: the broker broke the protocol.
            TransportError: `link.closed`; the text has the broker's reason.
        """
        said = await _receive(self._socket, self._dialogue)
        while said is None:
            said = await _receive(self._socket, self._dialogue)
        assert isinstance(said, ClientMessage), "the dialogue lets nothing else through"
        return said

    async def close(self) -> None:
        """Close; waits a moment for the broker's answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._socket.close()


async def open_wire(http: aiohttp.ClientSession, url: str, dialogue: ClientDialogue) -> Wire:
    """Open a WebSocket and come in.

    Args:
        http: makes the connection.
        url: `ws://` or `wss://`.
        dialogue: with the broker, as a client.

    Raises:
        HandshakeError: `link.refused`, no WebSocket is opened; `nextgraph.` and the name of a
            `ProtocolCode`, the broker lets this user not in, or is another one.
        TransportError: `link.unreachable`, or `link.closed`.
    """
    socket, verdict = await _open(http, url, dialogue, _OPEN_SECONDS)
    assert isinstance(verdict, AuthResult), "the dialogue lets nothing else through"
    if verdict.result:
        await socket.close()
        name = _name(verdict.result)
        raise HandshakeError(f"nextgraph.{name}", f"the broker lets nobody in: {name}")
    return Wire(socket, dialogue)


async def ask_external(
    http: aiohttp.ClientSession, url: str, dialogue: ClientDialogue, *, seconds: float
) -> ExtResponse:
    """Ask the one thing that anybody may, on a connection of its own; raises as `open_wire`."""
    socket, answer = await _open(http, url, dialogue, seconds)
    await socket.close()
    assert isinstance(answer, ExtResponse), "the dialogue lets nothing else through"
    return answer


async def _open(
    http: aiohttp.ClientSession, url: str, dialogue: ClientDialogue, seconds: float
) -> tuple[aiohttp.ClientWebSocketResponse, FromBroker]:
    """Open a WebSocket and lead a dialogue to what its owner gets first."""
    try:
        async with asyncio.timeout(seconds):
            socket = await http.ws_connect(url, max_msg_size=NEXTGRAPH_MESSAGE_BYTES_MAX)
            try:
                keep_alive(socket.get_extra_info("socket"), _IDLE_SECONDS)
                return socket, await _first_word(socket, dialogue)
            except BaseException:
                await socket.close()
                raise
    except aiohttp.WSServerHandshakeError as error:
        text = f"{url} is refused with status {error.status}: {error.message}"
        if error.status // 100 == 5:
            raise TransportError("link.refused", text) from None
        raise HandshakeError("link.refused", text) from None
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        reason = str(error) or type(error).__name__
        raise TransportError("link.unreachable", f"{url} is not reached: {reason}") from None


async def _first_word(
    socket: aiohttp.ClientWebSocketResponse, dialogue: ClientDialogue
) -> FromBroker:
    said: FromBroker | None = None
    try:
        while said is None:
            for frame in dialogue.take_output():
                await _send(socket, frame)
            said = await _receive(socket, dialogue)
    except CodecError as error:
        raise HandshakeError(error.code, error.text) from None
    except TransportError:
        # The first message is sealed for the broker's key: another broker cannot open it.
        if closing_code(socket.close_code or 0) != ProtocolCode.NOISE_HANDSHAKE_FAILED:
            raise
        text = "the broker cannot open the handshake: is its peer id the right one?"
        raise HandshakeError("nextgraph.noise_handshake_failed", text) from None
    return said


async def _send(socket: aiohttp.ClientWebSocketResponse, frame: bytes) -> None:
    try:
        await socket.send_frame(frame, aiohttp.WSMsgType.BINARY)
    except (aiohttp.ClientError, OSError) as error:
        raise _closed(str(error)) from None


async def _receive(
    socket: aiohttp.ClientWebSocketResponse, dialogue: ClientDialogue
) -> FromBroker | None:
    try:
        frame = await socket.receive()
    except (aiohttp.ClientError, OSError) as error:
        raise _closed(str(error)) from None
    if frame.type is aiohttp.WSMsgType.BINARY:
        return dialogue.receive(frame.data)
    code = closing_code(socket.close_code or 0)
    if code:
        raise _closed(code.reason)
    raise _closed(str(frame.extra or socket.exception() or "by the broker"))


def _name(result: int) -> str:
    try:
        return ProtocolCode(result).name.lower()
    except ValueError:
        return f"result_{result}"


def _closed(reason: str) -> TransportError:
    return TransportError("link.closed", f"the connection to the broker closed: {reason}")
