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
    """A reader whose reads wait only so long for all that they ask for.

    What is not read yet is no silence of the peer, so only a wait counts, from its begin to its
    end: bytes that come one by one do not make it longer. One timer for all reads of a connection,
    as most of them wait for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(loop=loop)
        self._clock = loop.time
        self._call_later = loop.call_later
        self._seconds = seconds
        self._waits_since = 0.0
        self._waits: asyncio.Task[Any] | None = None
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """End a wait that is too long; look again when the next one may be."""
        left = self._seconds
        if self._waits is not None:
            left += self._waits_since - self._clock()
            if left <= 0.0:
                # `set_exception` is missed by a read that a byte has just woken.
                self._is_late = True
                self._waits.cancel()
                left = self._seconds
        self._timer = self._call_later(left, self.look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    async def _waited(self, read: Awaitable[bytes]) -> bytes:
        task = asyncio.current_task()
        if task is None or task is self._waits:  # a part of another read
            return await read
        self._waits_since, self._waits = self._clock(), task
        try:
            return await read
        except asyncio.CancelledError:
            if not self._is_late or task.uncancel():
                raise
            text = f"the peer was silent for {self._seconds:g} s"
            raise TransportError("link.idle", text) from None
        finally:
            self._waits, self._is_late = None, False

    async def read(self, n: int = -1) -> bytes:
        return await self._waited(super().read(n))

    async def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        return await self._waited(super().readuntil(*args, **kwargs))  # of `readline`, too

    async def readexactly(self, n: int) -> bytes:
        return await self._waited(super().readexactly(n))


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
                return asyncio.StreamReaderProtocol(self._reader(loop), self._accept, loop=loop)

            self._server = await loop.create_server(accepted, host, port)
        except OSError as error:
            raise bind_error(host, port, error) from error
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def _reader(self, loop: asyncio.AbstractEventLoop) -> asyncio.StreamReader:
        seconds = self._silence_seconds
        return asyncio.StreamReader(loop=loop) if seconds is None else _Reader(loop, seconds)

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
        if isinstance(reader, _Reader):
            reader.look()
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
            if isinstance(reader, _Reader):
                reader.stop()
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
