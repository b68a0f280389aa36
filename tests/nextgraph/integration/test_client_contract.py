"""Tests the NextGraph client by the public suites for clients: a document is the stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit, identity
from rillnode import nextgraph
from rillnode.codecs.errors import RequestError
from rillnode.node.keys.files import write_key
from rillnode.testing.contract import ClientContract, ClientSite, Place

BROKER = identity("broker")


class Writing:
    """A client that writes commits one after the other: each comes after the one before it."""

    def __init__(self, client: nextgraph.Client) -> None:
        self.client = client
        self.heads: list[bytes] = []
        self.turn = asyncio.Lock()

    async def begin(self) -> None:
        (topic,) = await self.client.pin(REPO, ACCESS, publish=[TOPIC])
        self.heads = topic.known_heads

    async def write(self, data: bytes) -> None:
        async with self.turn:
            made = commit(data, self.heads or None)
            await self.client.publish(INNER, TOPIC, BRANCH, made)
            self.heads = [made.reference.id]


class TestNextgraph(ClientContract[Writing]):
    """It makes no lost connection again, and so cannot follow over one."""

    listener = "nextgraph"
    settings = 'registration = "open"\n'
    reconnects = False

    @asynccontextmanager
    async def site(self, directory: Path) -> AsyncGenerator[ClientSite]:
        write_key(directory / "data" / "nextgraph.key", BROKER)
        async with super().site(directory) as site:
            yield site

    async def connect(self, place: Place) -> Writing:
        url = f"ws://{place.address}"
        client = await nextgraph.connect(url, broker=BROKER.public_key, user=ALICE)
        try:
            writing = Writing(client)
            await writing.begin()
        except BaseException:
            await client.close()
            raise
        return writing

    async def push(self, client: Writing, data: bytes) -> None:
        await client.write(data)

    async def read(self, client: Writing, first: int) -> list[bytes]:
        return [data async for data in stored(client.client)][first:]

    async def close(self, client: Writing) -> None:
        await client.client.close()


async def stored(client: nextgraph.Client) -> AsyncIterator[bytes]:
    try:
        async for event in client.sync(INNER, TOPIC.public_key):
            yield nextgraph.open_event(event, BRANCH).body
    except RequestError as error:
        if error.code != "nextgraph.topic_not_found":  # nothing was ever written
            raise
