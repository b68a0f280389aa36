"""Drives shared stores for tests: what `EngineDriver` takes."""

import asyncio
from pathlib import Path
from typing import Any

from nats_support import NatsServer
from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.memory_view import MemoryView
from rillnode.actors.log.shared.port import Blobs, SharedLog
from rillnode.actors.log.shared.shard import View
from rillnode.node.stores import places
from rillnode.node.testing.contract.stores.on_engine import EngineDriver


class JetStreamDriver(EngineDriver):
    """Drives a store on NATS JetStream.

    Args:
        server: where it is.
        prefix: of its streams; others of the same have the same logs.
        directory: of its views.
        shards: how many are made.
    """

    def __init__(
        self, server: NatsServer, prefix: str, directory: Path, *, shards: int = 4
    ) -> None:
        self.server = server
        options = JetStreamOptions(
            servers=(server.url,), monitors=(server.monitor,), prefix=prefix, replicas=1
        )

        def client() -> tuple[SharedLog, Blobs]:
            log = JetStreamLog(options)
            return log, JetStreamBlobs(log)

        super().__init__(client, directory, places=places(), shards=shards)


def memory_view(path: Path, identity: bytes, shard: int, shards: int, **calls: Any) -> View:
    del identity
    loop = asyncio.get_running_loop()
    return MemoryView(path, shard, shards, post=loop.call_soon_threadsafe, **calls)
