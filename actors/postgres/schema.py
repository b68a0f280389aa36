"""The tables of a log: made once, and checked whenever a server was connected to."""

import logging
import secrets
from typing import Final

import asyncpg

from rillnode.actors.log.shared.port import Opened
from rillnode.actors.postgres.options import PostgresOptions
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.log")

VERSION_MIN: Final = 12
"""Of the server: earlier ones go on after a failed sync, and lose what they confirm."""

_TABLES: Final = ("log", "shards", "frames", "blobs", "chunks")

# A row of shards changes all the time, and its versions are to stay on one page.
_MAKE: Final = """
CREATE SCHEMA IF NOT EXISTS {0};
CREATE TABLE {0}.log (identity bytea NOT NULL, shards int NOT NULL);
CREATE TABLE {0}.shards (shard int PRIMARY KEY, first bigint NOT NULL, last bigint NOT NULL)
    WITH (fillfactor = 10);
CREATE TABLE {0}.frames (
    shard int, sequence bigint, data bytea NOT NULL, PRIMARY KEY (shard, sequence));
CREATE TABLE {0}.blobs (
    name text COLLATE "C" PRIMARY KEY, blob uuid NOT NULL, size bigint NOT NULL,
    digest bytea NOT NULL);
CREATE TABLE {0}.chunks (
    name text COLLATE "C", blob uuid, number int, data bytea NOT NULL,
    PRIMARY KEY (name, blob, number));
ALTER TABLE {0}.frames ALTER data SET STORAGE EXTERNAL;
ALTER TABLE {0}.chunks ALTER data SET STORAGE EXTERNAL;
INSERT INTO {0}.shards SELECT shard, 1, 0 FROM generate_series(0, {1} - 1) AS shard;
INSERT INTO {0}.log VALUES ('\\x{2}', {1});
"""
_UNSYNCED: Final = """
    SELECT name || ' = ' || setting FROM pg_settings
    WHERE (name, setting) IN (('fsync', 'off'), ('data_sync_retry', 'on'))
    OR name = 'synchronous_commit' AND setting NOT IN ('on', 'remote_apply')
"""


async def check_server(connection: asyncpg.Connection, options: PostgresOptions) -> None:
    """Refuse a server that loses what it confirms: StoreError `store.old`, `store.unsynced`."""
    version = connection.get_server_version().major
    if version < VERSION_MIN:
        text = f"PostgreSQL {version} loses what fails to sync: run {VERSION_MIN} or later"
        raise StoreError("store.old", text, retryable=False)
    if faults := ", ".join([row[0] for row in await connection.fetch(_UNSYNCED)]):
        text = (
            f"PostgreSQL does not sync what it confirms ({faults}): set fsync = on, "
            'synchronous_commit = on and data_sync_retry = off, or sync = "interval"'
        )
        if options.sync == "always":
            raise StoreError("store.unsynced", text, retryable=False)
        logger.warning("store_unsynced", extra={"reason": text})


async def prepare(connection: asyncpg.Connection, schema: str, shards: int) -> Opened:
    """What the tables say; where there are none, they are made for so many shards, if for any.

    Raises:
        StoreError: `store.incomplete`, some are missing.
    """
    async with connection.transaction():
        # Who else is about to make them waits here, and then finds them.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", schema)
        query = "SELECT $1 || '.' || name FROM unnest($2::text[]) AS name "
        query += "WHERE to_regclass($1 || '.' || name) IS NULL"
        missing = [row[0] for row in await connection.fetch(query, schema, _TABLES)]
        if shards and len(missing) == len(_TABLES):
            await connection.execute(_MAKE.format(schema, shards, secrets.token_hex(16)))
        elif missing:
            raise incomplete(f"there is no {', '.join(missing)}")
        count = f"(SELECT count(*) FROM {schema}.shards)"
        rows = await connection.fetch(f"SELECT identity, shards, {count} FROM {schema}.log")
    if len(rows) != 1 or rows[0][1] != rows[0][2]:
        raise incomplete(f"rows of {schema}.log or {schema}.shards are missing")
    return Opened(rows[0][0], rows[0][1])


def incomplete(reason: str) -> StoreError:
    """Some of the log is gone."""
    text = f"the log in PostgreSQL is not whole: {reason}: restore it, or name another schema"
    return StoreError("store.incomplete", text, retryable=False)
