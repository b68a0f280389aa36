"""Connections of an HTTP listener: how many, how silent, how slow, and who gets in all the same."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from link_support import ManualClock
from rillnode.codecs.errors import TransportError
from rillnode.node.testing.contract.base import until
from rillnode.transports.http_connections import HttpConnection, HttpConnections
from rillnode.transports.links import HTTP_LIMITS, LinkLimits
from rillnode.transports.web_server import WebServer, listen_web

SECONDS = 60.0
HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Handler(asyncio.Protocol):
    """The HTTP library's protocol, in its place."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.calls.append(data)

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return True

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")


class Socket(asyncio.Transport):
    """One end of a connection that was accepted."""

    def __init__(self, connections: HttpConnections, host: str = "10.0.0.1") -> None:
        super().__init__({"peername": (host, 1)})
        self.unread = 0
        self.open = True
        self.connection: HttpConnection = connections()
        self.connection.connection_made(self)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unread += len(data)

    def is_closing(self) -> bool:
        return not self.open

    def abort(self) -> None:
        if self.open:
            self.open = False
            self.connection.connection_lost(None)


class Bench:
    """Connections of handlers that record, and a clock moved by hand."""

    def __init__(self, limits: LinkLimits = HTTP_LIMITS) -> None:
        self.clock = ManualClock()
        self.handlers: list[Handler] = []
        self.connections = HttpConnections(self._handler, self.clock, limits)

    def connect(self, host: str = "10.0.0.1") -> Socket:
        return Socket(self.connections, host)

    def _handler(self) -> Handler:
        self.handlers.append(Handler())
        return self.handlers[-1]


def test_everything_is_handed_on() -> None:
    bench = Bench()
    connection = bench.connect().connection
    connection.data_received(b"one")
    connection.pause_writing()
    connection.resume_writing()
    assert connection.eof_received()
    connection.connection_lost(None)
    assert bench.handlers[0].calls == ["made", b"one", "pause", "resume", "eof", "lost"]
    assert not len(bench.connections)


@pytest.mark.parametrize("sent", [b"", HEAD[:-1], b"\r\n\n\r\n"])
def test_who_asks_for_nothing_is_closed(sent: bytes) -> None:
    bench = Bench()
    socket = bench.connect()
    for at in range(len(sent)):
        socket.connection.data_received(sent[at : at + 1])
    bench.clock.advance(HTTP_LIMITS.handshake_seconds - 0.1)
    assert socket.open
    bench.clock.advance(2.0)
    assert not socket.open
    assert bench.handlers[0].calls[-1] == "lost"
    assert bench.connections.counters == {"http.head_timeout": 1}


def test_bytes_that_trickle_gain_no_time() -> None:
    bench = Bench()
    socket = bench.connect()
    for _ in range(20):
        socket.connection.data_received(b"x")
        bench.clock.advance(1.0)
    assert not socket.open


@pytest.mark.parametrize("cut", range(len(HEAD)))
def test_a_head_counts_wherever_it_is_cut(cut: int) -> None:
    bench = Bench()
    socket = bench.connect()
    socket.connection.data_received(HEAD[:cut])
    socket.connection.data_received(HEAD[cut:])
    bench.clock.advance(1_000.0)
    assert socket.open


def test_who_takes_next_to_nothing_is_closed_and_who_reads_slowly_is_not() -> None:
    bench = Bench()
    by_rate = {0: bench.connect(), 1_000: bench.connect(), 3_000: bench.connect()}
    for socket, handler in zip(by_rate.values(), bench.handlers, strict=True):
        socket.connection.data_received(HEAD)
        handler.transport.writelines([bytes(50_000), bytes(50_000)])
    for _ in range(100):
        bench.clock.advance(1.0)
        for (rate, socket), handler in zip(by_rate.items(), bench.handlers, strict=True):
            socket.unread -= rate
            handler.transport.write(bytes(rate))  # an answer without end, such as a tail
    assert [socket.open for socket in by_rate.values()] == [False, False, True]
    assert bench.connections.counters == {"link.not_drained": 2}


def test_a_small_answer_may_be_taken_slowly_and_a_large_one_in_parts() -> None:
    bench = Bench()
    small, large = bench.connect(), bench.connect()
    for socket, handler, size in ((small, 0, 5_000), (large, 1, 900_000)):
        socket.connection.data_received(HEAD)
        bench.handlers[handler].transport.write(bytes(size))
    for _ in range(300):
        bench.clock.advance(1.0)
        small.unread = max(0, small.unread - 200)
        large.unread -= 3_000
    assert (small.open, large.open, large.unread) == (True, True, 0)


def test_the_oldest_silent_one_makes_room() -> None:
    bench = Bench(replace(HTTP_LIMITS, connections_max=3))
    busy, first, second = (bench.connect() for _ in range(3))
    busy.connection.data_received(HEAD)
    third = bench.connect()
    assert [one.open for one in (busy, first, second, third)] == [True, False, True, True]
    assert bench.connections.counters == {"http.crowded_out": 1}
    assert len(bench.connections) == 3


