"""The engine on NATS JetStream, on one server."""

import asyncio
import base64
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import nats

from nats_support import NatsServer
from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions


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
        client = await nats.connect(self._server.url)
        js = client.jetstream()
        (bucket,) = [
            found.config.name
            for found in await js.streams_info()
            if (found.config.name or "").startswith(f"OBJ_{self._prefix}-")
        ]
        assert bucket is not None
        subject = f"$O.{bucket[4:]}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
        meta = await js.get_last_msg(bucket, subject)
        nuid = (meta.data or b"").partition(b'"nuid":"')[2].partition(b'"')[0].decode()
        info = await js.stream_info(bucket)
        for sequence in range(1, info.state.last_seq + 1):
            chunk = await js.get_msg(bucket, sequence)
            if chunk.subject == f"$O.{bucket[4:]}.C.{nuid}":
                await js.delete_msg(bucket, sequence)
                data = chunk.data or b""
                await js.publish(chunk.subject, bytes([data[0] ^ 1]) + data[1:])
                break
        await client.close()

    @contextmanager
    def stalled(self) -> Generator[None]:
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()


@contextmanager
def start(directory: Path) -> Generator[JetStreamSite]:
    """A server within the block."""
    server = NatsServer(directory)
    server.start()
    try:
        yield JetStreamSite(server)
    finally:
        server.kill()
