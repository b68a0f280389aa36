"""Connections to PostgreSQL servers: dialled, lent to who asks, and given up together."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ssl import SSLCertVerificationError
from typing import Final

import asyncpg

from rillnode.actors.log.shared.port import LogLost
from rillnode.actors.postgres.options import PostgresOptions
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.log")

FAILURES: Final = (
    asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError,
)  # fmt: skip
"""What connecting and asking may fail with."""

# By how SQLSTATEs begin; all others may pass by themselves, or are LogLost for ever.
_REFUSED: Final = {
    "28": ("store.denied", "check the user and its password"),
    "3D000": ("store.denied", "make the database"),
    "42501": ("store.denied", "grant the user the tables, or CREATE to make them"),
    "53100": ("store.full", "free space on the server's disk"),
    "3F000": ("store.incomplete", "restore the schema"),
    "42P01": ("store.incomplete", "restore the table"),
    "XX00": ("store.corrupt", "restore the database from a backup"),
}


class Servers:
    """Some connections to the server that takes writes.

    Attributes:
        options: as given.
        down: why no connection is lent; None while they are.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self.down: LogLost | StoreError | None = LogLost("it is not open")
        self._urls = deque(options.urls)
        self._room = asyncio.Semaphore(options.connections_max)
        self._idle: list[asyncpg.Connection] = []
        self._lent: set[asyncpg.Connection] = set()

    async def dial(self) -> asyncpg.Connection:
        """Connect; after a failure the next one is tried next. Raises as `failure_of` says."""
        seconds, file = self.options.answer_seconds_max, self.options.password_file
        settings = {
            "application_name": "rillnode",
            # Appends count on a locked row as it is by then, not as it was.
            "default_transaction_isolation": "read committed",
            "statement_timeout": f"{seconds * 1_000:.0f}",
            "idle_in_transaction_session_timeout": f"{seconds * 1_000:.0f}",
        }
        try:
            connection = await asyncpg.connect(
                self._urls[0],
                password=None if file is None else file.read_text().strip(),
                timeout=seconds,
                target_session_attrs="read-write",
                server_settings=settings,
            )
        except FAILURES as error:
            self._urls.rotate(-1)
            raise failure_of(error) from error
        connection.add_log_listener(_doubt)
        return connection

    @asynccontextmanager
    async def lend(self, answers: int = 1) -> AsyncGenerator[asyncpg.Connection]:
        """A connection for the block, in the time of so many answers. Raises as `failure_of` says.

        It ends with a block that fails, without cancelling its statement: one that waits for a
        standby would be committed by that, and read, and might be lost with this server.
        """
        connection = None
        try:
            async with asyncio.timeout(answers * self.options.answer_seconds_max), self._room:
                self.check()
                connection = self._idle.pop() if self._idle else await self.dial()
                self._lent.add(connection)
                self.check()
                yield connection
                if connection.is_closed():
                    raise LogLost("it was answered with a warning")
                self._idle.append(connection)
        except FAILURES as error:
            raise failure_of(error) from error
        finally:
            if connection is not None:
                self._lent.discard(connection)
                if connection not in self._idle:
                    connection.terminate()

    async def ask(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """The rows of one statement, in which {0} is the schema. Raises as `failure_of` says."""
        async with self.lend() as connection:
            return await connection.fetch(query.format(self.options.schema), *arguments)

    def check(self) -> None:
        """Raise why no connection is lent, if so."""
        if self.down is not None:
            raise self.down.with_traceback(None)

    def lose(self, error: LogLost | StoreError) -> None:
        """Give all connections up: what is under way ends at once, and none is lent."""
        self.down = error
        idle, self._idle = self._idle, []
        for connection in (*idle, *self._lent):
            connection.terminate()


def failure_of(error: Exception) -> LogLost | StoreError:
    """What one of `FAILURES` means to who has asked.

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
