"""A house with a channel listener, users who open channels to it, and a connection by hand."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from actor_support import run
from channel_peer import ChannelPeer, Name, data
from core_support import Core, Peer
from link_support import ManualClock
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.links.connection import ConnectionEvents, PeerContext
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.channel import ChannelContext
from rillnode.actors.ockam.channel_listener import ADDRESSES, ChannelListener
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.limits import U16_MESSAGE_BYTES_MAX
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.routing.routes import (
    Address,
    Route,
    WireMessage,
    decode_message,
    encode_message,
    local,
)

KEY = ChannelKey(b"the node's key".ljust(32, b"."))
LISTENER = (local("SC_listener"),)
HANDSHAKE_SECONDS = 10.0
PAYLOADS = st.binary(max_size=200) | st.binary(min_size=32, max_size=32).map(
    lambda key: data(key) + b"\0"
)
IDLE_SECONDS = 600.0


class Echo(Worker):
    """Sends payloads back; notes where they came from, and what its connection knows then."""

    def __init__(self, core: Core, origins: list[Origin], unhandled: list[int]) -> None:
        self._core = core
        self._origins = origins
        self._unhandled = unhandled

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            self._origins.append(message.origin)
            self._unhandled.append(message.tracked.unhandled if message.tracked else 0)
            answers = [(wire.return_route, wire.payload) for wire in message.messages]
            self._core.router.reply(message.origin, b"echo", answers)


class House:
    """A core with a channel listener and an echo worker."""

    def __init__(self, core: Core, **limits: Any) -> None:
        self.core = core
        self.origins: list[Origin] = []
        self.unhandled: list[int] = []
        values: dict[str, Any] = {
            "allow": frozenset(),
            "handshake_seconds": HANDSHAKE_SECONDS,
            "idle_seconds": IDLE_SECONDS,
            "channels_max": 100,
            "channels_per_connection_max": 10,
        }
        self.context = ChannelContext(
            system=core.system,
            router=core.router,
            access=core.access,
            entropy=core.context.entropy,
            key=KEY,
            **values | limits,
        )
        listener = core.system.spawn(partial(ChannelListener, self.context))
        for address in ADDRESSES:
            core.router.register(address, listener)
        echo = core.system.spawn(partial(Echo, core, self.origins, self.unhandled))
        core.router.register(b"echo", echo)

    @property
    def counters(self) -> dict[str, int]:
        return dict(self.context.counters)

    @property
    def population(self) -> int:
        return self.core.system.life.population


def with_house(test: Callable[[House], Awaitable[None]], **limits: Any) -> None:
    """Run a test with a house."""

    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        await test(House(Core(system, clock), **limits))

    run(main)


class User:
    """Someone at the other end of a connection who opens a channel."""

    def __init__(self, house: House, level: Name = "2022", peer: Peer | None = None) -> None:
        self.house = house
        self.peer = peer or house.core.peer("anonymous", native_too=False)
        self.end = ChannelPeer(level)
        self.route: Route = ()

    @property
    def back(self) -> Route:
        return (local(b"peer %d" % id(self.peer)), local("me"))

    def send(self, onward: Route, *payloads: bytes) -> None:
        messages = [WireMessage(onward, self.back, payload) for payload in payloads]
        self.house.core.router.route(self.peer.origin, messages)

    async def ask(self, onward: Route, *payloads: bytes) -> list[WireMessage]:
        await self.house.core.settle()
        self.peer.answers.clear()
        self.send(onward, *payloads)
        await self.house.core.settle()
        return list(self.peer.answers)

    async def open(self, extra: bytes = b"\0", listener: Route = LISTENER) -> "User":
        (answer,) = await self.ask(listener, self.end.message_1(extra))
        self.route = answer.return_route
        assert await self.ask(self.route, self.end.message_3(answer.payload, b"mine")) == []
        return self

    def inside(self, onward: str | bytes | Route, payload: bytes) -> bytes:
        """Seal a message for a worker."""
        route = onward if isinstance(onward, tuple) else (local(onward),)
        return self.end.seal(encode_message(route, (local("app"),), payload))

    def opened(self, answers: list[WireMessage]) -> list[WireMessage]:
        return [decode_message(self.end.open(answer.payload), strict=True) for answer in answers]

    async def talk(self, onward: str | bytes | Route, *payloads: bytes) -> list[WireMessage]:
        """Send messages through the channel, and return what came back by then."""
        sealed = [self.inside(onward, payload) for payload in payloads]
        return self.opened(await self.ask(self.route, *sealed))


class FakeLink:
    """A link of 2021 that keeps what is sent."""

    def __init__(self) -> None:
        self.info = LinkInfo(
            principal="anonymous",
            remote="test",
            transport="ockam",
            dialled=False,
            message_bytes_max=U16_MESSAGE_BYTES_MAX,
        )
        self.buffered_bytes = 0
        self.frames: list[bytes] = []
        self.paused = False

    def send(self, messages: Any) -> None:
        self.frames += messages

    def sent(self) -> WireMessage:
        return decode_message(self.frames.pop())

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self, reason: str) -> None:
        pass


def connection(house: House, link: FakeLink) -> ConnectionEvents:
    core = house.core
    context = PeerContext(core.system, core.router, core.store, core.access, core.context.entropy)
    events = ConnectionEvents(context, prefix=b"TCP_H_")
    events.link_opened(link)
    return events


def frame(onward: str | Route, payload: bytes) -> bytes:
    route: tuple[Address, ...] = onward if isinstance(onward, tuple) else (local(onward),)
    return encode_message(route, (local("me"),), payload)
