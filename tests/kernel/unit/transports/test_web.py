"""WebSocket links: frames, order, closing, and peers that do not read."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

from coroutines import handed_by, run_with
from rillnode.codecs.errors import TransportError
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports import http_connections
from rillnode.transports.clock import SystemClock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import HTTP_LIMITS, NOISE_LIMITS, LinkLimits
from rillnode.transports.web import accept_websocket, server_frame
from rillnode.transports.web_server import WebServer, listen_web

pytestmark = pytest.mark.usefixtures("kind_of_loop")

SECONDS = 60.0
LIMITS = replace(NOISE_LIMITS, sweep_seconds=0.08)
"""Deadlines are looked at every 10 ms."""


class Served:
    """A server, what it was told of its links, and clients."""

    def __init__(self, server: WebServer, group: LinkGroup, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.group = group
        self.session = session
        self.links: list[Recorder] = []

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        before = len(self.links)
        socket = await self.session.ws_connect(f"http://{self.server.address}/", max_msg_size=0)
        await until(lambda: len(self.links) > before and self.links[-1].link, seconds=SECONDS)
        return socket


@asynccontextmanager
async def serving(
    limits: LinkLimits, *, text: bool, ping_seconds: float | None
) -> AsyncGenerator[Served, None]:
    group = LinkGroup(
        transport="test", clock=SystemClock(asyncio.get_running_loop()), limits=limits
    )

    async def connect(request: web.Request) -> web.StreamResponse:
        recorder = Recorder()
        served.links.append(recorder)
        return await accept_websocket(
            request,
            recorder,
            group,
            text=text,
            message_bytes_max=1_000_000,
            ping_seconds=ping_seconds,
        )

    app = web.Application()
    app.router.add_get("/", connect)
    bounds = replace(HTTP_LIMITS, close_seconds=limits.close_seconds)
    server = await listen_web(app, "127.0.0.1", 0, group=group, limits=bounds)
    async with aiohttp.ClientSession() as session:
        served = Served(server, group, session)
        try:
            yield served
        finally:
            await server.close()


def run(
    test: Callable[[Served], Awaitable[None]],
    limits: LinkLimits = LIMITS,
    *,
    text: bool = True,
    ping_seconds: float | None = None,
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(SECONDS),
            serving(limits, text=text, ping_seconds=ping_seconds) as served,
        ):
            await test(served)

    asyncio.run(main())


served = handed_by(run)


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "8100"),
        (125, "817d"),
        (126, "817e007e"),
        (65_535, "817effff"),
        (65_536, "817f0000000000010000"),
    ],
)
def test_a_server_frame_is_as_rfc_6455_has_it(size: int, head: str) -> None:
    message = b"x" * size
    assert server_frame(message, text=True) == bytes.fromhex(head) + message
    assert server_frame(message, text=False)[0] == 0x82


@pytest.mark.parametrize("text", [True, False])
def test_messages_go_both_ways_in_order(text: bool) -> None:
    async def test(served: Served) -> None:
        socket = await served.connect()
        messages = [b"%d" % number * 50 * number for number in range(1, 40)]
        for message in messages:
            if text:
                await socket.send_str(message.decode())
            else:
                await socket.send_bytes(message)
        recorder = served.links[0]
        await until(lambda: len(recorder.messages) == len(messages), seconds=SECONDS)
        assert recorder.messages == messages
        recorder.open_link.send(messages[:20])
        recorder.open_link.send(messages[20:])
        for message in messages:
            received = await socket.receive()
            assert received.type is (WSMsgType.TEXT if text else WSMsgType.BINARY)
            assert received.data == (message.decode() if text else message)

    run(test, text=text)


@run_with(ping_seconds=0.1)
async def test_who_answers_no_ping_is_gone(served: Served) -> None:
    url = f"http://{served.server.address}/"
    async with served.session.ws_connect(url, autoping=False):
        await until(lambda: served.links, seconds=SECONDS)
        await until(lambda: served.links[0].calls[-1:] == ["closed"], seconds=SECONDS)
    assert not served.server.link_count


async def test_a_link_that_cannot_write_keeps_no_other_from_it(served: Served) -> None:
    sockets = [await served.connect() for _ in range(2)]

    def fail() -> None:
        raise RuntimeError("as told")

    served.links[0].open_link.send([b"before"])
    served.group.write_soon(fail)
    served.links[1].open_link.send([b"behind"])
    received = [(await socket.receive()).data for socket in sockets]
    assert received == ["before", "behind"]


async def test_what_was_sent_arrives_before_the_end(served: Served) -> None:
    socket = await served.connect()
    link = served.links[0].open_link
    link.send([b"last"])
    link.close("enough")
    link.send([b"too late"])
    assert (await socket.receive()).data == "last"
    end = await socket.receive()
    assert (end.type, end.data, end.extra) == (WSMsgType.CLOSE, 1000, "enough")
    await until(lambda: served.links[0].reason, seconds=SECONDS)
    assert served.links[0].calls == ["opened", "closed"]
    assert served.links[0].reason == "enough"
    await until(lambda: not served.server.link_count, seconds=SECONDS)


async def test_a_peer_that_leaves_is_told_of_once(served: Served) -> None:
    socket = await served.connect()
    await socket.close()
    await until(lambda: served.links[0].reason, seconds=SECONDS)
    assert served.links[0].calls == ["opened", "closed"]
    assert not served.server.counters


@run_with(replace(LIMITS, buffer_bytes_max=8000000))
async def test_a_peer_that_never_reads_is_closed_and_nobody_else(served: Served) -> None:
    slow, other = await served.connect(), await served.connect()
    assert slow is not other
    link = served.links[0].open_link
    for _ in range(1_000):
        link.send([b"x" * 100_000])
        await asyncio.sleep(0)
        if served.links[0].reason or served.server.counters:
            break
    await until(lambda: served.links[0].reason, seconds=SECONDS)
    assert served.server.counters == {"link.buffer_full": 1}
    served.links[1].open_link.send([b"hello"])
    assert (await other.receive()).data == "hello"


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def begin_message(served: Served, size: int, early: bytes = b"") -> Streams:
    """Upgrade a connection and send a part of a message that is longer."""
    reader, writer = await asyncio.open_connection(served.server.host, served.server.port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" + early
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x82\xff" + (999_999).to_bytes(8) + bytes(4) + bytes(size))
    return reader, writer


async def closed_with(streams: Streams) -> int:
    """The code of the frame that closes a link, after which nothing comes."""
    frame = await streams[0].read()
    streams[1].close()
    assert frame[0] == 0x88
    assert len(frame) == 2 + frame[1]
    return int.from_bytes(frame[2:4])


CLOSE = b"\x88\x80mask"
FRAMES = {
    "one frame": [b"\x82\xff" + (size := 8_000_000).to_bytes(8) + bytes(4) + bytes(size)],
    "fragments": [
        bytes([0x02 * (not number), 0xFF]) + (100_000).to_bytes(8) + bytes(4) + bytes(100_000)
        for number in range(80)
    ],
    "a message on the next": [
        b"\x82\xff" + (1_000_001).to_bytes(8) + bytes(4) + bytes(1_000_001) for _ in range(8)
    ],
}


@pytest.mark.parametrize("frames", FRAMES)
@run_with(replace(LIMITS, close_seconds=SECONDS), text=False)
async def test_who_is_still_sending_what_is_too_long_hears_of_it(
    served: Served, frames: str
) -> None:
    reader, writer = await begin_message(served, 999_999)
    await until(lambda: served.links[0].messages, seconds=SECONDS)
    for frame in FRAMES[frames]:
        writer.write(frame)
        await writer.drain()  # all of it is taken, or this raises
    await until(lambda: served.links[0].calls[-1:] == ["closed"], seconds=SECONDS)
    head = await reader.readexactly(2)
    close = await reader.readexactly(head[1])
    assert (head[0], close[:2]) == (0x88, (1_009).to_bytes(2))
    assert close[2:].startswith(b"messages of at most 1,000,000 bytes")
    writer.write(CLOSE)
    assert await reader.read() == b""
    assert served.links[0].messages == [bytes(999_999)]
    assert served.server.counters == {"link.message_too_long": 1}
    await until(lambda: not served.group.unfinished.held_bytes, seconds=SECONDS)
    writer.close()


@run_with(replace(LIMITS, close_seconds=SECONDS), text=False)
async def test_whatever_a_link_is_closed_for_who_is_still_sending_hears_of_it(
    served: Served,
) -> None:
    for code, frame in ((1_003, b"\x81\x80mask"), (1_002, b"\xf1\x80mask")):
        reader, writer = await begin_message(served, 999_999)
        writer.write(frame)
        for _ in range(12):
            writer.write(b"\x82\xff" + (900_000).to_bytes(8) + bytes(4) + bytes(900_000))
            await writer.drain()
        head = await reader.readexactly(2)
        close = await reader.readexactly(head[1])
        assert (head[0], close[:2]) == (0x88, code.to_bytes(2))
        writer.close()
        await until(lambda: not served.server.link_count, seconds=SECONDS)


@run_with(text=False)
async def test_a_message_may_be_as_long_as_is_said(served: Served) -> None:
    socket = await served.connect()
    await socket.send_bytes(bytes(1_000_000))
    await until(lambda: served.links[0].messages, seconds=SECONDS)
    assert served.links[0].messages == [bytes(1_000_000)]
    await socket.send_bytes(bytes(1_000_001))
    assert (await socket.receive()).data == WSCloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("limit", ["time", "bytes"])
def test_who_never_stops_sending_is_ended(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = LIMITS
    if limit == "time":
        limits = replace(LIMITS, close_seconds=0.1)
    else:
        monkeypatch.setattr(http_connections, "_THROWN_BYTES_MAX", 2_000_000)

    async def test(served: Served) -> None:
        _, writer = await begin_message(served, 999_999)
        writer.write(FRAMES["one frame"][0])

        async def send_on() -> None:
            while True:
                writer.write((b"\x89\xfdmask" + bytes(125)) * 500)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await send_on()
        await until(lambda: not served.server.link_count, seconds=SECONDS)

    run(test, limits, text=False)


def is_crowded(served: Served, held_bytes: int, ended: int) -> bool:
    counted = served.server.counters["link.unfinished_crowd"]
    return (served.group.unfinished.held_bytes, counted) == (held_bytes, ended)


@run_with(replace(LIMITS, unfinished_bytes_max=2000000), text=False)
async def test_messages_that_never_end_are_bounded_in_all(served: Served) -> None:
    crowd: list[Streams] = []
    for number in range(1, 21):
        crowd.append(await begin_message(served, 200_000))
        # One is read after the other, however late the system delivers what was sent.
        # A frame's head counts: nine of them are within the bound, and ten are not.
        held, ended = min(number, 9) * 200_014, max(0, number - 9)
        await until(partial(is_crowded, served, held, ended), seconds=SECONDS)
    codes = [await closed_with(streams) for streams in crowd[:11]]
    assert codes == [1013] * 11
    good = await served.connect()
    for _ in range(5):
        await good.send_bytes(bytes(900_000))
        await until(lambda: served.links[-1].messages, seconds=SECONDS)
        served.links[-1].messages.clear()
    ended = served.server.counters["link.unfinished_crowd"]
    # A read of at most 256 KiB makes a good message whole: before it 637,856 bytes were held at
    # least, which is the room of four others.
    assert 14 <= ended <= 20
    await until(lambda: served.server.link_count == 21 - ended, seconds=SECONDS)
    closed = [link.reason for link in served.links if link.reason]
    assert closed == ["too much is unfinished on all links [link.unfinished_crowd]"] * ended
    for _, writer in crowd:
        writer.close()


@run_with(text=False)
async def test_frames_before_the_answer_close_the_link(served: Served) -> None:
    streams = await begin_message(served, 0, early=b"\x82\x80mask")
    assert await closed_with(streams) == 1002
    await until(lambda: not served.server.link_count, seconds=SECONDS)
    assert served.server.counters == {"link.early": 1}
    assert served.links[0].calls == []


async def test_a_server_that_stops_takes_no_more_links_and_closes_those_it_has(
    served: Served,
) -> None:
    socket = await served.connect()
    served.server.stop_accepting()
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await served.session.ws_connect(f"http://{served.server.address}/")
    assert caught.value.status == 503
    closing = asyncio.create_task(served.server.close("good bye"))
    end = await socket.receive()
    assert (end.type, end.extra) == (WSMsgType.CLOSE, "good bye")
    await closing
    assert served.links[0].reason == "good bye"


async def test_a_link_that_is_closed_in_its_handshake_never_opens(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = web.WebSocketResponse.prepare
    closing: list[asyncio.Task[None]] = []

    async def prepare_slowly(
        socket: web.WebSocketResponse, request: web.BaseRequest
    ) -> AbstractStreamWriter:
        closing.append(asyncio.create_task(served.server.close("good bye")))
        await asyncio.sleep(0.05)
        return await prepare(socket, request)

    monkeypatch.setattr(web.WebSocketResponse, "prepare", prepare_slowly)
    socket = await served.session.ws_connect(f"http://{served.server.address}/")
    end = await socket.receive()
    assert (end.type, end.extra) == (WSMsgType.CLOSE, "good bye")
    await closing[0]
    assert served.links[0].calls == []


async def test_a_port_that_is_taken_is_an_error_with_a_way_out(served: Served) -> None:
    with pytest.raises(TransportError, match="choose another port") as caught:
        await listen_web(web.Application(), "127.0.0.1", served.server.port)
    assert caught.value.code == "listen.in_use"
