"""Connects to DuckDB, which runs SQL over rows in memory, and keeps some on the disk.

To make a database takes 20 ms of processor time, and a connection to one a hundredth of that. So a
process has one database for its own SQL, and one for people's, which is locked. What a connection
registers no other one sees.
"""

from functools import cache
from pathlib import Path
from typing import Final

import duckdb

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "python_enable_replacements": "false"
}
_LOCKED_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    **_SETTINGS,
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    # Spark's tasks share the cores out already.
    "threads": "1",
}


def connect() -> duckdb.DuckDBPyConnection:
    """A connection for SQL of our own; its times are in UTC."""
    return _database().cursor()


def connect_locked() -> duckdb.DuckDBPyConnection:
    """A connection for people's SQL, which reads nothing but what is registered.

    Its times are in UTC, and nobody can change its settings.
    """
    return _locked_database().cursor()


def connect_to(file: Path | None) -> duckdb.DuckDBPyConnection:
    """A database of its own, in a file; or in memory, where that is None."""
    settings = {**_SETTINGS, "memory_limit": "512MB", "threads": "1"}
    return duckdb.connect(":memory:" if file is None else str(file), config=settings)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config=_SETTINGS)
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database


@cache
def _locked_database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config=_LOCKED_SETTINGS)
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute("SET lock_configuration = true")
    return database
