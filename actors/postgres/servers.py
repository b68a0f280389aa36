"""PostgreSQL servers: connected to, checked, and asked; the tables of a log are made once."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any, Final, Literal

import asyncpg

from rillnode.actors.log.shared.port import LogLost, Opened, unsynced_error
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

# Who else is about to make them waits at the lock, and then finds them.
_MAKE: Final = """DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{0}', 0));
    IF to_regclass('{0}.log') IS NOT NULL THEN RETURN; END IF;
    CREATE SCHEMA IF NOT EXISTS {0};
    CREATE TABLE {0}.log (identity bytea, shards int);
    CREATE TABLE {0}.shards (shard int PRIMARY KEY, first bigint, last bigint);
    CREATE TABLE {0}.frames (
        shard int, sequence bigint, data bytea, PRIMARY KEY (shard, sequence));
    CREATE TABLE {0}.blobs (
        name text COLLATE "C", number int, digest bytea, data bytea, PRIMARY KEY (name, number));
    ALTER TABLE {0}.frames ALTER data SET STORAGE EXTERNAL;
    ALTER TABLE {0}.blobs ALTER data SET STORAGE EXTERNAL;
    INSERT INTO {0}.shards SELECT shard, 1, 0 FROM generate_series(0, {1} - 1) AS shard;
    INSERT INTO {0}.log VALUES ('\\x{2}', {1});
    END $$"""

# It names all tables, and so fails where one of them is missing.
_OPENED: Final = """SELECT identity, shards FROM {0}.log
    LEFT JOIN {0}.frames ON false LEFT JOIN {0}.blobs ON false
    WHERE shards = (SELECT count(*) FROM {0}.shards)"""

# Servers before 12 go on after a failed sync.
_UNSYNCED: Final = """SELECT name || ' = ' || setting FROM pg_settings
    WHERE (name, setting) IN (('fsync', 'off'), ('data_sync_retry', 'on'))
    OR name = 'synchronous_commit' AND setting NOT IN ('on', 'remote_apply')
    OR name = 'server_version_num' AND setting::int < 120000"""

_FAILURES = asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError

# By how SQLSTATEs begin; all others may pass by themselves, or are LogLost for ever.
_REFUSED: Final = {
    "28": ("store.denied", "check the user and its password"),
    "3D000": ("store.denied", "make the database"),
    "42501": ("store.denied", "grant the user the tables, or CREATE to make them"),
    "53100": ("store.full", "free space on the server's disk"),
    "3F000": ("store.incomplete", "restore the schema"),
    "42P01": ("store.incomplete", "restore the table"),
    "42P07": ("store.incomplete", "restore the tables beside it"),
    "XX00": ("store.corrupt", "restore the database from a backup"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The servers, and the sizes of the log.

    Attributes:
        urls: `postgresql://user@host/database?sslmode=verify-full`, one for each server of a
            cluster: the one that takes writes is used.
        password_file: of the user, read for each connection.
        schema: of all tables, as SQL has it without quotes; another one is another log.
        sync: "always": refuse servers that confirm what is not synced. "interval": warn of them.
        answer_seconds_max: wait for an answer; the server gives a statement up after it, too.
        connections_max: each shard's appends take one at a time.
        frame_bytes_max: the largest frame.
    """

    urls: tuple[str, ...]
    password_file: Path | None = None
    schema: str = "rillnode"
    sync: Literal["always", "interval"] = "always"
    answer_seconds_max: float = 5.0
    connections_max: int = 8
    frame_bytes_max: int = 8_388_608


