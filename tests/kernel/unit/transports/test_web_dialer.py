"""Dialled WebSockets: order, headers, closing, and servers that are not there or do not read."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha1

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from coroutines import handed_by, run_with
from rillnode.codecs.errors import CodecError, RillnodeError, TransportError
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import NOISE_LIMITS, LinkLimits
from rillnode.transports.web_dialer import DialledWebSocket, LinkUnwanted, WebSocketDialer
from rillnode.transports.web_server import listen_web

pytestmark = pytest.mark.usefixtures("kind_of_loop")

SECONDS = 120.0
LIMITS = replace(NOISE_LIMITS, sweep_seconds=0.08, close_seconds=0.3)


class Dialled:
    """A dialler, and a server that hands its sockets to the test."""

    def __init__(self, dialer: WebSocketDialer, url: str) -> None:
        self.dialer = dialer
        self.url = url
        self.sockets: list[web.WebSocketResponse] = []
        self.requests: list[web.Request] = []
        self.ended = asyncio.Event()
        self.links: list[Recorder] = []
        self.failures: list[RillnodeError] = []
        self.answer: Mapping[str, str] = {}
        self.refusal: RillnodeError | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        socket.headers["name"] = "server"
        await socket.prepare(request)
        self.requests.append(request)
        self.sockets.append(socket)
        await self.ended.wait()
        return socket

    def dial(self, url: str | None = None) -> None:
        def make_events(headers: Mapping[str, str]) -> Recorder:
            self.answer = headers
            if self.refusal is not None:
                raise self.refusal
            self.links.append(Recorder())
            return self.links[-1]

        self.dialer.dial(url or self.url, {"name": "client"}, make_events, self.failures.append)

    async def connect(self) -> tuple[Recorder, web.WebSocketResponse]:
        self.dial()
        await until(lambda: self.links and self.links[-1].link and self.sockets, seconds=SECONDS)
        return self.links[-1], self.sockets[-1]


@asynccontextmanager
async def dialling(limits: LinkLimits) -> AsyncGenerator[Dialled, None]:
    dialer = WebSocketDialer(
        transport_name="test",
        clock=SystemClock(asyncio.get_running_loop()),
        limits=limits,
        connect_seconds=SECONDS,
        message_bytes_max=1_000,
        ping_seconds=SECONDS,
    )
    dialled = Dialled(dialer, "")
    app = web.Application()
    app.router.add_get("/ws", dialled.serve)
    server = await listen_web(app, "127.0.0.1", 0)
    dialled.url = f"ws://{server.address}/ws"
    try:
        yield dialled
    finally:
        await dialer.close("the test is over")
        dialled.ended.set()
        await server.close()


def run(test: Callable[[Dialled], Awaitable[None]], limits: LinkLimits = LIMITS) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS), dialling(limits) as dialled:
            await test(dialled)

    asyncio.run(main())


dialled = handed_by(run)


async def test_both_sides_hear_each_others_headers(dialled: Dialled) -> None:
    recorder, _ = await dialled.connect()
    assert dialled.requests[0].headers["name"] == "client"
    assert dialled.answer["name"] == "server"
    info = recorder.open_link.info
    assert (info.dialled, info.remote, info.principal) == (True, dialled.url, "anonymous")


async def test_messages_go_both_ways_in_order_as_text_and_come_as_either(dialled: Dialled) -> None:
    recorder, socket = await dialled.connect()
    messages = [b"%d" % number for number in range(100)]
    recorder.open_link.send(messages[:50])
    recorder.open_link.send(messages[50:])
    for message in messages:
        received = await socket.receive()
        assert (received.type, received.data) == (WSMsgType.TEXT, message.decode())
    await socket.send_str("text")
    await socket.send_bytes(b"binary")
    await until(lambda: recorder.messages == [b"text", b"binary"], seconds=SECONDS)


async def test_what_was_sent_arrives_before_the_end_and_the_end_has_a_reason(
    dialled: Dialled,
) -> None:
    recorder, socket = await dialled.connect()
    recorder.open_link.send([b"last words"])
    recorder.open_link.close("enough")
    recorder.open_link.send([b"too late"])
    assert (await socket.receive()).data == "last words"
    closed = await socket.receive()
    assert (closed.type, closed.data, closed.extra) == (WSMsgType.CLOSE, 1000, "enough")
    await until(lambda: recorder.reason == "enough", seconds=SECONDS)
    await until(lambda: not len(dialled.dialer.group), seconds=SECONDS)


async def test_a_server_that_closes_ends_the_link(dialled: Dialled) -> None:
    recorder, socket = await dialled.connect()
    closing = asyncio.ensure_future(socket.close())
    await until(lambda: recorder.reason == "closed by the peer", seconds=SECONDS)
    await closing


async def test_a_message_that_is_too_long_ends_the_link(dialled: Dialled) -> None:
    recorder, socket = await dialled.connect()
    await socket.send_str("x" * 1_001)
    await until(lambda: recorder.calls[-1] == "closed", seconds=SECONDS)
    assert recorder.messages == []


def test_messages_that_never_end_are_bounded_together_and_others_go_on() -> None:
    async def begin(dialled: Dialled) -> tuple[Recorder, asyncio.Transport]:
        """Begin a message of 900 bytes and send 600 of them."""
        count = len(dialled.links) + 1
        dialled.dial()
        both = (dialled.links, dialled.sockets)
        await until(lambda: all(len(ends) == count for ends in both), seconds=SECONDS)
        link = dialled.links[-1]
        await until(lambda: link.link, seconds=SECONDS)
        transport = dialled.requests[-1].transport
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"\x82\x7e" + (900).to_bytes(2) + bytes(300))
        transport.write(bytes(300))
        return link, transport

    async def test(dialled: Dialled) -> None:
        links: list[Recorder] = []
        last: asyncio.Transport | None = None
        for begun in range(1, 6):
            link, last = await begin(dialled)
            links.append(link)
            # Of 2,000 bytes there is room for three: the one that was begun first goes.
            await until(partial(has_ended, links, max(0, begun - 3)), seconds=SECONDS)
        assert last is not None
        last.write(bytes(300))
        await until(lambda: links[-1].messages, seconds=SECONDS)
        assert [bool(link.reason) for link in links] == [True, True, False, False, False]
        assert links[0].reason == "too much is unfinished on all links [link.unfinished_crowd]"
        assert dialled.dialer.group.counters == {"link.unfinished_crowd": 2}
        # What is whole is held no longer: there is room again.
        link, _ = await begin(dialled)
        await asyncio.sleep(0.1)
        assert not link.reason

    run(test, replace(LIMITS, unfinished_bytes_max=2_000))


def has_ended(links: list[Recorder], count: int) -> bool:
    return sum(bool(link.reason) for link in links) == count


async def test_what_comes_with_the_servers_answer_counts_once(dialled: Dialled) -> None:
    """A server may begin to send in the very packet that says that it is one."""
    begun = b"\x81\x7e\x02\x00" + b"x" * 300

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        (key,) = re.findall(rb"Sec-WebSocket-Key: (\S+)", request)
        accept = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05whole" + begun)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        dialled.dial(f"ws://{host}:{port}/")
        await until(lambda: dialled.links and dialled.links[0].messages, seconds=SECONDS)
        assert dialled.links[0].messages == [b"whole"]
        assert dialled.dialer.group.unfinished.held_bytes == len(begun)
        await dialled.dialer.close("the test is over")


async def test_more_links_than_the_library_would_open_are_open_at_one_time(
    dialled: Dialled,
) -> None:
    for _ in range(130):
        dialled.dial()
    await until(lambda: sum(bool(link.link) for link in dialled.links) == 130, seconds=SECONDS)


@run_with(replace(LIMITS, buffer_bytes_max=4000000, close_seconds=0.1))
async def test_a_peer_that_does_not_read_is_given_up_and_counted(dialled: Dialled) -> None:
    recorder, _ = await dialled.connect()
    for _ in range(2):
        recorder.open_link.send([b"x" * 1_000_000] * 3)
    await until(lambda: recorder.reason is not None, seconds=SECONDS)
    assert dialled.dialer.group.counters == {"link.buffer_full": 1}


async def test_a_link_that_is_crowded_out_while_it_is_not_read_ends(dialled: Dialled) -> None:
    recorder, socket = await dialled.connect()
    recorder.on_messages = lambda link, _: link.pause_reading()
    await socket.send_str("text")
    await until(lambda: recorder.messages, seconds=SECONDS)
    link = recorder.open_link
    assert isinstance(link, DialledWebSocket)
    link.crowded_out(TransportError("link.unfinished_crowd", "as told"))
    await until(lambda: recorder.reason == "as told [link.unfinished_crowd]", seconds=SECONDS)


async def test_where_nobody_listens_there_is_a_failure_that_may_pass(dialled: Dialled) -> None:
    dialled.dial("ws://127.0.0.1:1/ws")
    dialled.dial(dialled.url + "/elsewhere")
    await until(lambda: len(dialled.failures) == 2, seconds=SECONDS)
    assert {one.code for one in dialled.failures} == {"link.unreachable"}
    assert all(one.retryable for one in dialled.failures)


async def test_a_server_that_was_not_meant_is_left(dialled: Dialled) -> None:
    dialled.refusal = CodecError("network.handshake", "no id")
    dialled.dial()
    await until(lambda: dialled.failures and dialled.sockets, seconds=SECONDS)
    assert dialled.failures == [dialled.refusal]
    message = await dialled.sockets[0].receive()
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1002)


async def test_a_link_that_is_unwanted_when_it_opens_is_closed_with_the_reason(
    dialled: Dialled,
) -> None:
    dialled.refusal = LinkUnwanted("link.duplicate", "there is one", close_code=1000)
    dialled.dial()
    await until(lambda: dialled.sockets, seconds=SECONDS)
    message = await dialled.sockets[0].receive()
    assert message.type is aiohttp.WSMsgType.CLOSE
    assert (message.data, message.extra) == (1000, "there is one")
    await until(lambda: dialled.failures, seconds=SECONDS)
    assert dialled.failures == [dialled.refusal]
    assert len(dialled.dialer.group) == 0


@run_with(replace(LIMITS, connections_max=1))
async def test_there_are_no_more_links_than_the_limits_say(dialled: Dialled) -> None:
    await dialled.connect()
    dialled.dial()
    await until(lambda: dialled.failures, seconds=SECONDS)
    assert dialled.failures[0].code == "link.too_many"
