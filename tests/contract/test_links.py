"""Every kind of link keeps to the contract of links."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import uvloop
from aiohttp import web

from link_support import CLIENT, NODE
from rillnode.actors.ports import Clock
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.limits import U16_MESSAGE_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.framing import U16Framing, U32Framing
from rillnode.testing.contract import LinkContract, SizedLinkContract
from rillnode.transports.clock import SystemClock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import Link, LinkEvents, LinkLimits
from rillnode.transports.memory import connect_memory
from rillnode.transports.tcp import dial, listen
from rillnode.transports.web import accept_websocket
from rillnode.transports.web_dialer import WebSocketDialer
from rillnode.transports.web_server import listen_web


class _OverTcp(SizedLinkContract):
    """Links of `transports.tcp`, which differ by their codecs."""

    transport = "tcp"
    principals = ("anonymous", "anonymous")
    host: ClassVar[str] = "127.0.0.1"

    def codec(self, *, dialled: bool) -> LinkCodec:
        raise NotImplementedError

    def clock(self) -> Clock:
        return SystemClock(asyncio.get_running_loop())

    @asynccontextmanager
    async def joined(
        self, near: LinkEvents, far: LinkEvents, limits: LinkLimits
    ) -> AsyncGenerator[None, None]:
        clock, accepted = self.clock(), asyncio.Event()

        def events() -> LinkEvents:
            accepted.set()
            return far

        listener = await listen(
            self.host,
            0,
            codec_factory=lambda: self.codec(dialled=False),
            events_factory=events,
            transport_name=self.transport,
            clock=clock,
            limits=limits,
        )
        link = await dial(
            self.host,
            listener.port,
            codec=self.codec(dialled=True),
            events=near,
            transport_name=self.transport,
            clock=clock,
            limits=limits,
        )
        await accepted.wait()
        try:
            yield
        finally:
            link.close("the test is over")
            await listener.close()


class TestNoise(_OverTcp):
    principals = (f"noise:{NODE.public_hex}", f"noise:{CLIENT.public_hex}")

    def codec(self, *, dialled: bool) -> LinkCodec:
        return (
            NoiseLink.initiator(CLIENT)
            if dialled
            else NoiseLink.responder(NODE, accept=lambda _: True)
        )


class TestOckam(_OverTcp):
    message_bytes_max = U16_MESSAGE_BYTES_MAX

    def codec(self, *, dialled: bool) -> LinkCodec:
        return U16Framing()


class TestOckam2024(_OverTcp):
    message_bytes_max = U32_MESSAGE_BYTES_MAX
    wire_format = "cbor"

    def codec(self, *, dialled: bool) -> LinkCodec:
        return U32Framing()


class TestNoiseOnUvloop(TestNoise):
    def run_in_a_loop(self, test: Coroutine[Any, Any, None]) -> None:
        run_on_uvloop(test)


class TestMemory(SizedLinkContract):
    transport = "memory"
    principals = ("node", "application")

    @asynccontextmanager
    async def joined(
        self, near: LinkEvents, far: LinkEvents, limits: LinkLimits
    ) -> AsyncGenerator[None, None]:
        loop = asyncio.get_running_loop()
        link, _ = connect_memory(
            near,
            far,
            dialling_principal="application",
            accepting_principal="node",
            post=loop.call_soon,
            clock=SystemClock(loop),
            limits=limits,
        )
        try:
            yield
        finally:
            link.close("the test is over")


class TestWebSocket(LinkContract):
    """Both ends of a WebSocket, which carry text here and prove nothing."""

    transport = "web"
    principals = ("anonymous", "anonymous")
    message_bytes_max = 1_000_000

    @asynccontextmanager
    async def joined(
        self, near: LinkEvents, far: LinkEvents, limits: LinkLimits
    ) -> AsyncGenerator[None, None]:
        clock, accepted = SystemClock(asyncio.get_running_loop()), asyncio.Event()
        group = LinkGroup(transport=self.transport, clock=clock, limits=limits)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def accept(request: web.Request) -> web.StreamResponse:
            accepted.set()
            return await accept_websocket(
                request,
                far,
                group,
                text=True,
                message_bytes_max=self.message_bytes_max,
                ping_seconds=None,
            )

        app = web.Application()
        app.router.add_get("/", accept)
        server = await listen_web(app, "127.0.0.1", 0, group=group)
        dialer = WebSocketDialer(
            transport_name=self.transport,
            clock=clock,
            limits=limits,
            connect_seconds=60.0,
            message_bytes_max=self.message_bytes_max,
            ping_seconds=60.0,
        )
        told = _Opened(near, opened)
        dialer.dial(f"ws://{server.address}/", {}, lambda _: told, opened.set_exception)
        await opened
        await accepted.wait()
        try:
            yield
        finally:
            await dialer.close("the test is over")
            await server.close()


class _Opened:
    """Tells a test's events of a link, and that it has opened."""

    def __init__(self, events: LinkEvents, opened: "asyncio.Future[None]") -> None:
        self._opened = opened
        self.messages_received = events.messages_received
        self.link_drained = events.link_drained
        self.link_closed = events.link_closed
        self._events = events

    def link_opened(self, link: Link) -> None:
        self._events.link_opened(link)
        self._opened.set_result(None)


def run_on_uvloop(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)
