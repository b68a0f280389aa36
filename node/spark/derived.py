"""Runs the silver query and, beside it in a thread, gold and other views of silver.

Bronze must land whatever happens to them, because the node keeps entries for it only this long. So
the failures of one end nothing, neither bronze nor another of them: they are told, and tried again
after growing pauses.

A replay makes them anew from bronze. Readers see the old tables until the new ones are whole. One
that dies leaves the old ones as they are; the next one begins again.
"""

import heapq
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta_log import TableLog, saved_position
from rillnode.node.spark.erasure import Erasures, sweep
from rillnode.node.spark.files import absolute, local_path, own_checkpoint
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.offsets import Positions
from rillnode.node.spark.parts import (
    LOOK_SECONDS,
    Behind,
    Duties,
    Duty,
    Part,
    duty_of,
    view_of,
)
from rillnode.node.spark.session import SPARK_FAILURES
from rillnode.node.spark.silver import start_silver
from rillnode.node.spark.tables import LAG
from rillnode.node.spark.upsert import upsert
from rillnode.node.spark.views.planning import gold_views
from rillnode.node.spark.views.query import SilverSource, ViewQuery

LAG_SECONDS: Final = 20.0
"""Time between two looks at the consumers."""
LAG_ROWS_MAX: Final = 10_000
"""Rows of one minute; beyond, those furthest behind. Own choice: a node may have 100,000 streams,
each with consumers of its own."""
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


