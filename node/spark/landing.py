"""Lands a node's streams in bronze, batch by batch; and the job that does so without Spark.

    python -m rillnode.node.spark.landing CONFIG.json [--available-now] [--watch-stdin]

A batch is a transaction of bronze that says how far it has come in each partition, and there is no
other checkpoint: what was not committed is fetched again. Tasks write the table's files where they
fetch their ranges, so that an entry costs no more than its way from the socket into Parquet; the
files of a batch are added together. Spark runs them (`job.py`), or this very process. A file that a
killed task has written is in no transaction; readers do not see it, and the table's maintenance
removes it.

Only which streams there were is noted beside the table, because its transactions can be asked but
not listed: a stream that is removed and made anew while no job runs is then known for another.
"""

import argparse
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from deltalake import DeltaTable, Schema, Transaction

from rillnode.actors.log.directories import replace_file
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark import bronze
from rillnode.node.spark.arrow import read_ranges
from rillnode.node.spark.bronze import is_overtaken, landed_in, landed_until
from rillnode.node.spark.delta import (
    add_actions,
    commit,
    committing,
    open_to_write,
    summary,
)
from rillnode.node.spark.erasing import Lake, Sweeps
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.explaining import FAILURES, check_places, check_stores, explain_end
from rillnode.node.spark.files import absolute, own_checkpoint, remove_begun, remove_files
from rillnode.node.spark.job_config import JobConfig, PythonJobConfig, TableJobConfig, read_config
from rillnode.node.spark.jobs import DRAIN_SECONDS, add_bounds, run_job, say
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.offsets import Key, Offset, Range, of_streams, split_ranges
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.parts import Batch, report_of, typed_views
from rillnode.node.spark.planning import BatchPlanner, SourceOptions, look, save, start_of
from rillnode.node.spark.ranges import ClientOptions, ask
from rillnode.node.spark.tables import BRONZE_SCHEMA
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import Engine, in_process as typed_in_process

LOCK_SECONDS: Final = 60.0
_SCHEMA: Final = Schema.from_arrow(BRONZE_SCHEMA)
_REPORT_SECONDS: Final = 1.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a batch that one task lands.

    Attributes:
        table: bronze's directory or URI.
        batch: what the names of the batch's files begin with.
        client: how to reach the node.
        ranges: what is fetched.
        fail_on_data_loss: whether it fails where entries are lost.
    """

    table: str
    batch: str
    client: ClientOptions
    ranges: tuple[Range, ...]
    fail_on_data_loss: bool


def fetch(task: bytes) -> bytes:
    """Write a task's ranges to files, which are durable when this returns them."""
    asked = msgspec.json.decode(task, type=Task)
    rows = read_ranges(asked.client, asked.ranges, fail_on_data_loss=asked.fail_on_data_loss)
    return msgspec.json.encode(list(write_files(asked.table, rows, name=asked.batch)))


def in_process(tasks: Sequence[bytes]) -> list[bytes]:
    """The engine that does all tasks here."""
    return [fetch(one) for one in tasks]


