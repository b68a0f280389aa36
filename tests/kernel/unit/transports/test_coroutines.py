"""The listener whose connections are served by a coroutine each."""

import asyncio
import errno
import logging
import socket
from asyncio import StreamReader as Reader, StreamWriter as Writer
from collections.abc import Awaitable, Callable

import pytest

from rillnode.codecs.errors import CodecError, TransportError
from rillnode.transports import coroutines
from rillnode.transports.coroutines import serve_connections


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.readline():
        writer.write(data)
        await writer.drain()


def failing(error: BaseException) -> Callable[[Reader, Writer], Awaitable[None]]:
    async def serve(reader: Reader, writer: Writer) -> None:
        await reader.readline()
        raise error

    return serve


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not condition():
            await asyncio.sleep(0.001)


async def connect(address: str) -> tuple[Reader, Writer]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def test_each_connection_is_served_until_it_ends() -> None:
    listener = await serve_connections("127.0.0.1", 0, echo)
    pairs = [await connect(listener.address) for _ in range(3)]
    for reader, writer in pairs:
        writer.write(b"a\n")
        assert await reader.readline() == b"a\n"
    assert listener.link_count == 3
    for _, writer in pairs:
        writer.close()
    await until(lambda: listener.link_count == 0)
    assert not listener.counters
    await listener.close()


async def test_a_connection_too_many_is_closed_and_counted() -> None:
    listener = await serve_connections("127.0.0.1", 0, echo, connections_max=1)
    reader, writer = await connect(listener.address)
    writer.write(b"a\n")
    assert await reader.readline() == b"a\n"
    other, others_writer = await connect(listener.address)
    assert await other.read() == b""
    others_writer.close()
    assert listener.counters == {"link.limit": 1}
    writer.close()
    await until(lambda: listener.link_count == 0)
    again, writer = await connect(listener.address)
    writer.write(b"b\n")
    assert await again.readline() == b"b\n"
    writer.close()
    await listener.close()


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (CodecError("mqtt.malformed", "no packet"), {"mqtt.malformed": 1}),
        (ConnectionResetError(), {}),
        (EOFError(), {}),
        (asyncio.LimitOverrunError("no end", 65_536), {"link.unfinished": 1}),
        (ValueError("a mistake"), {"link.failed": 1}),
    ],
)
async def test_what_a_coroutine_raises_closes_its_connection(
    error: Exception, counted: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    listener = await serve_connections("127.0.0.1", 0, failing(error))
    reader, writer = await connect(listener.address)
    writer.write(b"a\n")
    assert await reader.read() == b""
    writer.close()
    await until(lambda: listener.link_count == 0)
    assert listener.counters == counted
    logged = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert bool(logged) == ("link.failed" in counted)
    await listener.close()


async def test_a_stop_takes_no_more_and_serves_what_is_there() -> None:
    listener = await serve_connections("127.0.0.1", 0, echo)
    reader, writer = await connect(listener.address)
    writer.write(b"a\n")
    assert await reader.readline() == b"a\n"
    listener.stop_accepting()
    with pytest.raises(ConnectionRefusedError):
        await connect(listener.address)
    writer.write(b"b\n")
    assert await reader.readline() == b"b\n"
    await listener.close()
    assert await reader.read() == b""
    writer.close()
    assert listener.link_count == 0


async def test_who_reads_nothing_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coroutines, "CLOSE_SECONDS_MAX", 0.05)

    async def flood(_: Reader, writer: Writer) -> None:
        writer.write(bytes(64_000_000))
        await writer.drain()

    listener = await serve_connections("127.0.0.1", 0, flood)
    _, writer = await connect(listener.address)
    await until(lambda: listener.link_count == 1)
    async with asyncio.timeout(5.0):
        await listener.close()
    assert listener.link_count == 0
    writer.transport.abort()


async def test_an_address_in_use_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TransportError) as refused:
            await serve_connections("127.0.0.1", port, echo)
    assert refused.value.code == "listen.in_use"
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.EADDRINUSE


async def by_bytes(reader: Reader, writer: Writer) -> None:
    while data := await reader.readexactly(2):
        writer.write(data)


async def by_pieces(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(100):
        writer.write(data)


async def by_lines(reader: Reader, writer: Writer) -> None:
    async for line in reader:
        writer.write(line)


async def by_ends(reader: Reader, writer: Writer) -> None:
    while True:
        writer.write(await reader.readuntil(b"\n"))


@pytest.mark.parametrize("serve", [echo, by_bytes, by_pieces, by_lines, by_ends])
@pytest.mark.parametrize("said", [b"", b"a\n", b"a\nb"])
async def test_who_is_silent_for_too_long_is_closed_and_counted(
    serve: Callable[[Reader, Writer], Awaitable[None]], said: bytes
) -> None:
    listener = await serve_connections("127.0.0.1", 0, serve, silence_seconds=0.1)
    reader, writer = await connect(listener.address)
    writer.write(said)
    async with asyncio.timeout(10.0):
        assert (await reader.read())[:2] == said[:2]
    assert listener.counters == {"link.idle": 1}
    await until(lambda: listener.link_count == 0)
    writer.close()
    await listener.close()


async def test_a_message_that_never_ends_is_silence_and_one_that_waits_unread_is_none() -> None:
    async def slow(reader: Reader, writer: Writer) -> None:
        while line := await reader.readline():
            await asyncio.sleep(0.5)  # it is the plug-in that takes long
            writer.write(line)

    listener = await serve_connections("127.0.0.1", 0, slow, silence_seconds=0.2)
    reader, writer = await connect(listener.address)
    writer.write(b"a\nb\n")
    assert [await reader.readline(), await reader.readline()] == [b"a\n", b"b\n"]
    assert not listener.counters
    async with asyncio.timeout(10.0):
        while not listener.counters:  # byte by byte, and never a line
            writer.write(b"x")
            await asyncio.sleep(0.02)
    assert listener.counters == {"link.idle": 1}
    writer.close()
    await listener.close()


@pytest.mark.parametrize("size", [1 << 40, -1])
async def test_a_byte_that_comes_in_the_moment_when_time_is_over_wins_nothing(size: int) -> None:
    async def take(reader: Reader, _: Writer) -> None:
        def trickle() -> None:
            reader.feed_data(b"x")
            feeding[:] = [loop.call_soon(trickle)]

        trickle()  # a byte comes in each turn of the loop
        await (reader.readexactly(size) if size > 0 else reader.read())

    loop = asyncio.get_running_loop()
    feeding: list[asyncio.Handle] = []
    listener = await serve_connections("127.0.0.1", 0, take, silence_seconds=0.1)
    try:
        _, writer = await connect(listener.address)
        async with asyncio.timeout(10.0):
            while not listener.counters:
                await asyncio.sleep(0.02)
        assert listener.counters == {"link.idle": 1}
        writer.close()
    finally:
        feeding[0].cancel()
        await listener.close()


async def test_who_only_listens_may_be_silent_where_that_is_said() -> None:
    listener = await serve_connections("127.0.0.1", 0, echo, silence_seconds=None)
    reader, writer = await connect(listener.address)
    await asyncio.sleep(0.2)
    writer.write(b"a\n")
    assert await reader.readline() == b"a\n"
    writer.close()
    await listener.close()
