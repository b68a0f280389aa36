"""The job of a Python sink, a process without Java: streams of a node into bronze and typed tables.

    python -m rillnode.node.spark.python_job CONFIG.json [--available-now] [--watch-stdin]

It is started, stopped, watched and answered as the Spark job is, ends with the same codes, plans
micro-batches in the same way and writes the same tables. One process fetches, writes and commits. A
batch is a transaction of bronze that says how far the batch has come, and there is no other
checkpoint: what was not committed is fetched again.

Only which streams there were is noted beside the table, because its transactions can be asked but
not listed: a stream that is removed and made anew while no job runs is then known for another.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable, Schema, Transaction

from rillnode.actors.log.directories import replace_file
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import bronze
from rillnode.node.spark.arrow import read_ranges
from rillnode.node.spark.bronze import PYTHON, landed_in, landed_until, overtaken
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
from rillnode.node.spark.files import absolute, own_checkpoint, remove_files
from rillnode.node.spark.job_config import PythonJobConfig, read_config
from rillnode.node.spark.jobs import DRAIN_SECONDS, add_bounds, run_job, say
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.offsets import Key, Offset, Range, of_streams
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.parts import Batch, Duties, report_of, typed_views
from rillnode.node.spark.planning import BatchPlanner, SourceOptions, look, save, start_of
from rillnode.node.spark.ranges import ask
from rillnode.node.spark.tables import BRONZE_SCHEMA
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import in_process

LOCK_SECONDS: Final = 60.0
_SCHEMA: Final = Schema.from_arrow(BRONZE_SCHEMA)
_REPORT_SECONDS: Final = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is told to stop; returns its exit code."""
    text = "Land a node's streams in Delta tables, without Spark."
    return run_job("rillnode.node.spark.python_job", text, _run, arguments, add_bounds)


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
    table_dir = absolute(config.table_dir)
    landing = Landing(config)
    typed = TypedTables(config.typed, table_dir, in_process, trigger_seconds=config.trigger_seconds)
    views = typed_views(config.views, config.typed)
    if available_now:
        landing.end_at_present()
        while landing.step() and not stop.is_set():
            continue
        typed.run_once()
        views.run_once()
        return
    typed.start()
    views.start()
    try:
        _follow(landing, typed, views, config, stop)
    finally:
        deadline = time.monotonic() + DRAIN_SECONDS
        typed.finish(deadline)
        views.finish(deadline)
    landing.report({**typed.report(), **views.report()})


def _follow(
    landing: "Landing",
    typed: TypedTables,
    views: Duties,
    config: PythonJobConfig,
    stop: threading.Event,
) -> None:
    maintenance = Maintenance(absolute(config.table_dir), config.compact_commits)
    sweeps = Sweeps(Lake(bronze=absolute(config.table_dir), derived=None, typed=config.typed))
    due_at = 0.0
    while not stop.is_set():
        if time.monotonic() >= due_at:
            due_at = time.monotonic() + config.trigger_seconds
            if landing.step():
                typed.tell()
        if (table := landing.table) is not None and (done := maintenance.step(table)):
            say(done)
        sweeps.step(time.monotonic(), say)
        landing.report({**typed.report(), **views.report()})
        stop.wait(min(_REPORT_SECONDS, max(0.0, due_at - time.monotonic())))


class Landing:
    """Lands micro-batches in a bronze table.

    Args:
        config: the job's.

    Attributes:
        table: bronze, as of the last look; None before the first batch was planned.
    """

    def __init__(self, config: PythonJobConfig) -> None:
        self._config = config
        self._source = SourceOptions(
            client=config.client_options, fail_on_data_loss=config.fail_on_data_loss
        )
        self._planner = BatchPlanner(self._source)
        self._location = absolute(config.table_dir)
        self._note_file = Path(config.work_dir) / "streams.json"
        self._noted: set[tuple[Key, int]] = set()
        self._offset: Offset | None = None
        self._saved: dict[Key, tuple[int, int | None]] = {}  # with which streams they are in
        self._batch_id = 0
        self._told: dict[str, object] = {}
        self._shown: dict[str, object] = {}
        self.table: DeltaTable | None = None

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
        end = _dated(self._planner.after(start, self._config.batch_rows_max))
        self._note(table, start, end)
        written: dict[str, Any] = {}
        if end != start:
            files = self._write(of_streams(self._planner.ranges(start, end), end.created))
            if files:
                written = self._commit(table, files, start, end)
            self._offset = end
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
        if self.table is None or self._offset is None:
            with committing(self._location):
                self.table = open_to_write(self._location, _SCHEMA)
            self._batch_id = bronze.python_batches(self.table)
            self._offset = self._begin(self.table)
        return self.table, self._offset

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
        loss = self._config.fail_on_data_loss
        rows = read_ranges(self._source.client, ranges, fail_on_data_loss=loss)
        files: list[TableFile] = []
        try:
            files.extend(write_files(self._location, rows))
        except BaseException:
            self._remove(files)
            raise
        return files

    def _commit(
        self, table: DeltaTable, files: Sequence[TableFile], start: Offset, end: Offset
    ) -> dict[str, Any]:
        """Add a batch's files to the table; returns what its history tells of it.

        Raises:
            StoreError: `landing.overtaken`, another job has landed entries meanwhile.
        """
        with committing(self._location):
            before = table.version()
            table.update_incremental()
            if table.version() != before and landed_until(table, start) != start:
                self._remove(files)
                raise overtaken(self._location)
            files = Erasures(self._location).keep_out(self._location, files)
            self._batch_id += 1
            told = summary(PYTHON, self._batch_id, files)
            ends = bronze.transactions(table, start, end, files)
            numbers = [Transaction(PYTHON, self._batch_id), *ends]
            actions = add_actions(files, data_change=True)
            commit(self._location, table, actions, numbers, {"batch": told})
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
        number = self._batch_id if written else self._batch_id + 1
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
