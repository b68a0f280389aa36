"""One WebSocket to a Streamr server, for control messages of version 2 with messages of 32."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import aiohttp

from rillnode.codecs.errors import CodecError, HandshakeError, RequestError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import ControlMessage, ErrorResponse
from rillnode.codecs.streamr.limits import STREAMR_FRAME_BYTES_MAX
from rillnode.node.streamr.client.rest import check_open

logger = event_logger("rillnode.node.streamr.client")

CONTROL_VERSION: Final = 2
MESSAGE_VERSION: Final = 32

_OPEN_SECONDS: Final = 30.0
_PING_SECONDS: Final = 30.0
"""A server that does not answer a ping within half of it counts as gone."""

_CLOSE_SECONDS: Final = 2.0


class Wire:
    """An open WebSocket. Reading slowly holds the server back."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, message: ControlMessage) -> None:
        """Send a message; waits while the server takes nothing more.

        Raises:
            CodecError: it cannot be expressed; `codec.limit`, it is longer than servers take.
            TransportError: `link.closed`.
        """
        data = encode_control(message, CONTROL_VERSION, MESSAGE_VERSION).encode()
        if len(data) > STREAMR_FRAME_BYTES_MAX:
            text = f"a request of {len(data):,} bytes: servers take {STREAMR_FRAME_BYTES_MAX:,}"
            raise CodecError("codec.limit", text)
        try:
            await self._socket.send_frame(data, aiohttp.WSMsgType.TEXT)
        except (aiohttp.ClientError, OSError) as error:
            raise _closed(str(error)) from None

    async def receive(self) -> ControlMessage:
        """Wait for the next message. What is none is dropped, and logged.

        Raises:
            TransportError: `link.closed`.
        """
        while True:
            try:
                frame = await self._socket.receive()
            except (aiohttp.ClientError, OSError) as error:
                raise _closed(str(error)) from None
            if frame.type is aiohttp.WSMsgType.TEXT:
                try:
                    return decode_control(frame.data)[1]
                except CodecError as error:
                    logger.warning("frame_dropped", extra={"code": error.code})
            elif frame.type is aiohttp.WSMsgType.BINARY:
                logger.warning("frame_dropped", extra={"code": "frame.binary"})
            else:
                raise _closed(str(frame.extra or self._socket.exception() or "by the server"))

    async def close(self) -> None:
        """Close; waits a moment for the server's answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._socket.close()


OpenWire = Callable[[], Awaitable[Wire]]
"""Opens another WebSocket to the same server; raises as `open_wire`."""


async def open_wire(http: aiohttp.ClientSession, url: str) -> Wire:
    """Open a WebSocket.

    Raises:
        HandshakeError: `link.refused`, the server answers, but opens none.
        TransportError: `link.unreachable`; `client.closed`.
    """
    check_open(http)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            socket = await http.ws_connect(
                url,
                max_msg_size=FRAME_BYTES_MAX,
                heartbeat=_PING_SECONDS,
            )
    except aiohttp.WSServerHandshakeError as error:
        text = f"{url} is refused with status {error.status}: {error.message}"
        if error.status // 100 == 5:
            raise TransportError("link.refused", text) from None
        raise HandshakeError("link.refused", text) from None
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        reason = str(error) or type(error).__name__
        raise TransportError("link.unreachable", f"{url} is not reached: {reason}") from None
    return Wire(socket)


def refusal_of(response: ErrorResponse) -> RequestError:
    """A server's error as the exception that a caller gets; the code is the server's."""
    return RequestError(response.error_code or "streamr.refused", response.error_message)


def _closed(reason: str) -> TransportError:
    return TransportError("link.closed", f"the connection to the server closed: {reason}")
