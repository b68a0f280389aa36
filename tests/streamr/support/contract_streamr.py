"""Streamr's clients in the load on simulated nodes."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import aiohttp
import pytest

from contract_load import LEFT_SECONDS, NODE, OUTCOME_SECONDS, Part, Round
from rillnode import streamr
from rillnode.actors.streamr.relay import SLICE_SIGNED
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.streamr.key_requests import REQUESTS_MAX, RETRY_MS
from rillnode.node.config import GrantTable, PlugInTable
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.rest import Rest
from rillnode.node.streamr.config import StreamrListener
from streamr_keys_support import PUBLISHER, SUBSCRIBER, rsa_key

EXCHANGED_SECONDS: Final = 1.5
"""Virtual time in which a key was asked for, as clients do after a second, and given."""
LARGE_TEXT_CHARACTERS: Final = LINK_BUFFER_HIGH_BYTES // 3
"""Of an encrypted message: three of them are more than a link is to hold."""
KEY_SECONDS: Final = OUTCOME_SECONDS + RETRY_MS * 2**REQUESTS_MAX / 1_000
"""How long it may take to give up messages whose key does not come."""
GRANTED: Final = "0x" + "22" * 20


def streamr_url(node: str) -> str:
    """Where a node's Streamr clients come to."""
    return f"ws://{node}:8890"


class Streamr(Round):
    """Publishes, follows, has resent what is stored, and gives another its key for a while."""

    async def _open(self, node: str, key: streamr.EthereumKey = PUBLISHER) -> streamr.Client:
        client = streamr.Client(endpoints_of(streamr_url(node)), key=key, make_rsa_key=rsa_key)
        await self.ask("connect", client.open())
        return client

    async def talk(self) -> None:
        client = await self._open(NODE)
        try:
            await self._talk(client)
            await self._share(client)
        finally:
            await self.ask("close", client.close())
        async with aiohttp.ClientSession() as http:
            await self._call(http)

    async def _talk(self, client: streamr.Client) -> None:
        await self.ask("create", client.get_or_create_stream("sensors"))
        following = await self.once("subscribe", client.subscribe("sensors"))
        text = f"streamr {self.number}"
        if await self._published(client, "sensors", text):
            self.confirmed.append(text)
        if self.strict:
            assert following is not None
            await self.ask("follow", anext(following))
        if self.much:
            async with await self.ask("connect", self.network.client(NODE)) as native:
                pushed = await self.ask("open", native.stream("sensors"))
                # More than the node signs in one turn.
                await self.once("push", pushed.push_many([b"1"] * (SLICE_SIGNED + 1)))
        await self.once("resend", self._stored(client))
        await self.once("grant", client.grant("sensors", "subscribe", user=GRANTED))
        await self.once("permissions", client.permissions("sensors"))
        await self.once("revoke", client.revoke("sensors", "subscribe", user=GRANTED))
        await self.once("describe", client.get_stream("sensors"))
        with pytest.raises(RillnodeError):
            await self.ask("be refused", client.subscribe("sensors", partition=7))
        if following is not None:
            await self.once("unsubscribe", following.close())

    async def _published(self, client: streamr.Client, stream: str, text: str) -> bool:
        async def publish() -> bool:
            await client.publish(stream, text)
            await client.flush()
            return True

        return bool(await self.once("publish", publish()))

    async def _share(self, client: streamr.Client) -> None:
        """Encrypt for another, who may not follow any more then; the stream is removed."""
        stream = f"secret-{self.number}"
        await self.ask("create", client.create_stream(stream))
        await self.once("encrypt", client.encrypt(stream))
        await self.once("grant", client.grant(stream, "subscribe", user=SUBSCRIBER.address))
        own = await self.once("subscribe", client.subscribe(stream))
        other = await self._open(NODE, SUBSCRIBER)
        try:
            following = await self.once("subscribe", other.subscribe(stream))
            first = asyncio.ensure_future(_next(following))
            await self._published(client, stream, "secret")
            await asyncio.sleep(EXCHANGED_SECONDS)
            if self.strict:
                assert (await self.ask("follow", first)).content == "secret"
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            for _ in range(3 if self.much else 0):
                await self._published(client, stream, "s" * LARGE_TEXT_CHARACTERS)
                if self.strict:
                    await self.ask("follow", _next(following))
            revoking = client.revoke(stream, "subscribe", user=SUBSCRIBER.address)
            await asyncio.gather(
                self.either("resend", self._stored(other, stream), KEY_SECONDS),
                self.once("revoke", revoking),
            )
            if self.strict:
                with pytest.raises(RillnodeError):
                    await self.ask("be told", _next(following))
        finally:
            await self.ask("close", other.close())
        async with await self.ask("connect", self.network.client(NODE)) as native:
            await self.once("remove", native.remove(stream))
        if own is not None:
            await self.once("unsubscribe", own.close())
        await asyncio.sleep(LEFT_SECONDS)

    async def _call(self, http: aiohttp.ClientSession) -> None:
        """Ask over REST alone."""
        url = endpoints_of(streamr_url(NODE)).rest
        login = Login(http, url, key=PUBLISHER)
        rest = Rest(http, url, login.token)
        await self.once("list", rest.get("/streams", query={"public": "true"}))
        await self.once("publishers", rest.get("/streams/sensors/publishers"))
        await self.once("log out", rest.post("/logout", {}))

    async def _stored(self, client: streamr.Client, stream: str = "sensors") -> list[object]:
        return [one.content async for one in client.resend(stream, streamr.From(0))]

    async def check(self) -> None:
        async with await self._open(self.second) as client:
            assert set(self.confirmed) <= set(await self._stored(client)), "a message is lost"


async def _next(following: streamr.Subscription | None) -> streamr.Message:
    assert following is not None
    return await anext(following)


class StreamrPart(Part):
    """Clients of a node's broker, and the broker."""

    rounds = (Streamr,)
    of_shared_logs = True
    grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)

    def tables(self, node: str, rounds: Sequence[type[Round]]) -> Sequence[PlugInTable]:
        return (StreamrListener(),)

    async def use(self, one: Round, node: str, stack: AsyncExitStack) -> None:
        endpoints = endpoints_of(streamr_url(node))
        client = streamr.Client(endpoints, key=PUBLISHER, make_rsa_key=rsa_key)
        stack.push_async_callback(client.close)
        await one.ask("connect", client.open())

    async def act_unheard(self, one: Round) -> None:
        """Log out."""
        async with aiohttp.ClientSession() as http:
            url = endpoints_of(streamr_url(NODE)).rest
            login = Login(http, url, key=PUBLISHER)
            await one.once("log out", Rest(http, url, login.token).post("/logout", {}))


PART: Final = StreamrPart()