class LagNotes:
    """Notes of one thread, the last of each minute, which another one writes down.

    Args:
        location: the table.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._noted: dict[datetime, list[dict[str, Any]]] = {}

    def note(self, committed: Mapping[str, Positions], latest: Positions, now: datetime) -> None:
        """Note what each consumer has committed, and where the streams end."""
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        rows = [
            {
                "consumer": consumer,
                "stream": stream,
                "partition": partition,
                "minute": minute,
                "next_index": latest[stream, partition],
                "committed_index": index,
                "rows_behind": max(0, latest[stream, partition] - index),
            }
            for consumer, positions in committed.items()
            for (stream, partition), index in positions.items()
            if (stream, partition) in latest
        ]
        if rows:
            with self._lock:
                self._noted[minute] = heapq.nlargest(LAG_ROWS_MAX, rows, itemgetter("rows_behind"))

    def write(self) -> None:
        """Write what is noted; a minute that goes on is written again.

        Raises:
            DeltaError: it could not be written; it stays noted.
        """
        with self._lock:
            noted = dict(self._noted)
        rows = [row for of_minute in noted.values() for row in of_minute]
        if not rows:
            return
        batches = [pa.RecordBatch.from_pylist(rows, schema=LAG.schema)]
        upsert(self._location, LAG.slot, pa.Table.from_batches(batches))
        with self._lock:
            for minute, of_minute in noted.items():
                if self._noted[minute] is of_minute:
                    del self._noted[minute]


@contextmanager
def own_tables(config: DerivedConfig) -> Generator[None]:
    """Keep others from making the same tables.

    Raises:
        StoreError: `pipeline.busy`, another process makes them; raised on entering.
    """
    with ExitStack() as owned:
        try:
            owned.enter_context(own_checkpoint(config.checkpoint_dir, seconds=0))
        except StoreError as error:
            text = f"another process, such as a sink's job, makes {config.silver_dir} already"
            raise StoreError("pipeline.busy", text) from error
        yield


class Derived:
    """The tables made of one bronze table.

    Args:
        session: Spark.
        config: which tables there are, and how they are made.
        drain_file: made when it is to end: while this file exists, silver begins no batch.
    """

    def __init__(self, session: SparkSession, config: DerivedConfig, drain_file: Path) -> None:
        self._session = session
        self._config = config
        self._drain_file = drain_file
        drain_file.parent.mkdir(parents=True, exist_ok=True)
        drain_file.unlink(missing_ok=True)
        self._bronze_dir = absolute(config.bronze_dir)
        self._silver_dir = absolute(config.silver_dir)
        self._bronze_log, self._silver_log = TableLog(self._bronze_dir), TableLog(self._silver_dir)
        self._maintenance = Maintenance(self._silver_dir, config.compact_commits)
        self._places = config.locations
        self._silver = Part("silver", self._places)
        self._behind, self._look_at = Behind(self._bronze_log), 0.0
        self._query: StreamingQuery | None = None
        self._batch_id: int | None = None
        self._start_at = 0.0
        self._owned = ExitStack()
        self._is_owner = False
        views = [view_of(one) for one in config.views]
        duties: list[Duty] = []
        self._lag: LagNotes | None = None
        if config.gold_dir is not None:
            gold_dir = absolute(config.gold_dir)
            views = [*gold_views(gold_dir), *views]
            self._lag = LagNotes(f"{gold_dir.rstrip('/')}/{LAG.name}")
            duties.append(Duty(Part("gold/lag", self._places), self._lag.write))
        source = (self._bronze_dir, self._silver_dir)
        made = [duty_of(ViewQuery(view, SilverSource(*source))) for view in views]
        self._views = Duties([*made, *duties], lambda: self._is_owner)

    def run_once(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Take in what bronze has now, and return.

        Args:
            say: is told of every table that is done.

        Raises:
            RillnodeError: a table is another, or was changed.
            PySparkException: the query failed.
        """
        self._own()
        self._start_silver({"availableNow": True}).awaitTermination()
        sweep(self._silver_dir, Erasures(self._bronze_dir).erased())
        silver = self._silver_log.open()
        say(f"silver has {0 if silver is None else silver.count():,} rows")
        self._views.run_once(say)

    def start(self) -> None:
        """Begin to run; `step` keeps it running."""
        self._views.start()

    def step(self) -> None:
        """Start the query or start it again, and keep its table in order; takes little time."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._look()
        try:
            if self._query is None:
                self._start_if_due()
            elif not self._query.isActive:
                query, self._query = self._query, None
                query.awaitTermination()  # raises what it failed with
            else:
                self._follow(self._query)
        except SPARK_FAILURES as error:
            # The first progress of the query that is started next tells that it works again.
            self._batch_id = None
            self._start_at = time.monotonic() + self._silver.failed(error)

    def finish(self, deadline: float | None = None) -> None:
        """Let batch and step end, and stop.

        Args:
            deadline: when to stop waiting for them, by the monotonic clock.
        """
        if deadline is None:
            deadline = time.monotonic() + STOP_SECONDS
        query = self._query
        if query is not None:
            self._drain_file.touch()
            while query.isActive and query.status["isTriggerActive"]:
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_SECONDS)
            query.stop()
            self._drain_file.unlink(missing_ok=True)
        self._views.finish(deadline)
        self._owned.close()

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table, for the job's report."""
        return {self._silver.name: self._silver.report(), **self._views.report()}

    def note_lag(self, committed: Mapping[str, Positions], latest: Positions) -> None:
        """Note what the consumers of the streams have committed, and where the streams end."""
        if self._lag is not None:
            self._lag.note(committed, latest, datetime.now(UTC))

    def _start_if_due(self) -> None:
        # Without a first version of bronze there is nothing to follow.
        if time.monotonic() >= self._start_at and self._bronze_log.open() is not None:
            self._own()
            interval = f"{round(self._config.trigger_seconds * 1000)} milliseconds"
            self._query = self._start_silver({"processingTime": interval})

    def _own(self) -> None:
        if not self._is_owner:
            self._owned.enter_context(own_tables(self._config))
            self._is_owner = True

    def _start_silver(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        return start_silver(
            self._session,
            bronze=self._bronze_dir,
            table=self._silver_dir,
            checkpoint=absolute(self._config.checkpoint_dir),
            drain_file=self._drain_file,
            rows_max=self._config.batch_rows_max,
            duplicate_seconds=self._config.duplicate_seconds,
            key_files=self._config.key_files,
            trigger=trigger,
        )

    def _look(self) -> None:
        """Note how far silver is behind bronze."""
        # Where nobody can know, the last figures stay; what is made of bronze says why.
        with suppress(*SPARK_FAILURES):
            bronze = self._bronze_log.open()
            if bronze is not None:
                silver = saved_position(self._silver_log.open(), str(bronze.metadata().id))
                found = self._behind.look(bronze, {"silver": silver}, datetime.now(UTC))
                self._silver.behind = found.get("silver", self._silver.behind)

    def _follow(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress.batchId != self._batch_id:
            self._batch_id = progress.batchId
            self._silver.worked()
        table = self._silver_log.open()
        done = None if table is None else self._maintenance.step(table)
        if done:
            print(f"silver: {done}", file=sys.stderr, flush=True)


_NEW: Final = ".replay"
_OLD: Final = ".replaced"


def replay(
    session: SparkSession, config: DerivedConfig, drain_file: Path, say: Callable[[str], None]
) -> None:
    """Make the tables anew; returns when they are in their place.

    Only local tables: an object store cannot put a directory in the place of another.

    Raises:
        ConfigError: a table is not local.
        StoreError: `pipeline.busy`, a job is making these tables.
    """
    silver, checkpoint = _local(config.silver_dir), _local(config.checkpoint_dir)
    gold = None if config.gold_dir is None else _local(config.gold_dir)
    views = [_local(one.dir) for one in config.views]
    places = [silver, *views] if gold is None else [silver, gold, *views]
    if not checkpoint.is_relative_to(silver):
        places.append(checkpoint)
    for place in places:
        shutil.rmtree(_beside(place, _NEW), ignore_errors=True)
    fresh = replace(
        config,
        silver_dir=str(_beside(silver, _NEW)),
        gold_dir=None if gold is None else str(_beside(gold, _NEW)),
        views=tuple(
            replace(one, dir=str(_beside(place, _NEW)))
            for one, place in zip(config.views, views, strict=True)
        ),
        checkpoint_dir=str(
            _beside(silver, _NEW) / checkpoint.relative_to(silver)
            if checkpoint.is_relative_to(silver)
            else _beside(checkpoint, _NEW)
        ),
    )
    with own_tables(config):
        derived = Derived(session, fresh, drain_file)
        derived.run_once(say)
        derived.finish()
        if gold is not None and (gold / LAG.name).exists():
            # The lag was told by the job that landed bronze; nothing can tell it again.
            shutil.copytree(gold / LAG.name, _beside(gold, _NEW) / LAG.name)
        for place in places:
            _put_in_place(place)
            say(f"made anew: {place}")


def _put_in_place(place: Path) -> None:
    old, new = _beside(place, _OLD), _beside(place, _NEW)
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    if new.exists():  # without any bronze there is nothing to make
        new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)


def _local(location: str) -> Path:
    path = local_path(location)
    if path is None:
        raise ConfigError("spark.table", f"{location} is not local; only local tables are replayed")
    return path
