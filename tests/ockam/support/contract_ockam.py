"""Ockam's clients in the load on simulated nodes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from contract_load import CHANNEL_SECONDS, MANY, NODE, NoOutcome, Part, Round
from rillnode.actors.ockam import bidirectional_consumer, bidirectional_publisher, static_forwarding
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PushConfirm,
    PushRequest,
    Request,
    SaveIndexRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.node.client import Client
from rillnode.node.ockam.client.channel import SecureChannel

GONE_SECONDS: Final = 6.0
"""How long a subscriber stays away, while what is for it waits."""
AWAY_SECONDS: Final = 30.0
"""How long aliases and subscriptions wait for whose they are here, instead of an hour."""
SUBSCRIBING: Final = parse_route("stream_subscribe")


class Ockam(Round):
    """Speaks Ockam's stream protocols, as its workers do."""

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            await self._talk(client)
        finally:
            await self.ask("close", client.close())

    async def _told(
        self, client: Client, route: Route | str, request: Request
    ) -> tuple[object, Route]:
        answer = await client.ask(route, encode_request(request), timeout_seconds=5.0)
        return decode_response(answer.payload), answer.return_route

    async def _talk(self, client: Client) -> None:
        made = await self.once("create", self._told(client, "stream", CreateRequest("ockam")))
        if made is None or isinstance(made[0], ErrorResponse):
            return
        assert isinstance(made[0], CreateResponse)
        data = b"ockam %d" % self.number
        pushed = await self.once(
            "push", self._told(client, made[1], PushRequest(self.number, data))
        )
        if pushed is not None and isinstance(pushed[0], PushConfirm):
            if pushed[0].status is Status.OK:
                self.confirmed.append(data)
            else:
                assert not self.strict
        await self.once("pull", self._told(client, made[1], PullRequest(1, 0, 10)))
        save = SaveIndexRequest("o", "ockam", self.number)
        await self.once("save", client.send("stream_index", encode_request(save)))
        await self._index(client)

    async def _index(self, client: Client) -> None:
        found = await self.once(
            "load", self._told(client, "stream_index", GetIndexRequest("o", "ockam"))
        )
        if found is not None and isinstance(found[0], IndexResponse):
            self.saved(found[0].index or 0)

    async def check(self) -> None:
        async with await self.network.client(NODE) as client:
            found = [bytes(one.data) for one in await (await client.stream("ockam")).pull(0, 1_000)]
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"
            await self._index(client)


class Channel(Round):
    """Opens a secure channel, uses it, and leaves it alone until it is closed."""

    lossy = True

    async def talk(self) -> None:
        client = await self.ask("connect", self.network.client(NODE))
        try:
            opening = SecureChannel.open(client, "SC_listener", timeout_seconds=5.0)
            channel = await self.ask("open", opening)
            await self.once("echo", channel.ask("echo", b"sealed", timeout_seconds=5.0))
            await asyncio.sleep(3 * CHANNEL_SECONDS)
            await channel.close()
        finally:
            await self.ask("close", client.close())

    async def check(self) -> None:
        pass  # nothing is kept of it


class Hub(Round):
    """Has what is sent to aliases come, and talks to a service over streams of both directions.

    It goes while something is on its way to it, and comes back over another link.
    """

    lossy = True

    async def talk(self) -> None:
        async with self._channel() as (client, channel):
            await self._talk(channel)
            await self.once("echo", client.ask("echo", b"all is sent", timeout_seconds=5.0))
        await asyncio.sleep(GONE_SECONDS)
        async with self._channel() as (client, channel):
            await self._come_back(channel)
            for stream in self._streams():  # others end when their subscriber has been away
                await self.once("remove", client.remove(stream))

    @asynccontextmanager
    async def _channel(self) -> AsyncGenerator[tuple[Client, SecureChannel]]:
        """A channel of the same peer over a new link."""
        client = await self.ask("connect", self.network.client(NODE))
        try:
            key = ChannelKey(b"%032d" % self.number)
            opening = SecureChannel.open(client, "SC_listener", key=key, timeout_seconds=5.0)
            channel = await self.ask("open", opening)
            yield client, channel
            await channel.close()
        finally:
            await self.ask("close", client.close())

    def _streams(self, kind: str = "") -> tuple[str, str]:
        return f"{kind}there-{self.number}", f"{kind}here-{self.number}"

    async def _talk(self, channel: SecureChannel) -> None:
        told = _Told(channel)
        for service, onward in (("forwarding_service", ""), ("tracing_service", "echo")):
            made = await self._comes(told.of(parse_route(service), b"hello"))
            if made is not None:
                await self._comes(told.of(made.return_route + parse_route(onward), b"hello"))
        publisher = await self._go_around(told, *self._streams())
        if publisher is not None:
            for nth in range(MANY):  # nobody takes it: it is handed on at once, turn by turn
                told.send(publisher + parse_route("nobody"), b"many %d" % nth)
            told.send(publisher + parse_route("echo"), b"late")

    async def _come_back(self, channel: SecureChannel) -> None:
        """Subscribe again, and to others while the store takes no writes for a moment."""
        told = _Told(channel)
        for stream in self._streams():
            told.send(SUBSCRIBING, encode_request(BidirectionalRequest(stream, "foo")))
        await self.once("echo", channel.ask("echo", b"again", timeout_seconds=5.0))
        self.disk.faults.failing_syncs = 1
        await self._go_around(told, *self._streams("late"))

    async def _go_around(self, told: "_Told", there: str, here: str) -> Route | None:
        """Have a service answer over two streams; the way to the publisher."""
        request = BidirectionalPublisherRequest(there, here, "")
        made = await self._comes(told.of(SUBSCRIBING, encode_request(request)))
        for stream in (there, here):
            told.send(SUBSCRIBING, encode_request(BidirectionalRequest(stream, "foo")))
        if made is not None:
            await self._comes(told.of(made.return_route + parse_route("echo"), b"around"))
        return None if made is None else made.return_route

    async def _comes(self, coming: Awaitable[WireMessage]) -> WireMessage | None:
        """What comes; None: nothing does, as where it was lost."""
        try:
            return await asyncio.wait_for(coming, 3.0)
        except TimeoutError:
            if self.strict:
                raise NoOutcome("what was sent to an alias has not come") from None
            return None

    async def check(self) -> None:
        pass  # of aliases nothing is kept; subscriptions wait for their subscriber for some time


class _Told:
    """What is sent through a channel, and what comes of it."""

    def __init__(self, channel: SecureChannel) -> None:
        self._messages = channel.messages
        self._came: asyncio.Queue[WireMessage] = asyncio.Queue()
        self._back: Route = (local(self._messages.attach(self._came.put_nowait)),)

    def send(self, route: Route, payload: bytes) -> None:
        """Send, and wait for nothing."""
        self._messages.send(route, payload, self._back)

    def of(self, route: Route, payload: bytes) -> Awaitable[WireMessage]:
        """Send; the next that comes."""
        while not self._came.empty():
            self._came.get_nowait()  # copies of what was traced
        self.send(route, payload)
        return self._came.get()


class OckamPart(Part):
    """Clients of a hub; the load's own nodes have what they need."""

    rounds = (Ockam, Channel, Hub)

    def quicken(self, patch: pytest.MonkeyPatch) -> None:
        for module in (bidirectional_consumer, bidirectional_publisher):
            patch.setattr(module, "STREAM_SUBSCRIBER_AWAY_SECONDS_MAX", AWAY_SECONDS)
        patch.setattr(static_forwarding, "ALIAS_KEPT_SECONDS", AWAY_SECONDS)


PART: Final = OckamPart()
