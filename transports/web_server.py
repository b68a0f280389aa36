"""The aiohttp server on one address: the pages and WebSockets of an application, bounded."""

import asyncio
import json
import logging
import ssl
from collections import Counter
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler

from rillnode.transports.clock import SystemClock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.http_connections import HttpConnection, HttpConnections
from rillnode.transports.links import HTTP_LIMITS, LinkLimits
from rillnode.transports.tcp import bind_error
from rillnode.transports.tcp_link import address_text

_logger = logging.getLogger("rillnode.transports.http")

_SHUTDOWN_SECONDS: Final = 2.0
_BACKLOG: Final = 1_024
_NO_REQUEST: Final = ("http.request", "This is no HTTP request", "see what HTTP/1.1 allows")
_HEADERS: Final = (
    "http.headers",
    "The headers are too many or too large: at most 128, of 8,190 bytes each",
    "send fewer headers, or shorter ones",
)
_FAILED: Final = ("http.failed", "The node has failed at this", "see the node's log")
_FROM_PEERS: Final = (HttpProcessingError, web.RequestPayloadError)


class WebServer:
    """A bound HTTP server and the WebSocket links that it has accepted.

    Attributes:
        host: the address it is bound to.
        port: the port it is bound to; never 0.
    """

    def __init__(
        self,
        server: asyncio.Server,
        runner: web.AppRunner,
        connections: HttpConnections,
        group: LinkGroup | None,
    ) -> None:
        self._server = server
        self._runner = runner
        self._connections = connections
        self._group = group
        self.host, self.port = server.sockets[0].getsockname()[:2]

    @property
    def address(self) -> str:
        """The bound address as `host:port`."""
        return address_text(self.host, self.port)

    @property
    def group(self) -> LinkGroup | None:
        """The WebSockets, for who watches them."""
        return self._group

    @property
    def link_count(self) -> int:
        """WebSockets now open."""
        return 0 if self._group is None else len(self._group)

    @property
    def connection_count(self) -> int:
        """Connections now open that are no WebSockets."""
        return len(self._connections)

    @property
    def counters(self) -> Counter[str]:
        """WebSockets and other connections that failed or were refused so far, by error code."""
        links = Counter[str]() if self._group is None else self._group.counters
        return links + self._connections.counters

    def stop_accepting(self) -> None:
        """Take no more WebSockets; those held stay open, and requests are still answered."""
        if self._group is not None:
            self._group.stop()

    async def close(self, reason: str = "the node is stopping") -> None:
        """Close all links and stop listening; requests under way get a moment to finish."""
        self._server.close()
        if self._group is not None:
            await self._group.close(reason)
        await self._runner.cleanup()
        self._connections.end()


async def listen_web(
    app: web.Application,
    host: str,
    port: int,
    *,
    group: LinkGroup | None = None,
    tls: ssl.SSLContext | None = None,
    limits: LinkLimits = HTTP_LIMITS,
) -> WebServer:
    """Bind `host:port` (port 0: any free one) and serve an application.

    Args:
        app: what is served.
        host: the address to bind.
        port: the port to bind.
        group: the links that the application accepts, if it accepts any.
        tls: turns TLS on.
        limits: bound the connections as long as they are no links.

    Raises:
        TransportError: the address cannot be bound; the text says what to do.
    """
    loop = asyncio.get_running_loop()
    app.middlewares.insert(0, _until_answered)
    runner = web.AppRunner(app, logger=_logger, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    handler = runner.server
    assert handler is not None
    unfinished = None if group is None else group.unfinished
    settings: dict[str, Any] = {
        "access_log": None, "logger": _logger, "keepalive_timeout": limits.idle_close_seconds,
        "auto_decompress": False,  # bodies are bounded as they come, and told what they may be
    }  # fmt: skip
    make = partial(_Requests, handler, loop=loop, **settings)
    connections = HttpConnections(make, SystemClock(loop), limits, unfinished)
    try:
        server = await loop.create_server(
            connections,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else limits.handshake_seconds,
            backlog=_BACKLOG,
        )
    except OSError as error:
        await runner.cleanup()
        raise bind_error(host, port, error) from error
    return WebServer(server, runner, connections, group)


class _Requests(web.RequestHandler):
    """The requests of one connection, as the library has them but for what is told of failures.

    The library's answers repeat what was sent, which may hold what only its sender should know. And
    who reads a body whose chunks are broken would wait for more of it: that this is no request is
    queued behind the request that it is in the middle of.
    """

    def data_received(self, data: bytes) -> None:
        """Hand on, and tell who reads a body if it cannot go on."""
        super().data_received(data)
        queue = self._messages
        if not queue or isinstance(queue[-1][0], RawRequestMessage):
            return
        asked = self._current_request
        body = queue[-2][1] if len(queue) > 1 else None if asked is None else asked.content
        if body is not None and not body.is_eof():
            body.set_exception(web.RequestPayloadError("the chunks of the body are broken"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, or what no handler has answered, in JSON as other errors."""
        super().handle_error(request, status, exc)
        code, text, step = _FAILED if status >= 500 else _NO_REQUEST
        if isinstance(exc, LineTooLong) or "Too many headers" in str(exc):
            status, (code, text, step) = 431, _HEADERS
        told = {"status": status, "code": code, "text": text, "next": step}
        body, media = json.dumps(told).encode(), "application/problem+json"
        answer = web.Response(body=body, status=status, content_type=media)
        answer.force_close()
        return answer


@web.middleware
async def _until_answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection how long something is held of a request."""
    connection = request.transport and request.transport.get_protocol()
    if not isinstance(connection, HttpConnection):
        return await handler(request)
    response: web.StreamResponse | None = None
    connection.asked()
    try:
        response = await handler(request)
        return response
    except web.HTTPException as error:
        response = error
        raise
    finally:
        whole = request.content.is_eof()
        if response is not None and not whole:
            response.force_close()  # what still comes is thrown away
        connection.answered(whole=whole)


def _calmly(record: logging.LogRecord) -> bool:
    """What a peer has written wrong is answered with 400: it is no failure of the node."""
    if record.exc_info is not None and isinstance(record.exc_info[1], _FROM_PEERS):
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


_logger.addFilter(_calmly)
