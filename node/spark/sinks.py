"""A node's Spark sinks: their actors, their jobs' keys and processes, how they are."""

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from rillnode.actors.engine.system import Cell
from rillnode.actors.log.directories import replace_file
from rillnode.actors.spark.sink_job import (
    BRONZE,
    DERIVED_TABLES,
    TYPED_TABLES,
    VIEWS,
    SinkStatus,
    no_start,
)
from rillnode.actors.spark.spark_sink import SinkPorts, SinkSettings, SparkSinkActor, StopSink
from rillnode.codecs.keys import Identity
from rillnode.node.config import Config
from rillnode.node.keys.files import read_key
from rillnode.node.plugin import Check, Core, Described, Host, Listening, PlugIn, Sample
from rillnode.node.spark.config import Sink, SparkSink, TableSink, application_of, sinks_of
from rillnode.node.spark.installed import require_iceberg, require_libraries
from rillnode.node.spark.table_config import TypedTable, tables_of
from rillnode.node.spark.view_config import views_of

_PREFIX: Final = "rillnode_spark_"
_OF_TABLES: Final = {
    "rows_behind": "Rows of bronze that silver or a gold table has not taken in.",
    "seconds_behind": "How long the first of these rows has been in bronze.",
    "rows": "Rows of a typed table.",
    "rejects": "Entries among the rejects of a typed table, which did not fit its schema.",
    "rows_late": "Rows of a typed table that were received long after their time, since it was "
    "made.",
    "rows_superseded": "Entries that came to a typed table after a later one of their key, since "
    "it was made.",
    "rows_expired": "Entries that were too old for a typed table when they came, since it was "
    "made.",
    "rows_outside": "Rows whose time a view cannot cut off, so that they are in none of its slots.",
}
"""What jobs report of tables, by the names that it has in their reports."""
METRICS: Final = tuple(
    Described(f"{_PREFIX}{name}", kind, labels, text)
    for name, kind, labels, text in (
        ("batches_total", "counter", ("sink",), "Batches that a sink has committed."),
        ("batch_rows", "gauge", ("sink",), "Rows of the newest batch."),
        ("batch_seconds", "gauge", ("sink",), "Time that batch took."),
        ("rows_behind", "gauge", ("sink",), "Entries not yet in the table."),
        (
            "entries_lost_total", "counter", ("sink",),
            "Entries that were trimmed before a sink could land them; its table names them.",
        ),
        *((f"table_{name}", "gauge", ("sink", "table"), text) for name, text in _OF_TABLES.items()),
        (
            "table_unexpected_rows", "gauge", ("expectation", "sink", "table"),
            "Rows that did not meet an expectation of a typed table, since it was made.",
        ),
        (
            "state", "gauge", ("sink", "state"),
            "1 for the state that a sink is in, its job's or that of its worst table: running, "
            "failed, waiting, parked, paused and so on.",
        ),
        (
            "table_state", "gauge", ("sink", "state", "table"),
            "1 for the state that a table is in; 0 for running, failed and waiting where it is "
            "not.",
        ),
        ("job_starts_total", "counter", ("sink",), "Starts of a sink's job."),
        ("job_failures", "gauge", ("sink",), "Ends of the job since it last made progress."),
    )
)  # fmt: skip
_TABLE_STATES: Final = ("running", "failed", "waiting")
"""States of tables that have a series at all times: an alert rule must find what it asks for."""


def samples(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Sequence[Sample]]:
    """The values of `METRICS`, out of the documents of all sinks."""
    sinks = [((name,), one) for name, one in statuses.items()]

    def reported(key: str) -> list[Sample]:
        # A job says what it likes; only numbers can be told on.
        found: list[tuple[tuple[str], Any]] = [
            (name, one["report"].get(key)) for name, one in sinks
        ]
        return [(name, value) for name, value in found if isinstance(value, int | float)]

    def of_tables(key: str) -> list[Sample]:
        found: list[Sample] = []
        for (name,), one in sinks:
            for table in one["tables"]:
                value = _document(one["report"].get(table)).get(key)
                if isinstance(value, int | float):
                    found.append(((name, table), value))
        return found

    def unexpected() -> Iterator[Sample]:
        for (name,), one in sinks:
            for table in one["tables"]:
                counts = _document(_document(one["report"].get(table)).get("unexpected"))
                for expectation, count in counts.items():
                    if isinstance(count, int | float):
                        yield (expectation, name, table), count

    # Batches are numbered from 0; one that waits for rows has the number of the next.
    running = {name for name, one in sinks if one["report"].get("state") == "running"}

    found: dict[str, Sequence[Sample]] = {
        "batches_total": [(name, batch + (name in running)) for name, batch in reported("batch")],
        "batch_rows": reported("rows"),
        "batch_seconds": reported("seconds"),
        "rows_behind": [(name, one["rows_behind"]) for name, one in sinks],
        "entries_lost_total": reported("entries_lost_total"),
        **{f"table_{key}": of_tables(key) for key in _OF_TABLES},
        "table_unexpected_rows": [*unexpected()],
        "state": [((*name, one["state"]), 1) for name, one in sinks],
        "table_state": [
            ((name, state, table), state == now["state"])
            for (name,), one in sinks
            for table, now in one["tables"].items()
            for state in dict.fromkeys((*_TABLE_STATES, now["state"]))
        ],
        "job_starts_total": [(name, one["starts"]) for name, one in sinks],
        "job_failures": [(name, one["failures"]) for name, one in sinks],
    }
    return {f"{_PREFIX}{name}": samples for name, samples in found.items()}


