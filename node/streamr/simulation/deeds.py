"""Lets one of Streamr's clients do once what it does beside its node's stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import aiohttp

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, StreamMessage
from rillnode.node.simulated.history import History, log_of
from rillnode.node.simulated.nodes import CLOSED_STREAM
from rillnode.node.streamr.client import Client as Streamr
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.wire import Wire, open_wire
from rillnode.node.streamr.simulation.messages import MADE_PREFIX, STREAMR_PORT

ANSWER_SECONDS: Final = 5.0

QUIET_SECONDS: Final = 1.0
"""How long it is listened for what must not come."""

REFUSALS: Final = ("PERMISSION_DENIED", "NOT_FOUND")

Deed = Callable[[], Awaitable[None]]


class StreamrDeeds:
    """Makes a stream that everybody may read, reads it by REST, tries what is forbidden.

    Args:
        streamr: the client.
        key: with which it signs.
        node: the name of its node.
        life: what it is called in this life.
        history: of the run.
    """

    def __init__(
        self, streamr: Streamr, key: EthereumKey, node: str, life: str, history: History
    ) -> None:
        self._streamr = streamr
        self._key = key
        self._node = node
        self._life = life
        self._history = history
        self._endpoints = endpoints_of(f"ws://{node}:{STREAMR_PORT}")
        self._own = f"{MADE_PREFIX}{life}"
        self._deeds: list[Deed] = [self._intrude, self._forge, self._make, self._leave]

    async def do_next(self) -> bool:
        """Do the next thing; whether there is another one. What fails is not tried again."""
        deed = self._deeds.pop(0)
        try:
            async with asyncio.timeout(10 * ANSWER_SECONDS):
                await deed()
        except (RillnodeError, TimeoutError, aiohttp.ClientError, OSError) as error:
            code = error.code if isinstance(error, RillnodeError) else type(error).__name__
            self._history.note(self._life, "not done", code)
        return bool(self._deeds)

    async def _intrude(self) -> None:
        """Follow what nobody may know of."""
        try:
            await self._streamr.subscribe(CLOSED_STREAM)
        except RequestError as error:
            if error.code in REFUSALS:
                return
            raise
        text = f"{self._life} follows {CLOSED_STREAM} of {self._node}"
        self._history.broken("grant-ignored", text)

    async def _forge(self) -> None:
        """Publish a message that was changed after it was signed."""
        address = self._key.address.lower()
        name = MessageId(log_of(self._node), 0, 1, 0, address, "forged")
        message = sign_message(StreamMessage(id=name, content='{"forged":0}'), self._key)
        changed = StreamMessage(
            id=name,
            content='{"forged":1}',
            signature_type=message.signature_type,
            signature=message.signature,
        )
        async with aiohttp.ClientSession() as http:
            wire = await open_wire(http, self._endpoints.websocket)
            try:
                await wire.send(PublishRequest(message=changed, request_id="forged"))
                await self._wait_for(wire, ErrorResponse)
            finally:
                await wire.close()

    async def _make(self) -> None:
        """Make a stream, let everybody read it, publish to it, and read it as anybody."""
        streamr, own = self._streamr, self._own
        made = await streamr.create_stream(own, require_signed=True)
        await streamr.grant(own, "get", "subscribe", user=None)
        told = await streamr.get_stream(own)
        if told.id != own or told.partitions != made.partitions or not told.require_signed_data:
            self._history.broken("stream-changed", f"{self._life} made {made}, and is told {told}")
        names = [await streamr.publish(own, {"number": number}) for number in range(2)]
        await streamr.flush()
        url = f"{self._endpoints.rest}/streams/{quote(own, safe='')}/data/partitions/0/last"
        async with (
            aiohttp.ClientSession() as http,
            http.get(url, params={"count": "9"}) as answer,
        ):
            if answer.status != 200:
                raise TransportError("client.answer", f"{url}: status {answer.status}")
            found = await answer.json()
        numbers = [one["content"]["number"] for one in found]
        if numbers != list(range(len(names))):
            text = f"{self._life} published 0 and 1 to {own}, and reads {numbers}"
            self._history.broken("resend-gap", text)

    async def _leave(self) -> None:
        """Follow that stream as anybody, leave it, and listen whether anything follows."""
        own = self._own
        async with aiohttp.ClientSession() as http:
            wire = await open_wire(http, self._endpoints.websocket)
            try:
                await wire.send(SubscribeRequest(stream_id=own, partition=0, request_id="1"))
                await self._wait_for(wire, SubscribeResponse)
                await self._streamr.publish(own, {"number": 2})
                await self._wait_for(wire, BroadcastMessage)
                await wire.send(UnsubscribeRequest(stream_id=own, partition=0, request_id="2"))
                await self._wait_for(wire, UnsubscribeResponse)
                await self._streamr.publish(own, {"number": 3})
                await self._streamr.flush()
                await self._hear_nothing(wire)
            finally:
                await wire.close()

    async def _hear_nothing(self, wire: Wire) -> None:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                while True:
                    message = await wire.receive()
                    if isinstance(message, BroadcastMessage):
                        text = (
                            f"{self._life} has left {self._own}, and is sent {message.message.id}"
                        )
                        self._history.broken("unsubscribed-served", text)
        except TimeoutError:
            return

    async def _wait_for(self, wire: Wire, kind: type[ControlMessage]) -> None:
        """Wait for an answer.

        Raises:
            TransportError: another one has come.
            TimeoutError: none has come.
        """
        async with asyncio.timeout(ANSWER_SECONDS):
            message = await wire.receive()
        if not isinstance(message, kind):
            text = f"the node has sent {type(message).__name__} in place of {kind.__name__}"
            raise TransportError("client.answer", text)
