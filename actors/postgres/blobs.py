"""Blobs in PostgreSQL: rows of chunks, the last of which is a short one."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rillnode.actors.log.shared.port import Blob
from rillnode.actors.postgres.servers import Servers
from rillnode.codecs.errors import StoreError

CHUNK_BYTES: Final = 1_048_576

_DELETE: Final = "DELETE FROM {0}.blobs WHERE name = $1"
_CHUNK: Final = "INSERT INTO {0}.blobs VALUES ($1, $2, $3, $4)"
_LOAD: Final = "SELECT digest, data FROM {0}.blobs WHERE name = $1 ORDER BY number"
_LIST: Final = """SELECT name, sum(octet_length(data)) FROM {0}.blobs
    WHERE starts_with(name, $1) GROUP BY name ORDER BY name"""


class PostgresBlobs:
    """The `Blobs` beside a `PostgresLog`, which opens and closes the same servers.

    The digest of a chunk is that of all up to it.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._schema = servers.options.schema

    async def put(self, name: str, path: Path) -> None:
        """Store a file under a name, whole or not at all; another of that name is replaced."""
        answers, digest = 5 + path.stat().st_size // CHUNK_BYTES, hashlib.sha256()
        number, data = 0, bytes(CHUNK_BYTES)
        with path.open("rb") as file:
            async with self._servers.lend(answers) as connection, connection.transaction():
                await connection.execute(_DELETE.format(self._schema), name)
                while len(data) == CHUNK_BYTES:
                    data = await asyncio.to_thread(file.read, CHUNK_BYTES)
                    digest.update(data)
                    chunk = name, number, digest.digest(), data
                    await connection.execute(_CHUNK.format(self._schema), *chunk)
                    number += 1

    async def get(self, name: str, path: Path) -> None:
        """Write a blob to a file that is not there yet."""
        sizes = {blob.name: blob.size for blob in await self.list(name)}
        answers, digest = 5 + sizes.get(name, 0) // CHUNK_BYTES, hashlib.sha256()
        is_whole: bool | None = None
        with path.open("xb") as file:
            try:
                async with self._servers.lend(answers) as connection, connection.transaction():
                    query = _LOAD.format(self._schema)
                    async for wanted, data in connection.cursor(query, name, prefetch=1):
                        digest.update(data)
                        is_whole = digest.digest() == wanted and len(data) < CHUNK_BYTES
                        await asyncio.to_thread(file.write, data)
                if is_whole is None:
                    raise StoreError("store.unknown", f"there is no blob {name}", retryable=False)
                if not is_whole:
                    text = f"the blob {name} is not what was stored: delete it"
                    raise StoreError("store.corrupt", text, retryable=False)
            except BaseException:
                path.unlink()
                raise

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs whose names begin so, by name."""
        return [Blob(*row) for row in await self._servers.ask(_LIST, prefix)]

    async def delete(self, name: str) -> None:
        """Remove a blob; harmless where there is none."""
        await self._servers.ask(_DELETE, name)
