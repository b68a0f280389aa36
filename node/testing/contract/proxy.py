"""A TCP proxy that can cut the connections which go through it."""

import asyncio
from typing import Self

from rillnode.node.testing.contract.ports import free_port


class Proxy:
    """Forwards connections to one address, until they are cut."""

    def __init__(self, target: str) -> None:
        self.point_to(target)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes_left: int | None = None

    async def __aenter__(self) -> Self:
        # A port that the system gives to nobody else while this one is taken away.
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", free_port())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """Where it listens, as `127.0.0.1:PORT`."""
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    @property
    def connections(self) -> int:
        """How many connections to it are open."""
        return len(self._tasks) // 2

    def point_to(self, target: str) -> None:
        """Forward to another address the connections that come from now on."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    async def take_away(self) -> None:
        """Cut every connection and refuse new ones until `bring_back`."""
        self._host, self._port = self._server.sockets[0].getsockname()
        self._server.close()
        self.cut()

    async def bring_back(self) -> None:
        """Listen where it did before it was taken away."""
        self._server = await asyncio.start_server(self._accept, self._host, self._port)

    def cut(self) -> None:
        """Break every connection, without a word to either end."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def cut_after(self, count: int | None) -> None:
        """Break every connection when so many more bytes have come, from whichever side.

        None takes that back.
        """
        self._bytes_left = count

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # nobody is there now
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.get_running_loop().create_task(self._copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                left, is_last = self._bytes_left, False
                if left is not None:
                    is_last = len(data) >= left
                    self._bytes_left = None if is_last else left - len(data)
                    data = data[:left]
                sink.write(data)
                await sink.drain()
                if is_last:
                    self.cut()
        except OSError:
            pass
        finally:
            sink.close()
