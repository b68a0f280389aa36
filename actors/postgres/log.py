"""The shared log on PostgreSQL.

A row for each shard has its last sequence. Who appends locks that row until its transaction is
committed: so sequences are dense, and nobody sees one before those below it.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from rillnode.actors.log.shared.port import Frame, Heard, LogLost, Opened, Span
from rillnode.actors.postgres.schema import check_server, incomplete, prepare
from rillnode.actors.postgres.servers import FAILURES, Servers, failure_of
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.log")

_NEWS_SECONDS_MIN: Final = 0.01
_NEWS_SECONDS_MAX: Final = 1.0
_RETRY_SECONDS_MIN: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0
_DROP_FRAMES: Final = 512
"""Dropped by one statement, which is to end in the time of an answer."""

_FRAME_BYTES: Final = 256
"""What a frame takes of a batch beside its data, so that a batch has not too many."""

_APPEND: Final = """
    WITH shard AS (
        UPDATE {0}.shards SET last = last + cardinality($2::bytea[])
        WHERE shard = $1 RETURNING last
    ), stored AS (
        INSERT INTO {0}.frames SELECT $1, last - cardinality($2) + place, data
        FROM shard, unnest($2) WITH ORDINALITY AS frame (data, place)
    )
    SELECT last FROM shard
"""
# The range is a short one for whatever way the server takes to read it.
_READ: Final = """
    SELECT sequence, data FROM (
        SELECT sequence, data, row_number() OVER read AS place,
            sum(octet_length(data)) OVER read AS total
        FROM {0}.frames, greatest(
            $2::bigint + 1, (SELECT first FROM {0}.shards WHERE shard = $1)
        ) AS start
        WHERE shard = $1 AND sequence >= start AND sequence < start + 1024
        WINDOW read AS (ORDER BY sequence)
    ) AS page WHERE place = 1 OR total <= $3 ORDER BY sequence
"""
_TRIM: Final = """
    UPDATE {0}.shards SET first = greatest(first, least($2, last + 1)) WHERE shard = $1
    RETURNING first, (SELECT min(sequence) FROM {0}.frames WHERE shard = $1)
"""
# A commit with news in it waits for all others that have some: they would be synced one by one.
_NEWS: Final = """
    SELECT shard, last, CASE WHEN shard = ANY($1::int[])
        THEN pg_notify('{0}', shard || ':' || last) END
    FROM {0}.shards
