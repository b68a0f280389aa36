"""Streamr's clients at several nodes of one log, and what was confirmed to them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from mixed_users import LOST, PATIENCE_SECONDS, Push, Users
from node_processes import NodeProcess
from rillnode import streamr
from rillnode.node.streamr.client.endpoints import endpoints_of
from streamr_keys_support import PUBLISHER, rsa_key

GRANT: Final = '[[grant]]\nwho = "eth:*"\nstreams = "*"\nmay = ["create"]\n'
LISTENER: Final = ("streamr", 8890, GRANT)


def prepare(data: Path) -> None:
    """Nothing: nodes need no key for these clients."""


class StreamrUsers(Users):
    """Publish signed messages, and have each be settled."""

    stream = "sensors"

    @asynccontextmanager
    async def _client(self, host: str) -> AsyncGenerator[streamr.Client]:
        endpoints = endpoints_of(f"ws://{host}:8890")
        client = streamr.Client(endpoints, key=PUBLISHER, reconnect=False, make_rsa_key=rsa_key)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.open()
            yield client
        finally:
            with suppress(*LOST):
                await asyncio.wait_for(client.close(), 5.0)

    @asynccontextmanager
    async def connected(self, host: str, who: int) -> AsyncGenerator[Push]:
        async with self._client(host) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.get_or_create_stream(self.stream)

            async def push(text: str) -> None:
                await client.publish(self.stream, text)
                await client.flush()

            yield push

    async def texts_at(self, host: str, node: NodeProcess) -> list[str]:
        async with self._client(host) as client:
            stored = client.resend(self.stream, streamr.From(0))
            return [str(message.content) async for message in stored]


USERS: Final = StreamrUsers
