"""A node's Spark sinks: their actors, their jobs' keys and processes."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rillnode.actors.core.access import Access
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Entropy, JobLauncher
from rillnode.actors.spark.sink_job import BRONZE, DERIVED_TABLES, SinkStatus
from rillnode.actors.spark.spark_sink import SinkPorts, SinkSettings, SparkSinkActor, StopSink
from rillnode.codecs.errors import TransportError
from rillnode.codecs.keys import Identity
from rillnode.node.config import FilesSink, SparkSink
from rillnode.node.keys.files import read_key


class Sinks:
    """The sinks of one node."""

    def __init__(
        self, tables: Sequence[SparkSink | FilesSink], data_dir: Path, entropy: Entropy
    ) -> None:
        self._tables = {table.name: table for table in tables}
        self._dir = data_dir / "sinks"
        self._entropy = entropy
        self._cells: dict[str, Cell] = {}
        self._statuses: dict[str, SinkStatus] = {}

    def start(
        self,
        context: StreamContext,
        *,
        launch: JobLauncher,
        access: Access,
        holds: Holds,
        index_service: Cell,
        actor: Callable[..., Worker] = SparkSinkActor,
    ) -> None:
        """Spawn an actor for each sink; it starts its job."""
        ports = SinkPorts(launch, self._issue_key, access, holds, index_service)
        for name, table in self._tables.items():
            settings = SinkSettings(
                name=name,
                streams=table.streams,
                hold_bytes_max=table.hold_bytes_max,
                external=isinstance(table, SparkSink) and table.external,
            )
            status = self._statuses[name] = SinkStatus(tables=table_names(table))
            self._cells[name] = context.system.spawn(
                partial(actor, context, settings, ports, status)
            )

    async def stop(self, post: Callable[[Cell, object], None], seconds: float) -> None:
        """End all jobs and wait for them, not longer; they finish the batch that they are in."""
        for cell in self._cells.values():
            post(cell, StopSink())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            if all(status.pid is None for status in self._statuses.values()):
                return
            await asyncio.sleep(0.05)
            for name, status in self._statuses.items():
                if status.state not in ("stopping", "stopped"):
                    # Its actor has failed, and the instance that follows starts a job again.
                    post(self._cells[name], StopSink())

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Each sink's state, for people."""
        return {name: status.document() for name, status in self._statuses.items()}

    def failing(self) -> dict[str, str]:
        """Sinks whose job does not run, or does not keep one of its tables, with the reason."""
        found = {name: _failure(status) for name, status in self._statuses.items()}
        return {
            name: f"{reason}; see {self._dir / name}.log"
            for name, reason in found.items()
            if reason
        }

    def key_path(self, sink: str) -> Path:
        """Where a sink's job finds its key."""
        return self._configured_key(sink) or self._dir / f"{sink}.key"

    def _configured_key(self, sink: str) -> Path | None:
        table = self._tables[sink]
        return table.key_file if isinstance(table, SparkSink) else None

    def _issue_key(self, sink: str) -> str:
        """Give the job a new key, or take the one that is configured; return its principal.

        Raises:
            ConfigError: the one that is configured cannot be used.
            TransportError: a new one cannot be written now.
        """
        configured = self._configured_key(sink)
        if configured is not None:
            return f"noise:{read_key(configured).public_hex}"
        identity = Identity.from_seed(self._entropy(32))
        path = self.key_path(sink)
        fresh = path.with_suffix(".new")
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(identity.seed_hex + "\n")
            # The job never sees half a key.
            fresh.replace(path)
        except OSError as error:
            raise no_start(self._dir, error) from error
        return f"noise:{identity.public_hex}"


def _failure(status: SinkStatus) -> str:
    """Why a sink does not do its work; empty where it does."""
    if status.last_exit is not None and (status.pid is None or status.state == "waiting"):
        why = status.last_error or "the job ended without a word"
        return f"{status.state}: {why} (code {status.last_exit})"
    return "" if status.last_exit is not None else status.error


def table_names(sink: SparkSink | FilesSink) -> tuple[str, ...]:
    """The tables that a sink's configuration names, called as in its job's report."""
    if isinstance(sink, FilesSink):
        return ()
    if sink.silver_dir is None:
        return (BRONZE,)
    return (BRONZE, *DERIVED_TABLES[: None if sink.gold_dir is not None else 1])


def no_start(directory: Path, error: OSError) -> TransportError:
    """Why a job that needs `directory` could not be started: something that passes."""
    return TransportError(
        "job.start",
        f"the job cannot be started now: {directory}: {error}. Make room on that disk, let the "
        "node write there, or give it more processes, as the reason says; it is tried again",
    )