"""
_DROP: Final = "DELETE FROM {0}.frames WHERE shard = $1 AND sequence >= $2 AND sequence < $3"


_Append = tuple[bytes, asyncio.Future[int]]


class PostgresLog:
    """A `SharedLog`, whose docstrings say what holds here, too; sequences are dense."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._options = servers.options
        self._heard: Heard
        self._opened: Opened | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._waiting: defaultdict[int, deque[_Append]] = defaultdict(deque)
        self._grown: set[int] = set()
        self._stored = asyncio.Event()
        self._appending: dict[int, asyncio.Task[None]] = {}

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame; a larger one is `store.too_large`."""
        return self._options.frame_bytes_max

    async def open(self, shards: int, heard: Heard) -> Opened:
        """Connect, and make the tables where there are none at all."""
        self._heard = heard
        connection, self._opened = await self._connect(shards)
        self._keeping = asyncio.create_task(self._keep(connection))
        return self._opened

    async def close(self) -> None:
        """Let go."""
        self._servers.lose(LogLost("it is closed"))
        tasks = [*self._appending.values(), *filter(None, [self._keeping])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def append(self, shard: int, data: bytes) -> int:
        """Store a frame, together with those of its shard that wait for the same commit to end."""
        if len(data) > self.frame_bytes_max:
            text = f"a frame of {len(data)} bytes is over the limit of {self.frame_bytes_max}"
            raise StoreError("store.too_large", text, retryable=False)
        self._servers.check()
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[shard].append((data, stored))
        if shard not in self._appending:
            self._appending[shard] = asyncio.create_task(self._append_waiting(shard))
        return await stored

    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        """The frames after a sequence, in order."""
        return [Frame(*row) for row in await self._servers.ask(_READ, shard, after, bytes_max)]

    async def span(self, shard: int) -> Span:
        """What is kept."""
        query = "SELECT first, last FROM {0}.shards WHERE shard = $1"
        return Span(*await self._row(query, shard))

    async def trim(self, shard: int, before: int) -> None:
        """Drop the frames before a sequence: for readers at once, on the disk bit by bit."""
        first, oldest = await self._row(_TRIM, shard, before)
        for low in range(first if oldest is None else oldest, first, _DROP_FRAMES):
            await self._servers.ask(_DROP, shard, low, min(low + _DROP_FRAMES, first))

    def describe(self) -> Mapping[str, Any]:
        """The engine's state for people."""
        hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in self._options.urls]
        down = self._servers.down
        unsynced = "" if self._options.sync == "always" else "it is not asked whether they sync"
        return {
            "engine": "postgres",
            "servers": hosts,
            "schema": self._options.schema,
            "connected": down is None,
            "unsynced": unsynced,
            "reason": "" if down is None else str(down),
        }

    async def _row(self, query: str, shard: int, *arguments: object) -> asyncpg.Record:
        """The one row of a query about a shard."""
        for row in await self._servers.ask(query, shard, *arguments):
            return row
        raise incomplete(f"there is no shard {shard}")

    async def _append_waiting(self, shard: int) -> None:
        """Store what waits, batch by batch; what one fails with, all that waits fails with."""
        waiting, batch = self._waiting[shard], list[_Append]()
        failure: LogLost | StoreError = LogLost("it is closed")
        try:
            while waiting:
                batch = [waiting.popleft()]
                room = self._options.batch_bytes_max - len(batch[0][0])
                while waiting and (room := room - len(waiting[0][0]) - _FRAME_BYTES) >= 0:
                    batch.append(waiting.popleft())
                (last,) = await self._row(_APPEND, shard, [data for data, _ in batch])
                for sequence, (_, stored) in enumerate(batch, last - len(batch) + 1):
                    if not stored.done():
                        stored.set_result(sequence)
                self._grown.add(shard)
                self._stored.set()
        except (LogLost, StoreError) as error:
            failure = error
        finally:
            del self._appending[shard]
            for _, stored in (*batch, *waiting):
                if not stored.done():
                    stored.set_exception(failure)
            waiting.clear()

    async def _connect(self, shards: int = 0) -> tuple[asyncpg.Connection, Opened]:
        """Connect for news, and lend connections; after the first time to the same log only."""
        connection = await self._servers.dial()
        try:
            async with asyncio.timeout(2 * self._options.answer_seconds_max):
                await check_server(connection, self._options)
                opened = await prepare(connection, self._options.schema, shards)
                await connection.add_listener(self._options.schema, self._hear)
                # From here on it stores nothing, and its news need no sync.
                await connection.execute("SET synchronous_commit = off")
            if self._opened not in (None, opened):
                raise incomplete("it is another one than before")
        except BaseException as error:
            connection.terminate()
            if isinstance(error, FAILURES):
                raise failure_of(error) from error
            raise
        self._servers.down = None
        return connection, opened

    async def _keep(self, connection: asyncpg.Connection) -> None:
        """Tell of the ends of all shards, and connect again whenever that fails."""
        while True:
            try:
                await self._tell_ends(connection)
            except FAILURES as error:
                self._servers.lose(failure_of(error))
                logger.warning("store_connection_lost", extra={"reason": repr(error)})
            finally:
                connection.terminate()
            pause = _RETRY_SECONDS_MIN
            while self._servers.down is not None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _RETRY_SECONDS_MAX)
                try:
                    connection, _ = await self._connect()
                except (LogLost, StoreError) as error:
                    self._servers.down = error

    async def _tell_ends(self, connection: asyncpg.Connection) -> None:
        """Tell others what is stored here, soon, and here where all shards end."""
        query = _NEWS.format(self._options.schema)
        while True:
            self._stored.clear()
            shards, self._grown = self._grown, set[int]()
            async with asyncio.timeout(self._options.answer_seconds_max):
                ends = await connection.fetch(query, list(shards))
            for shard, last, _ in ends:
                self._heard(shard, last)
            await asyncio.sleep(_NEWS_SECONDS_MIN)
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_SECONDS_MAX):
                    await self._stored.wait()

    def _hear(self, _: object, __: int, ___: str, payload: str) -> None:
        # Whoever may NOTIFY can send anything.
        with suppress(ValueError):
            shard, sequence = map(int, payload.split(":"))
            self._heard(shard, sequence)