def _document(told: object) -> dict[str, Any]:
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


class Sinks(PlugIn):
    """The sinks of one node.

    Raises:
        ConfigError: what their jobs need is not installed.
    """

    metrics = METRICS

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        sinks = sinks_of(host.config)
        require_libraries(sinks)
        if any(one.format == "iceberg" for one in host.config.each(TypedTable)):
            require_iceberg()
        self._tables = {table.name: table for table in sinks.all}
        self._dir = host.config.data_dir / "sinks"
        self._entropy = host.entropy
        self._cells: dict[str, Cell] = {}
        self._statuses: dict[str, SinkStatus] = {}

    def start(self, core: Core) -> None:
        """Keep the node's parts until jobs can connect to it."""
        self._core = core

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Spawn an actor for each sink; it starts its job."""
        # Here, because it needs what the extra installs, and sinks are described without it.
        from rillnode.node.spark.process import launcher

        core, host = self._core, self.host
        address = bound["noise"].address
        identity = host.identity.public_hex
        launch = launcher(host.config, identity, address, self.key_path, host.threads)
        context, actor = core.streams, core.actor(SparkSinkActor)
        ports = SinkPorts(launch, self._issue_key, context.access, core.holds, core.indexes)
        for name, table in self._tables.items():
            settings = SinkSettings(
                name=name,
                streams=table.streams,
                hold_bytes_max=table.hold_bytes_max,
                external=isinstance(table, SparkSink) and table.external,
            )
            names = (*table_names(table), *typed_names(host.config, name))
            status = self._statuses[name] = SinkStatus(kind=table.kind, tables=names)
            self._cells[name] = context.system.spawn(
                partial(actor, context, settings, ports, status)
            )

    async def finish(self, seconds: float) -> None:
        """End all jobs and wait for them, not longer; they finish the batch that they are in."""
        if not self._cells:
            return
        post = self._core.streams.system.post
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

    def status(self) -> dict[str, Any]:
        """Each sink's state."""
        return {"sinks": self.statuses()}

    def checks(self) -> Iterator[Check]:
        """Whether each sink does its work."""
        failing = self.failing()
        for name in self._statuses:
            yield Check(f"sink {name}", name not in failing, failing.get(name, ""))

    def samples(self) -> Mapping[str, Sequence[Sample]]:
        """What jobs report, and how they are."""
        return samples(self.statuses())

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Each sink's state, for people."""
        return {name: status.document() for name, status in self._statuses.items()}

    def failing(self) -> dict[str, str]:
        """Sinks whose job does not run, or does not keep one of its tables, with the reason."""
        found = {name: _failure(status) for name, status in self._statuses.items()}
        return {
            name: f"{reason}; see {self._dir / application_of(self.host.config, name)}.log"
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
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The job never sees half a key.
            replace_file(path, f"{identity.seed_hex}\n".encode(), mode=0o600)
        except OSError as error:
            raise no_start(self._dir, error) from error
        return f"noise:{identity.public_hex}"


def _failure(status: SinkStatus) -> str:
    """Why a sink does not do its work; empty where it does."""
    if status.last_exit is not None and (status.pid is None or status.state == "waiting"):
        why = status.last_error or "the job ended without a word"
        return f"{status.state}: {why} (code {status.last_exit})"
    return "" if status.last_exit is not None else status.error


def table_names(sink: Sink) -> tuple[str, ...]:
    """The tables that a sink's configuration names, called as in its job's report."""
    if not isinstance(sink, TableSink):
        return ()
    if not isinstance(sink, SparkSink) or sink.silver_dir is None:
        return (BRONZE,)
    return (BRONZE, *DERIVED_TABLES[: None if sink.gold_dir is not None else 1])


def typed_names(config: Config, sink: str) -> tuple[str, ...]:
    """The typed tables and views that a sink makes, called as in its job's report."""
    tables = (f"{TYPED_TABLES}{one.called}" for one in tables_of(config, sink))
    return (*tables, *(f"{VIEWS}{one.called}" for one in views_of(config, sink)))
