"""Serves TCP connections by a coroutine each: for protocols that need no link of their own."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CLOSE_SECONDS_MAX, CONNECTIONS_MAX, SILENCE_SECONDS_MAX
from rillnode.transports.tcp import bind_error
from rillnode.transports.tcp_link import address_text

logger = event_logger("rillnode.transports.coroutines")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection until it returns; then, and when it raises, the connection is closed."""


class _Reader(asyncio.StreamReader):
    """A reader that knows since when somebody waits for bytes.

    What is not read yet is no silence of the peer, so only a wait counts, from its begin to its
    end: bytes that come one by one do not make it longer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._clock = loop.time
        self.waits_since: float | None = None

    async def _waited(self, read: Awaitable[bytes]) -> bytes:
        self.waits_since = self._clock()
        try:
            return await read
        finally:
            self.waits_since = None

    async def read(self, n: int = -1) -> bytes:
        return await self._waited(super().read(n))

    async def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        return await self._waited(super().readuntil(*args, **kwargs))  # of `readline`, too

    async def readexactly(self, n: int) -> bytes:
        return await self._waited(super().readexactly(n))


class _Silence:
    """Ends the reads of a connection whose peer has said nothing for too long."""

    def __init__(self, reader: _Reader, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._reader = reader
        self._loop = loop
        self._seconds = seconds
        self._timer = loop.call_later(seconds, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        since, now = self._reader.waits_since, self._loop.time()
        left = self._seconds if since is None else since + self._seconds - now
        if left > 0.0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            text = f"the peer was silent for {self._seconds:g} s"
            self._reader.set_exception(TransportError("link.idle", text))


class CoroutineListener:
    """A bound TCP listener and the coroutines that serve its connections.

    What a coroutine raises ends its connection: an OSError or EOFError as the peer's doing, a
    RillnodeError counted by its code, a LimitOverrunError (what `readuntil` waits for does not end)
    as `link.unfinished`, all else counted as `link.failed` and logged. Where it waits for bytes for
    too long, its read raises `link.idle`.

    Attributes:
        group: none, as its connections are no links.
        counters: connections that failed or were refused so far, by error code.
    """

    group = None

    def __init__(self, serve: Serve, connections_max: int, silence_seconds: float | None) -> None:
        self._serve = serve
        self._silence_seconds = silence_seconds
        self._connections_max = connections_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.counters: Counter[str] = Counter()

    async def bind(self, host: str, port: int) -> None:
        """Begin to listen; see `serve_connections`."""
        try:
            loop = asyncio.get_running_loop()

            def accepted() -> asyncio.StreamReaderProtocol:
                return asyncio.StreamReaderProtocol(_Reader(loop), self._accept, loop=loop)

            self._server = await loop.create_server(accepted, host, port)
        except OSError as error:
            raise bind_error(host, port, error) from error
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    @property
    def address(self) -> str:
        """The bound address as `host:port`."""
        return address_text(self.host, self.port)

    @property
    def link_count(self) -> int:
        """Connections that are open."""
        return len(self._tasks)

    def stop_accepting(self) -> None:
        """Take no more connections; those that are served go on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stop accepting, cancel what serves connections, and wait for it."""
        self.stop_accepting()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._connections_max:
            self.counters["link.limit"] += 1
            writer.close()
            return
        task = asyncio.ensure_future(self._served(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seconds, silence = self._silence_seconds, None
        if seconds is not None and isinstance(reader, _Reader):
            silence = _Silence(reader, asyncio.get_running_loop(), seconds)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError):
            pass
        except asyncio.LimitOverrunError:
            self.counters["link.unfinished"] += 1
        except RillnodeError as error:
            self.counters[error.code] += 1
        except Exception:
            self.counters["link.failed"] += 1
            logger.exception("connection_failed")
        finally:
            if silence is not None:
                silence.stop()
            writer.close()
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await writer.wait_closed()
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()


async def serve_connections(
    host: str,
    port: int,
    serve: Serve,
    *,
    connections_max: int = CONNECTIONS_MAX,
    silence_seconds: float | None = SILENCE_SECONDS_MAX,
) -> CoroutineListener:
    """Bind `host:port` (port 0: any free one) and have a coroutine serve each connection.

    Args:
        host: the address.
        port: the port.
        serve: makes the coroutines.
        connections_max: connections at one time; further ones are closed, and counted as
            `link.limit`.
        silence_seconds: how long a read may wait for all that it asks for, from the first one on;
            then it raises, the connection is closed, and that is counted as `link.idle`. None: for
            ever, where peers only listen.

    Raises:
        TransportError: the address cannot be bound; the text says what to do.
    """
    listener = CoroutineListener(serve, connections_max, silence_seconds)
    await listener.bind(host, port)
    return listener
