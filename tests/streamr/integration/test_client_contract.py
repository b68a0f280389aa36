"""Tests the Streamr client by the public suites for clients."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from rillnode import streamr
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.testing.contract import FollowingClientContract, Place
from streamr_keys_support import rsa_key

KEY = EthereumKey(bytes([1]) * 32)


@dataclass
class Pushing:
    """A client, of which `flush` tells of one loss at a time."""

    client: Client
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def text_of(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class TestStreamr(FollowingClientContract[Pushing]):
    listener = "streamr"
    burst = (64, 65_536)  # each is signed, and flushed by itself
    settings = '[[grant]]\nwho = "eth:*"\nstreams = "*"\nmay = ["create"]\n'

    async def connect(self, place: Place) -> Pushing:
        client = Client(endpoints_of(f"ws://{place.address}"), key=KEY, make_rsa_key=rsa_key)
        try:
            await client.open()
            await client.get_or_create_stream("contract")
        except BaseException:
            await client.close()
            raise
        return Pushing(client)

    async def push(self, client: Pushing, data: bytes) -> None:
        async with client.turn:
            await client.client.publish("contract", json.loads(data))
            await client.client.flush()

    async def read(self, client: Pushing, first: int) -> list[bytes]:
        async with aclosing(client.client.resend("contract", streamr.From(0))) as messages:
            return [text_of(message.content) async for message in messages][first:]

    @asynccontextmanager
    async def follow(self, client: Pushing) -> AsyncGenerator[AsyncIterator[bytes]]:
        subscription = await client.client.subscribe("contract", resend=streamr.From(0))
        async with subscription as messages:
            yield (text_of(message.content) async for message in messages)

    async def close(self, client: Pushing) -> None:
        await client.client.close(timeout_seconds=1.0)
