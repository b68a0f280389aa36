"""Nodes that share a log in memory, for tests of what one of them does and the others bear."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from nodes import node_config
from rillnode.actors.log import Complete, GetRecord, LogStore, OnHealth
from rillnode.actors.log.nodes import NODES
from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers
from rillnode.actors.log.shared.shard import SharedOptions
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.node.config import Config
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.runtime import Node
from rillnode.node.stores import places
from shared_support import memory_view
from store_support import eventually

SECONDS: Final = 60.0

PATIENCE_SECONDS: Final = 5.0
"""What is written at a node that is cut off is refused after it."""


class Log:
    """A log in memory, and the nodes that share it.

    Attributes:
        servers: which keep it.
        faults: of each node's link to them, by the node's name.
    """

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.servers = MemoryServers(os.urandom(16))
        self.faults: dict[str, LogFaults] = {}
        self._directory = directory
        self._stack = stack

    def make(self, name: str, *serve: str, config: Config | None = None) -> Node:
        """A node, not started, that holds what is said; its link to the servers has `faults`."""
        faults = self.faults[name] = LogFaults()
        config = config or node_config(self._directory / name)
        # The engine is in memory all the same.
        store = JetStreamStore(servers=("nats://127.0.0.1:1",), serve=serve)
        config = replace(config, name=name, store=store)
        loop = asyncio.get_running_loop()

        def make_store(complete: Complete, on_health: OnHealth) -> LogStore:
            log = MemoryLog(self.servers, faults)
            return SharedLogStore(
                log,
                log,
                self._directory / name / "views",
                memory_view,
                entropy=os.urandom,
                now_ms=lambda: 0,
                complete=complete,
                on_health=on_health,
                loop=loop,
                options=SharedOptions(
                    shards=4, serve=serve, patience_seconds=PATIENCE_SECONDS, retry_seconds=0.05
                ),
                places=places(),
            )

        return Node(config, make_store=make_store)

    async def node(self, name: str, *serve: str, config: Config | None = None) -> Node:
        """A node that runs, and of which the others know."""
        node = await self._stack.enter_async_context(self.make(name, *serve, config=config))
        await eventually(partial(self.known, node, node))
        return node

    @staticmethod
    async def known(node: Node, other: Node) -> bool:
        """Whether a node knows of another one."""
        found = GetRecord(key=NODES + other.identity)
        store: Any = node._store  # pyright: ignore[reportPrivateUsage]
        shard = store.shards[0]
        await store.shards.ask(0, found)
        assert shard.number == 0
        return found.value is not None


def with_log(test: Callable[[Log], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
            await test(Log(directory, stack))

    asyncio.run(main())
