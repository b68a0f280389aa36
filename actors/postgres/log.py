"""The shared log on PostgreSQL.

A row for each shard has its last sequence. Who appends locks that row until its transaction is
committed: so sequences are dense, and nobody sees one before those below it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from rillnode.actors.log.shared.port import Frame, Heard, LogLost, Opened, Span
from rillnode.actors.postgres.servers import Servers, incomplete
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

_NEWS_SECONDS: Final = 0.1
"""How often it is asked what others have stored: NOTIFY would tell sooner, and lets all commits
that have news wait for one another."""

_DROP_FRAMES: Final = 512
"""Dropped by one statement, which is to end in the time of an answer."""

_APPEND: Final = """WITH shard AS (
        UPDATE {0}.shards SET last = last + 1 WHERE shard = $1 RETURNING last)
    INSERT INTO {0}.frames SELECT $1, last, $2 FROM shard RETURNING sequence"""

# The range is a short one for whatever way the server takes to read it.
_READ: Final = """SELECT sequence, data FROM (
        SELECT sequence, data, row_number() OVER read AS place,
            sum(octet_length(data)) OVER read AS total
        FROM {0}.frames, greatest(
            $2::bigint + 1, (SELECT first FROM {0}.shards WHERE shard = $1)) AS start
        WHERE shard = $1 AND sequence >= start AND sequence < start + 1024
        WINDOW read AS (ORDER BY sequence)
    ) AS page WHERE place = 1 OR total <= $3 ORDER BY sequence"""

_TRIM: Final = """UPDATE {0}.shards SET first = greatest(first, least($2, last + 1))
    WHERE shard = $1
    RETURNING first, (SELECT min(sequence) FROM {0}.frames WHERE shard = $1)"""

_DROP: Final = "DELETE FROM {0}.frames WHERE shard = $1 AND sequence >= $2 AND sequence < $3"
_SPAN: Final = "SELECT first, last FROM {0}.shards WHERE shard = $1"
_ENDS: Final = "SELECT shard, last FROM {0}.shards"


class PostgresLog:
    """A `SharedLog`, whose docstrings say what holds here, too; sequences are dense."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._options = servers.options
        self._heard: Heard
        self._telling: asyncio.Task[None] | None = None
        self._down: Exception | None = LogLost("it is not open")
        self._appending: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame; a larger one is `store.too_large`."""
        return self._options.frame_bytes_max

    async def open(self, shards: int, heard: Heard) -> Opened:
        """Connect, and make the tables where there are none at all."""
        self._heard, opened = heard, await self._servers.open(shards)
        self._down = None
        self._telling = asyncio.create_task(self._tell())
        return opened

    async def close(self) -> None:
        """Let go."""
        self._servers.close()
        self._down = LogLost("it is closed")
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def append(self, shard: int, data: bytes) -> int:
        """Store a frame, after those of its shard that were given before."""
        if len(data) > self.frame_bytes_max:
            text = f"a frame of {len(data)} bytes is over the limit of {self.frame_bytes_max}"
            raise StoreError("store.too_large", text, retryable=False)
        async with self._appending[shard]:
            (sequence,) = await self._row(_APPEND, shard, data)
        return int(sequence)

    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        """The frames after a sequence, in order."""
        return [Frame(*row) for row in await self._servers.ask(_READ, shard, after, bytes_max)]

    async def span(self, shard: int) -> Span:
        """What is kept."""
        return Span(*await self._row(_SPAN, shard))

    async def trim(self, shard: int, before: int) -> None:
        """Drop the frames before a sequence: for readers at once, on the disk bit by bit."""
        first, oldest = await self._row(_TRIM, shard, before)
        for low in range(first if oldest is None else oldest, first, _DROP_FRAMES):
            await self._servers.ask(_DROP, shard, low, min(low + _DROP_FRAMES, first))

    def describe(self) -> Mapping[str, Any]:
        """The engine's state for people."""
        options = self._options
        return {
            "engine": "postgres",
            "servers": [urlsplit(url).netloc.rpartition("@")[2] for url in options.urls],
            "schema": options.schema,
            "connected": self._down is None,
            "unsynced": "" if options.sync == "always" else "it is not asked whether they sync",
            "reason": str(self._down or ""),
        }

    async def _row(self, query: str, shard: int, *arguments: object) -> Any:
        """The one row of a query about a shard."""
        for row in await self._servers.ask(query, shard, *arguments):
            return row
        raise incomplete(f"there is no shard {shard}")

    async def _tell(self) -> None:
        """Tell where all shards end, as long as somebody answers."""
        while True:
            try:
                for shard, last in await self._servers.ask(_ENDS):
                    self._heard(shard, last)
                self._down = None
            except (LogLost, StoreError) as error:
                if self._down is None:
                    logger.warning("store_connection_lost", extra={"reason": str(error)})
                self._down = error
            await asyncio.sleep(_NEWS_SECONDS)
