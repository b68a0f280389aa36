"""Makes silver in a thread and, beside it in another, gold and other views of silver.

Bronze must land whatever happens to them, because the node keeps entries for it only this long. So
the failures of one end nothing, neither bronze nor another of them: they are told, and tried again
after growing pauses.

A replay makes them anew from bronze. Readers see the old tables until the new ones are whole. One
that dies leaves the old ones as they are; the next one begins again.
"""

import heapq
import shutil
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.erasure import Erasures, sweep
from rillnode.node.spark.files import absolute, local_path, own_checkpoint
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.offsets import Positions
from rillnode.node.spark.parts import Duties, Duty, Part, duty_of, view_of
from rillnode.node.spark.silver import SilverQuery
from rillnode.node.spark.tables import LAG
from rillnode.node.spark.typed.work import Engine
from rillnode.node.spark.upsert import upsert
from rillnode.node.spark.views.planning import gold_views
from rillnode.node.spark.views.query import SilverSource, ViewQuery

LAG_SECONDS: Final = 20.0
"""Time between two looks at the consumers."""
LAG_ROWS_MAX: Final = 10_000
"""Rows of one minute; beyond, those furthest behind. Own choice: a node may have 100,000 streams,
each with consumers of its own."""
STOP_SECONDS: Final = 20.0


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
        config: which tables there are, and how they are made.
        engine: does the work of silver's tasks.
        tasks_max: tasks of a step of silver that is large enough for them.
    """

    def __init__(self, config: DerivedConfig, engine: Engine, tasks_max: int = 1) -> None:
        self._config = config
        self._bronze_dir = absolute(config.bronze_dir)
        self._silver_dir = absolute(config.silver_dir)
        self._query = SilverQuery(config, engine, tasks_max)
        self._owned = ExitStack()
        self._is_owner = False
        self._silver = Duties(
            [Duty(Part("silver", config.locations), self._step, self._query)],
            pause_seconds=config.trigger_seconds,
        )
        views = [view_of(one) for one in config.views]
        duties: list[Duty] = []
        self._lag: LagNotes | None = None
        if config.gold_dir is not None:
            gold_dir = absolute(config.gold_dir)
            views = [*gold_views(gold_dir), *views]
            self._lag = LagNotes(f"{gold_dir.rstrip('/')}/{LAG.name}")
            duties.append(Duty(Part("gold/lag", config.locations), self._lag.write))
        source = (self._bronze_dir, self._silver_dir)
        made = [duty_of(ViewQuery(view, SilverSource(*source))) for view in views]
        self._views = Duties([*made, *duties], lambda: self._is_owner)

    def run_once(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Take in what bronze has now, and return.

        Args:
            say: is told of every table that is done.

        Raises:
            RillnodeError: a table is another, or was changed.
        """
        self._own()
        while self._query.step():
            continue
        sweep(self._silver_dir, Erasures(self._bronze_dir).erased())
        silver = open_table(self._silver_dir)
        say(f"silver has {0 if silver is None else silver.count():,} rows")
        self._views.run_once(say)

    def start(self) -> None:
        """Begin to run."""
        self._silver.start()
        self._views.start()

    def finish(self, deadline: float | None = None) -> None:
        """Let the running steps end, and stop.

        Args:
            deadline: when to stop waiting for them, by the monotonic clock.
        """
        if deadline is None:
            deadline = time.monotonic() + STOP_SECONDS
        self._silver.finish(deadline)
        self._views.finish(deadline)
        self._query.close()
        self._owned.close()

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table, for the job's report."""
        return {**self._silver.report(), **self._views.report()}

    def note_lag(self, committed: Mapping[str, Positions], latest: Positions) -> None:
        """Note what the consumers of the streams have committed, and where the streams end."""
        if self._lag is not None:
            self._lag.note(committed, latest, datetime.now(UTC))

    def _step(self) -> bool:
        self._own()
        return self._query.step()

    def _own(self) -> None:
        if not self._is_owner:
            self._owned.enter_context(own_tables(self._config))
            self._is_owner = True


_NEW: Final = ".replay"
_OLD: Final = ".replaced"


def replay(
    config: DerivedConfig, engine: Engine, say: Callable[[str], None], tasks_max: int = 1
) -> None:
    """Make the tables anew; returns when they are in their place.

    Only local tables: an object store cannot put a directory in the place of another.

    Args:
        config: the tables.
        engine: does the work of silver's tasks.
        say: is told of every table that is done.
        tasks_max: as of `Derived`.

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
        derived = Derived(fresh, engine, tasks_max)
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