class Servers:
    """Some connections to the server that takes writes."""

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self._urls = deque(options.urls)
        self._pool: asyncpg.Pool | None = None
        self._shards = 0  # that may be made
        self._opened: Opened | None = None

    async def open(self, shards: int) -> Opened:
        """Connect, and make the tables for so many shards where there are none at all."""
        self._shards = shards
        self._pool = await asyncpg.create_pool(
            min_size=0, max_size=self.options.connections_max, connect=self._connect, reset=_keep
        )
        async with self.lend():
            self._shards = 0
        assert self._opened is not None
        return self._opened

    def close(self) -> None:
        """Lend nothing from now on: what is under way ends at once."""
        if self._pool is not None:
            self._pool.terminate()

    @asynccontextmanager
    async def lend(self, answers: int = 1) -> AsyncGenerator[asyncpg.Connection]:
        """A connection for the block, in the time of so many answers. Raises as `failure_of` says.

        It ends with a block that fails, without cancelling its statement: one that waits for a
        standby would be committed by that, and read, and might be lost with this server.
        """
        if self._pool is None:
            raise LogLost("it is not open")
        seconds = answers * self.options.answer_seconds_max
        try:
            async with asyncio.timeout(seconds), self._pool.acquire() as connection:
                connection.add_log_listener(_doubt)
                try:
                    yield connection
                    connection.remove_log_listener(_doubt)  # fails where that has ended it
                except BaseException:
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()
                    raise
        except _FAILURES as error:
            raise failure_of(error) from error

    async def ask(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """The rows of one statement, in which {0} is the schema. Raises as `failure_of` says."""
        async with self.lend() as connection:
            return await connection.fetch(query.format(self.options.schema), *arguments)

    async def _connect(self, *_: object, **arguments: Any) -> asyncpg.Connection:
        """Connect, and see that the log is what it was; the next time to the next, if it fails."""
        schema, file = self.options.schema, self.options.password_file
        milliseconds = f"{self.options.answer_seconds_max * 1_000:.0f}"
        settings = {
            "application_name": "rillnode",
            # Appends count on a locked row as it is by then, not as it was.
            "default_transaction_isolation": "read committed",
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        }
        connection = None
        try:
            async with asyncio.timeout(self.options.answer_seconds_max):
                connection = await asyncpg.connect(
                    self._urls[0],
                    password=None if file is None else file.read_text().strip(),
                    target_session_attrs="read-write",
                    server_settings=settings,
                    **arguments,
                )
                if faults := ", ".join([row[0] for row in await connection.fetch(_UNSYNCED)]):
                    self._refuse_unsynced(faults)
                if self._shards:
                    make = _MAKE.format(schema, self._shards, secrets.token_hex(16))
                    await connection.execute(make)
                rows = await connection.fetch(_OPENED.format(schema))
            if len(rows) != 1:
                raise incomplete(f"rows of {schema}.log or {schema}.shards are missing")
            if self._opened not in (None, Opened(*rows[0])):
                raise incomplete("it is another one than before")
        except BaseException:
            self._urls.rotate(-1)
            if connection is not None:
                connection.terminate()
            raise
        self._opened = Opened(*rows[0])
        return connection

    def _refuse_unsynced(self, faults: str) -> None:
        """Refuse a server that loses what it confirms, or warn of it, as the options say."""
        text = (
            f"PostgreSQL does not sync what it confirms ({faults}): run version 12 or later with "
            'fsync and synchronous_commit on, and data_sync_retry off, or set sync = "interval"'
        )
        if self.options.sync == "always":
            raise unsynced_error(text)
        logger.warning("store_unsynced", extra={"reason": text})


def incomplete(reason: str) -> StoreError:
    """Some of the log is gone."""
    text = f"the log in PostgreSQL is not whole: {reason}: restore it, or name another schema"
    return StoreError("store.incomplete", text, retryable=False)


def failure_of(error: Exception) -> LogLost | StoreError:
    """What connecting and asking may fail with, as it is told.

    A StoreError means that nothing was stored: the server takes back what a failed statement did.
    """
    text = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        for start, (code, remedy) in _REFUSED.items():
            if error.sqlstate.startswith(start):
                return StoreError(code, f"{text}: {remedy}", retryable=code == "store.full")
    is_file = isinstance(error, OSError) and error.filename is not None
    if is_file or isinstance(error, SSLCertVerificationError | asyncpg.ClientConfigurationError):
        return StoreError("store.denied", f"{text}: check the URL", retryable=False)
    return LogLost(text)


def _doubt(connection: asyncpg.Connection, message: asyncpg.PostgresLogMessage) -> None:
    # An administrator who cancels the wait for a standby has it confirmed, with a warning.
    if message.severity_en == "WARNING":
        logger.warning("store_server_warned", extra={"reason": message.message})
        connection.terminate()


async def _keep(_: asyncpg.Connection) -> None:
    """Return a connection to the others as it is: nothing was changed but with its end."""
