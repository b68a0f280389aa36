"""Defines the options of the engine on PostgreSQL: its servers and sizes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The servers, and the sizes of the log.

    Attributes:
        urls: `postgresql://user@host/database?sslmode=verify-full`, one for each server of a
            cluster: the one that takes writes is used. Poolers do in session mode only: no other
            passes news on.
        password_file: of the user, read for each connection.
        schema: of all tables, as SQL has it without quotes; another one is another log.
        sync: "always": refuse servers that confirm what is not synced. "interval": warn of them.
        answer_seconds_max: wait for an answer; the server gives a statement up after it, too.
        connections_max: beside the one for news; each shard's appends take one at a time.
        frame_bytes_max: the largest frame.
        batch_bytes_max: frames that make one transaction, where one alone is not larger.
    """

    urls: tuple[str, ...]
    password_file: Path | None = None
    schema: str = "rillnode"
    sync: Literal["always", "interval"] = "always"
    answer_seconds_max: float = 5.0
    connections_max: int = 8
    frame_bytes_max: int = 8_388_608
    batch_bytes_max: int = 4_194_304
