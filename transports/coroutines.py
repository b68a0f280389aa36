"""Serves TCP connections by a coroutine each: for protocols that need no link of their own."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CLOSE_SECONDS_MAX, CONNECTIONS_MAX
from rillnode.transports.tcp import bind_error
from rillnode.transports.tcp_link import address_text

logger = event_logger("rillnode.transports.coroutines")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection until it returns; then, and when it raises, the connection is closed."""


class CoroutineListener:
    """A bound TCP listener and the coroutines that serve its connections.

    What a coroutine raises ends its connection: an OSError or EOFError as the peer's doing, a
    RillnodeError counted by its code, a LimitOverrunError (what `readuntil` waits for does not end)
    as `link.unfinished`, all else counted as `link.failed` and logged.

    Attributes:
        group: none, as its connections are no links.
        counters: connections that failed or were refused so far, by error code.
    """

    group = None

    def __init__(self, serve: Serve, connections_max: int) -> None:
        self._serve = serve
        self._connections_max = connections_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.counters: Counter[str] = Counter()

    async def bind(self, host: str, port: int) -> None:
        """Begin to listen; see `serve_connections`."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
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
            writer.close()
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await writer.wait_closed()
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()


async def serve_connections(
    host: str, port: int, serve: Serve, *, connections_max: int = CONNECTIONS_MAX
) -> CoroutineListener:
    """Bind `host:port` (port 0: any free one) and have a coroutine serve each connection.

    Args:
        host: the address.
        port: the port.
        serve: makes the coroutines.
        connections_max: connections at one time; further ones are closed, and counted as
            `link.limit`.

    Raises:
        TransportError: the address cannot be bound; the text says what to do.
    """
    listener = CoroutineListener(serve, connections_max)
    await listener.bind(host, port)
    return listener
