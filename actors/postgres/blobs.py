"""Blobs in PostgreSQL: a row with name, size and digest, and the bytes in chunks beside it."""

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rillnode.actors.log.shared.port import Blob, LogLost
from rillnode.actors.postgres.servers import Servers
from rillnode.codecs.errors import StoreError

CHUNK_BYTES: Final = 1_048_576

_NAMED: Final = """
    INSERT INTO {0}.blobs VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE
    SET blob = excluded.blob, size = excluded.size, digest = excluded.digest
"""
_SWEEP: Final = """
    DELETE FROM {0}.chunks WHERE name = $1 AND (blob, number) IN (
        SELECT blob, number FROM {0}.chunks WHERE name = $1
        AND blob NOT IN (SELECT blob FROM {0}.blobs WHERE name = $1) LIMIT 64
    ) RETURNING number
"""


class PostgresBlobs:
    """The `Blobs` beside a `PostgresLog`, which opens and closes the same servers."""

    def __init__(self, servers: Servers) -> None:
        self._schema = servers.options.schema
        self._servers = servers

    async def put(self, name: str, path: Path) -> None:
        """Store a file under a name, whole or not at all; another of that name is replaced."""
        blob, digest, size, number = uuid.uuid4(), hashlib.sha256(), 0, 0
        with path.open("rb") as file:
            answers = 4 + path.stat().st_size // CHUNK_BYTES
            async with self._servers.lend(answers) as connection, connection.transaction():
                while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
                    digest.update(data)
                    chunk = f"INSERT INTO {self._schema}.chunks VALUES ($1, $2, $3, $4)"
                    await connection.execute(chunk, name, blob, number, data)
                    size, number = size + len(data), number + 1
                named = _NAMED.format(self._schema)
                await connection.execute(named, name, blob, size, digest.digest())
        await self._sweep(name)

    async def get(self, name: str, path: Path) -> None:
        """Write a blob to a file that is not there yet."""
        async with self._servers.lend() as connection:
            query = f"SELECT blob, size, digest FROM {self._schema}.blobs WHERE name = $1"
            row = await connection.fetchrow(query, name)
        if row is None:
            raise StoreError("store.unknown", f"there is no blob {name}", retryable=False)
        digest, chunk = hashlib.sha256(), f"SELECT data FROM {self._schema}.chunks WHERE "
        with path.open("xb") as file:
            try:
                for number in range(-(-row["size"] // CHUNK_BYTES)):
                    async with self._servers.lend() as connection:
                        query = chunk + "name = $1 AND blob = $2 AND number = $3"
                        data = await connection.fetchval(query, name, row["blob"], number)
                    if data is None:
                        raise LogLost("the blob was replaced")
                    digest.update(data)
                    await asyncio.to_thread(file.write, data)
                if (file.tell(), digest.digest()) != (row["size"], row["digest"]):
                    text = f"the blob {name} is not what was stored: delete it"
                    raise StoreError("store.corrupt", text, retryable=False)
            except BaseException:
                path.unlink()
                raise

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs whose names begin so, by name."""
        query = "SELECT name, size FROM {0}.blobs WHERE starts_with(name, $1) ORDER BY name"
        return [Blob(*row) for row in await self._servers.ask(query, prefix)]

    async def delete(self, name: str) -> None:
        """Remove a blob; harmless where there is none."""
        await self._servers.ask("DELETE FROM {0}.blobs WHERE name = $1", name)
        await self._sweep(name)

    async def _sweep(self, name: str) -> None:
        """Drop what no blob of this name has, some at a time: one may be larger than a time-out."""
        while await self._servers.ask(_SWEEP, name):
            pass