def test_where_all_are_at_work_nobody_else_is_let_in() -> None:
    bench = Bench(replace(HTTP_LIMITS, connections_max=2))
    for socket in (busy := [bench.connect(), bench.connect()]):
        socket.connection.data_received(HEAD)
    assert not bench.connect().open
    assert all(socket.open for socket in busy)
    assert bench.connections.counters == {"http.too_many": 1}
    busy[0].abort()
    assert bench.connect().open


def test_one_address_does_not_take_the_place_of_others() -> None:
    bench = Bench(replace(HTTP_LIMITS, connections_per_address_max=2))
    near = [bench.connect() for _ in range(3)]
    assert [socket.open for socket in near] == [True, True, False]
    assert bench.connect("10.0.0.2").open
    assert bench.connections.counters == {"http.too_many_from_address": 1}
    near[0].abort()
    assert bench.connect().open


class Upgrade:
    """The link that a connection has become."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.ended: list[str] = []

    def message_too_long(self, error: TransportError) -> None:
        self.ended.append(error.code)

    def crowded_out(self, error: TransportError) -> None:
        self.ended.append(error.code)
        self.socket.open = False


def test_a_link_is_bounded_as_a_link() -> None:
    bench = Bench(replace(HTTP_LIMITS, connections_max=1))
    link = bench.connect()
    link.connection.data_received(HEAD)
    link.connection.upgraded(Upgrade(link), 1_000)
    link.unread = 1
    assert bench.connect().open
    bench.clock.advance(1_000.0)
    assert link.open
    link.abort()
    assert bench.handlers[0].calls == ["made", HEAD, "lost"]


# Unfinished requests and messages ------------------------------------------------------------

CROWDED = replace(HTTP_LIMITS, unfinished_bytes_max=300)
FRAME = b"\x82\xfe\x01\x00mask"
"""The head of a message of 256 bytes."""


def test_bodies_that_never_end_are_bounded_in_all_the_first_begun_goes() -> None:
    bench = Bench(CROWDED)
    first, second, third = (bench.connect() for _ in range(3))
    first.connection.data_received(HEAD + b"x" * 50)
    second.connection.data_received(HEAD)  # an answer that takes long, and nothing to hold
    third.connection.data_received(HEAD + b"x" * 100)
    first.connection.data_received(b"x" * 150)
    assert [one.open for one in (first, second, third)] == [True] * 3
    third.connection.data_received(b"x")
    assert [one.open for one in (first, second, third)] == [False, True, True]
    third.connection.data_received(b"x" * 199)
    assert third.open
    third.connection.data_received(b"x")
    assert not third.open
    assert bench.connections.counters == {"link.unfinished_crowd": 2}
    assert bench.handlers[2].calls[-1] == "lost"  # the last byte was not handed on


def test_what_was_answered_holds_nothing() -> None:
    bench = Bench(CROWDED)
    first, second = bench.connect(), bench.connect()
    for whole in (True, True, False):
        first.connection.data_received(HEAD[:7])
        first.connection.data_received(HEAD[7:] + b"x" * 200)
        first.connection.asked()
        first.connection.answered(whole=whole)
    first.connection.data_received(HEAD + b"x" * 1_000)  # all of it is thrown away
    second.connection.data_received(HEAD + b"x" * 300)
    assert first.open
    assert second.open


def test_a_body_counts_though_its_head_came_with_another_request() -> None:
    bench = Bench(CROWDED)
    socket = bench.connect()
    socket.connection.data_received(HEAD + HEAD)
    for _ in range(2):
        socket.connection.asked()
        socket.connection.answered(whole=True)
    assert socket.open
    socket.connection.asked()
    socket.connection.data_received(b"x" * 300)
    assert not socket.open


def test_messages_and_bodies_are_counted_together() -> None:
    bench = Bench(CROWDED)
    link, other = bench.connect(), bench.connect()
    upgrade = Upgrade(link)
    link.connection.data_received(HEAD)
    link.connection.asked()
    link.connection.upgraded(upgrade, 1_000)
    link.connection.answered(whole=True)  # of no meaning for a link
    for _ in range(3):
        link.connection.data_received(FRAME + bytes(256) + FRAME)
        link.connection.data_received(bytes(256))
    link.connection.data_received(FRAME + bytes(92))
    other.connection.data_received(HEAD + bytes(200))
    assert not upgrade.ended
    other.connection.data_received(b"x")
    assert upgrade.ended == ["link.unfinished_crowd"]
    handed_on = len(bench.handlers[0].calls)
    link.connection.data_received(bytes(100))
    assert len(bench.handlers[0].calls) == handed_on
    assert other.open
    assert not bench.connections.counters  # the link counts its own end


@pytest.mark.parametrize("early", [b"", HEAD[:-1], HEAD + b"\x82", HEAD + FRAME + bytes(256)])
def test_frames_before_the_answer_are_refused(early: bytes) -> None:
    socket = Bench().connect()
    socket.connection.data_received(early)
    with pytest.raises(TransportError, match="before the upgrade") as caught:
        socket.connection.upgraded(Upgrade(socket), 1_000)
    assert caught.value.code == "link.early"


# On real sockets ------------------------------------------------------------------------------


def run(limits: LinkLimits, test: Callable[[WebServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async def answer(request: web.Request) -> web.Response:
            if request.method == "POST":
                await request.read()
            return web.Response(text="here")

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        server = await listen_web(app, "127.0.0.1", 0, limits=limits)
        try:
            async with asyncio.timeout(SECONDS):
                await test(server)
        finally:
            await server.close()

    asyncio.run(main())


async def connect(server: WebServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(server.host, server.port)


async def ask(server: WebServer) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.address}/") as answer,
    ):
        return await answer.text()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.usefixtures("kind_of_loop")
def test_a_good_client_is_answered_among_silent_and_slow_ones() -> None:
    async def test(server: WebServer) -> None:
        crowd = [await connect(server) for _ in range(12)]
        for at in range(10):
            for _, writer in crowd[::2]:
                with suppress(RuntimeError):  # uvloop's, where the server has closed
                    writer.write(HEAD[at : at + 1])
            await asyncio.sleep(0)
        assert await ask(server) == "here"
        assert server.connection_count <= 8
        assert server.counters["http.crowded_out"] >= 5
        assert await read_to_end(crowd[0][0]) == b""
        for _, writer in crowd:
            writer.close()

    run(replace(HTTP_LIMITS, connections_max=8), test)


@pytest.mark.usefixtures("kind_of_loop")
def test_bodies_that_never_end_cost_bounded_memory_and_whole_ones_are_taken() -> None:
    post = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 900000\r\n\r\n"

    async def test(server: WebServer) -> None:
        crowd = [await connect(server) for _ in range(10)]
        for _, writer in crowd:
            writer.write(post + bytes(200_000))
        await until(lambda: server.counters["link.unfinished_crowd"] >= 5, seconds=SECONDS)
        reader, writer = await connect(server)
        for _ in range(5):  # one after the other, over one connection
            writer.write(post + bytes(900_000))
            await reader.readuntil(b"here")
        await until(lambda: server.connection_count < 3, seconds=SECONDS)
        assert server.counters == {"link.unfinished_crowd": 9}
        for _, one in [*crowd, (reader, writer)]:
            one.close()

    run(replace(HTTP_LIMITS, unfinished_bytes_max=1_100_000), test)


@pytest.mark.usefixtures("kind_of_loop")
def test_what_is_thrown_away_of_a_request_counts_for_nothing() -> None:
    async def test(server: WebServer) -> None:
        begun, one = await connect(server)
        one.write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nfirst")
        reader, writer = await connect(server)
        writer.write(b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n")
        answer = await reader.readuntil(b"here")
        assert b"Connection: close" in answer
        writer.write(HEAD + bytes(500_000))
        one.write(b" last")
        assert b"200 OK" in await begun.readuntil(b"here")
        assert not server.counters
        one.close()
        writer.close()

    run(replace(HTTP_LIMITS, unfinished_bytes_max=1_000), test)


@pytest.mark.usefixtures("kind_of_loop")
def test_silent_slow_and_idle_connections_end() -> None:
    async def test(server: WebServer) -> None:
        (silent, one), (slow, two), (idle, three) = [await connect(server) for _ in range(3)]
        three.write(HEAD)
        await idle.readuntil(b"here")

        async def trickle() -> None:
            two.write(HEAD[:-4] + b"\r\nX: ")
            while not two.is_closing():
                two.write(b"x")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert await read_to_end(silent) == await read_to_end(slow) == b""
        await until(lambda: server.counters["http.head_timeout"] == 2, seconds=SECONDS)
        # A second head that never ends is no reason to stay.
        three.write(HEAD[:20])
        assert await read_to_end(idle) == b""
        await until(lambda: not server.connection_count, seconds=SECONDS)
        assert await ask(server) == "here"
        trickling.cancel()
        for writer in (one, two, three):
            writer.close()

    limits = replace(HTTP_LIMITS, idle_close_seconds=2.0, handshake_seconds=0.5, sweep_seconds=0.1)
    run(limits, test)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /?\xff HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
        b"nothing of the kind\r\n\r\n",
    ],
)
@pytest.mark.usefixtures("kind_of_loop")
def test_what_is_no_request_is_answered_with_400_and_calmly(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(head)
        assert (await read_to_end(reader)).split(b" ")[1] == b"400"
        writer.close()

    with caplog.at_level(logging.INFO):
        run(HTTP_LIMITS, test)
    assert all(one.levelno <= logging.INFO and not one.exc_info for one in caplog.records)
