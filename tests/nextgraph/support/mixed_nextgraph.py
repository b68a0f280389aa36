"""NextGraph's clients at several nodes of one log, and what was confirmed to them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from mixed_users import LOST, PATIENCE_SECONDS, Push, Users
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit, identity
from node_processes import NodeProcess
from rillnode import nextgraph
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.node.keys.files import write_key

BROKER: Final = identity("broker")
"""All nodes are one broker to these clients."""

LISTENER: Final = ("nextgraph", 1440, 'registration = "open"\n')


def prepare(data: Path) -> None:
    """Give a node, before it starts, the key of the one broker."""
    write_key(data / "nextgraph.key", BROKER)


class NextgraphUsers(Users):
    """Publish commits to one topic, each producer's after the one before."""

    stream = topic_stream(INNER.id, TOPIC.public_key)

    def __init__(self, nodes: Sequence[NodeProcess], hosts: Sequence[str]) -> None:
        super().__init__(nodes, hosts)
        self._last: dict[int, list[bytes]] = {}
        self._texts: dict[bytes, str] = {}

    def copies_max(self, text: str) -> int:
        """Once, however often it was tried."""
        return 1

    @asynccontextmanager
    async def _client(self, host: str) -> AsyncGenerator[nextgraph.Client]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            client = await nextgraph.connect(
                f"ws://{host}:1440", broker=BROKER.public_key, user=ALICE
            )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.pin(REPO, ACCESS, publish=[TOPIC])
            yield client
        finally:
            with suppress(*LOST):
                await asyncio.wait_for(client.close(), 5.0)

    @asynccontextmanager
    async def connected(self, host: str, who: int) -> AsyncGenerator[Push]:
        async with self._client(host) as client:

            async def push(text: str) -> None:
                made = commit(text.encode(), self._last.get(who))
                self._texts[made.reference.id] = text
                await client.publish(INNER, TOPIC, BRANCH, made)
                self._last[who] = [made.reference.id]

            yield push

    async def texts_at(self, host: str, node: NodeProcess) -> list[str]:
        async with self._client(host) as client:
            events = client.sync(INNER, TOPIC.public_key)
            ids = [nextgraph.open_event(event, BRANCH).reference.id async for event in events]
            return [self._texts.get(one, f"unknown {one.hex()}") for one in ids]


USERS: Final = NextgraphUsers
