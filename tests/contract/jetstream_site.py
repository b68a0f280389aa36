"""The engine on NATS JetStream, on one server."""

import asyncio
import base64
import json
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from nats_support import NatsServer
from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions


class _Found(msgspec.Struct):
    message: dict[str, Any]


class JetStreamSite:
    """One server; logs that are made again have another prefix."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._numbers = count()
        self._prefix = ""

    def make(self) -> tuple[JetStreamLog, JetStreamBlobs]:
        self._prefix = f"p{next(self._numbers)}"
        return self.again()

    def again(self) -> tuple[JetStreamLog, JetStreamBlobs]:
        log = JetStreamLog(
            JetStreamOptions(
                servers=(self._server.url,),
                monitors=(self._server.monitor,),
                prefix=self._prefix,
                replicas=1,
            )
        )
        return log, JetStreamBlobs(log)

    def damage(self, name: str) -> None:
        asyncio.run(self._damage(name))

    async def _damage(self, name: str) -> None:
        """Put other bytes in the place of the first chunk, behind all others."""
        log, _ = self.again()
        made = await log.open(1, lambda shard, sequence: None)
        call = log.connection.call
        bucket = f"{self._prefix}-{made.identity.hex()[:16]}"
        encoded = base64.urlsafe_b64encode(name.encode()).decode()
        get, wanted = f"STREAM.MSG.GET.OBJ_{bucket}", {"last_by_subj": f"$O.{bucket}.M.{encoded}"}
        meta = json.loads(base64.b64decode((await call(get, wanted, _Found)).message["data"]))
        wanted = {"next_by_subj": f"$O.{bucket}.C.{meta['nuid']}"}
        chunk = (await call(get, wanted, _Found)).message
        await call(f"STREAM.MSG.DELETE.OBJ_{bucket}", {"seq": chunk["seq"]}, dict[str, Any])
        data = base64.b64decode(chunk["data"])
        await log.connection.append(chunk["subject"].encode(), bytes([data[0] ^ 1]) + data[1:])
        await log.close()

    @contextmanager
    def stalled(self) -> Generator[None]:
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()

    def crash(self) -> None:
        self._server.kill()
        self._server.start()


@contextmanager
def start(directory: Path) -> Generator[JetStreamSite]:
    """A server within the block."""
    server = NatsServer(directory)
    server.start()
    try:
        yield JetStreamSite(server)
    finally:
        server.kill()
