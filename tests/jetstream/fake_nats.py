"""A NATS server that does as a test says, and a client of it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from rillnode.actors.jetstream.credentials import Login
from rillnode.actors.jetstream.wire import Target

INFO: Final = b'INFO {"version":"2.12.1","max_payload":1000,"headers":true}\r\n'

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Let a client in; returns the subject of its inbox, which ends with a dot."""
    writer.write(INFO)
    await reader.readuntil(b"\r\n")
    inbox = (await reader.readuntil(b"\r\n")).split()[1].rstrip(b"*")
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")
    return inbox


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[int]:
    """A server within the block; the port where it listens. It ends with its connections."""
    tasks: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, limit=1_000_000)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def target(
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    connect_seconds: float = 5.0,
    answer_seconds: float = 0.2,
) -> Target:
    """How to connect to it."""
    return Target(
        host="127.0.0.1",
        port=port,
        tls=tls,
        tls_default=ssl.create_default_context(),
        login=Login(),
        connect_seconds=connect_seconds,
        answer_seconds=answer_seconds,
    )