class Made(Protocol):
    """Tables that a job makes of bronze."""

    def start(self) -> None:
        """Begin to run."""
        ...

    def run_once(self) -> None:
        """Take in what bronze has now, and return."""
        ...

    def finish(self, deadline: float) -> None:
        """Let the running step end, and stop; not later than `deadline`, by the monotonic clock."""
        ...

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is told to stop; returns its exit code."""
    text = "Land a node's streams in Delta tables, without Spark."
    return run_job("rillnode.node.spark.landing", text, _run, arguments, add_bounds)


def _run(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    places: tuple[str, ...] = ()
    try:
        config = read_config(options.config, PythonJobConfig)
        places = config.locations
        check_places(places)
        # The lock of a Spark job with its checkpoint there, which is where it is by default.
        lock = f"{absolute(config.table_dir)}/_checkpoints/{config.sink}"
        with own_checkpoint(lock, seconds=LOCK_SECONDS):
            run(config, stop, available_now=options.available_now)
    except FAILURES as error:
        return explain_end(error, places)
    return "", 0


def run(config: PythonJobConfig, stop: threading.Event, *, available_now: bool) -> None:
    """Land what comes until `stop` is set, or what there is.

    Raises:
        RillnodeError: the configuration is wrong, or the node refuses or is not reached.
        DeltaError, OSError: the tables cannot be written.
    """
    for text in check_stores(config.locations):
        say(text)
    typed = TypedTables(
        config.typed,
        absolute(config.table_dir),
        typed_in_process,
        trigger_seconds=config.trigger_seconds,
    )
    land(Landing(config), [typed, typed_views(config.views, config.typed)], stop, available_now)


def land(
    landing: "Landing",
    made: Sequence[Made],
    stop: threading.Event,
    available_now: bool,
    step: Callable[[], None] = lambda: None,
) -> None:
    """Land what comes until `stop` is set, or what there is, and keep up what is made of it.

    Args:
        landing: lands batches.
        made: the tables that are made of bronze, the typed ones among them.
        stop: set where the running batch is to be the last.
        available_now: end where the streams end now.
        step: what else is done again and again, and takes little time.
    """
    if available_now:
        landing.end_at_present()
        while landing.step() and not stop.is_set():
            continue
        for one in made:
            if not stop.is_set():
                one.run_once()
        return
    for one in made:
        one.start()
    try:
        _follow(landing, made, stop, step)
    finally:
        deadline = time.monotonic() + DRAIN_SECONDS
        for one in made:
            one.finish(deadline)
    landing.report(_told_of(made))


def _told_of(made: Sequence[Made]) -> dict[str, dict[str, object]]:
    return {name: part for one in made for name, part in one.report().items()}


def _follow(
    landing: "Landing", made: Sequence[Made], stop: threading.Event, step: Callable[[], None]
) -> None:
    config = landing.config
    maintenance = Maintenance(absolute(config.table_dir), config.compact_commits)
    derived = config.derived if isinstance(config, JobConfig) else None
    sweeps = Sweeps(Lake(bronze=absolute(config.table_dir), derived=derived, typed=config.typed))
    due_at = 0.0
    while not stop.is_set():
        if time.monotonic() >= due_at:
            due_at = time.monotonic() + config.trigger_seconds
            if landing.step():
                for one in made:
                    if isinstance(one, TypedTables):
                        one.tell()
        if (table := landing.table) is not None and (done := maintenance.step(table)):
            say(done)
        sweeps.step(time.monotonic(), say)
        step()
        landing.report(_told_of(made))
        stop.wait(min(_REPORT_SECONDS, max(0.0, due_at - time.monotonic())))


class Landing:
    """Lands micro-batches in a bronze table.

    Args:
        config: the job's.
        engine: does tasks, whatever runs them.
        tasks_max: tasks of a batch that is large enough for them.

    Attributes:
        config: the same.
        offset: how far it has come; None before the first batch was planned.
        table: bronze, as of the last look; None before the first batch was planned.
    """

    def __init__(
        self, config: TableJobConfig, engine: Engine = in_process, tasks_max: int = 1
    ) -> None:
        self.config = config
        self.offset: Offset | None = None
        self.table: DeltaTable | None = None
        self._engine = engine
        self._tasks_max = tasks_max
        self._source = SourceOptions(
            client=config.client_options, fail_on_data_loss=config.fail_on_data_loss
        )
        self._planner = BatchPlanner(self._source)
        self._location = absolute(config.table_dir)
        self._note_file = Path(config.work_dir) / "streams.json"
        self._noted: set[tuple[Key, int]] = set()
        self._saved: dict[Key, tuple[int, int | None]] = {}  # with which streams they are in
        self._query = f"sink/{config.sink}"
        self._version = -1  # the last one that is known to have no entries of another job
        self._batch_id = 0
        self._told: dict[str, object] = {}
        self._shown: dict[str, object] = {}

    def end_at_present(self) -> None:
        """Take the present ends of the streams as the last."""
        self._planner.end_at_present()

    def step(self) -> bool:
        """Land one micro-batch; returns whether there was anything to land.

        Raises:
            RillnodeError: the node refuses or is not reached, or another job lands there, too.
            DeltaError, OSError: the table cannot be written.
        """
        started_at = time.monotonic()
        table, start = self._begun()
        end = _dated(self._planner.after(start, self.config.batch_rows_max))
        self._note(table, start, end)
        written: dict[str, Any] = {}
        if end != start:
            files = self._write(of_streams(self._planner.ranges(start, end), end.created))
            if files:
                written = self._commit(table, files, start, end)
            self.offset = end
        self._save(end)
        self._tell(end, time.monotonic() - started_at, written)
        return bool(written)

    def report(self, parts: Mapping[str, Mapping[str, object]]) -> None:
        """Show how far the job has come, and how its tables are, where that has changed."""
        report: dict[str, object] = {**self._told, **parts}
        if self._told and report != self._shown:
            ask(self._source.client, lambda client: client.report(report))
            self._shown = report

    def _begun(self) -> tuple[DeltaTable, Offset]:
        """The table, and where the next batch begins."""
        if self.table is None or self.offset is None:
            with committing(self._location):
                self.table = open_to_write(self._location, _SCHEMA)
            self._version = self.table.version()
            self._batch_id = self.table.transaction_version(self._query) or 0
            self.offset = self._begin(self.table)
        return self.table, self.offset

    def _begin(self, table: DeltaTable) -> Offset:
        """Where the table ends.

        A stream that was noted, and was made anew since, is still the old one, unless the table has
        entries of the new one. Of a partition of which neither knows, all that is kept is landed
        where nothing was noted ever; else all, so that what is lost has a row.
        """
        ends, created = look(self._source)
        now = _dated(Offset(start_of(self._source, ends, created), created))
        noted = self._load_note(str(table.metadata().id))
        landed = landed_in(table, now.positions, now.created)
        here = {stream for stream, _ in landed}
        known = {stream: now.created[stream] for stream in here}
        if noted is None:
            return Offset(now.positions | landed, now.created)
        noted = landed_until(table, Offset(noted.without(here), noted.created))
        return Offset({**noted.positions, **landed}, {**noted.created, **known})

    def _write(self, ranges: Sequence[Range]) -> list[TableFile]:
        """Write ranges to files that no commit has added yet."""
        batch = f"part-{uuid.uuid4()}"
        tasks = [
            Task(
                table=self._location,
                batch=batch,
                client=self._source.client.beginning_at(number),
                ranges=task,
                fail_on_data_loss=self.config.fail_on_data_loss,
            )
            for number, task in enumerate(split_ranges(ranges, self._tasks_max))
        ]
        try:
            written = self._engine([msgspec.json.encode(one) for one in tasks])
        except BaseException:
            # Of several tasks, others than the one that has failed may have written files.
            remove_begun(self._location, batch)
            raise
        return [file for one in written for file in msgspec.json.decode(one, type=list[TableFile])]

    def _commit(
        self, table: DeltaTable, files: Sequence[TableFile], start: Offset, end: Offset
    ) -> dict[str, Any]:
        """Add a batch's files to the table; returns what its history tells of it.

        Raises:
            StoreError: `landing.overtaken`, another job has landed entries meanwhile.
        """
        with committing(self._location):
            table.update_incremental()
            # Maintenance looks at the table, too, and does not ask who has committed meanwhile.
            if table.version() != self._version and is_overtaken(table, start, end):
                self._remove(files)
                raise StoreError(
                    "landing.overtaken",
                    f"another job has landed entries in {self._location} meanwhile: start again "
                    "where it ends",
                )
            files = Erasures(self._location).keep_out(self._location, files)
            self._batch_id += 1
            told = summary(self._query, self._batch_id, files)
            ends = bronze.transactions(table, start, end, files)
            numbers = [Transaction(self._query, self._batch_id), *ends]
            actions = add_actions(files, data_change=True)
            commit(self._location, table, actions, numbers, {"batch": told})
            self._version = table.version()
        if told["entries_lost"]:
            say(f"entries lost before they were read: {told['entries_lost']}")
        return {**told, "table_version": table.version()}

    def _remove(self, files: Sequence[TableFile]) -> None:
        remove_files(self._location, [file.name for file in files])

    def _save(self, end: Offset) -> None:
        """Save at the node what is landed: it may trim that."""
        landed = {key: (at, end.created.get(key[0])) for key, at in end.positions.items()}
        changed = {
            key: at for key, (at, _) in landed.items() if self._saved.get(key) != landed[key]
        }
        if changed:
            save(self._source.client, Offset(changed, end.created))
            self._saved = landed

    def _tell(self, end: Offset, seconds: float, written: dict[str, Any]) -> None:
        latest = Offset({}, {}) if self._planner.latest is None else self._planner.latest
        # Told from 0 on: one that waits for rows has the number of batches that there are.
        number = self._batch_id - 1 if written else self._batch_id
        batch = Batch(number, bool(written), seconds, end, latest.positions)
        shown = {key: value for key, value in written.items() if key not in ("id", "query")}
        lost = self._told.get("entries_lost_total")
        if (written or lost is None) and self.table is not None:
            lost = bronze.entries_lost(self.table)
        self._told = {**report_of(batch, shown), "entries_lost_total": lost or 0}

    def _note(self, table: DeltaTable, start: Offset, end: Offset) -> None:
        """Note the streams of a batch before it is landed, where there are others than noted.

        New partitions are noted as unread. Of a stream made anew the old one stays until the batch
        that says so is committed.
        """
        created = {**end.created, **start.created}
        positions = dict.fromkeys(end.positions, 0) | start.positions
        keys = {(key, created[key[0]]) for key in positions}
        if keys != self._noted:
            document = {
                "table": str(table.metadata().id),
                "streams": Offset(positions, created).to_json(),
            }
            self._note_file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._note_file, json.dumps(document).encode())
            self._noted = keys

    def _load_note(self, table: str) -> Offset | None:
        """The streams that were noted of a table; None where there is no note of it.

        Raises:
            ConfigError: the note is damaged.
        """
        where = str(self._note_file)
        try:
            document = json.loads(self._note_file.read_bytes())
            if document["table"] != table:
                return None
            return Offset.from_json(document["streams"], where)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError("job.note", f"{where} is damaged: {error}: remove it") from None


def _dated(offset: Offset) -> Offset:
    """An offset that says of every stream when it was created; 0 where nobody knows."""
    unknown = {stream: 0 for stream, _ in offset.positions}
    return offset._replace(created=unknown | dict(offset.created))


if __name__ == "__main__":
    sys.exit(main())
