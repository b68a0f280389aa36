"""Tells how a job's batches and tables are, and makes those in a thread that are made step by step.

A table that fails holds up no other: it is told of, and tried again after growing pauses.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from deltalake import DeltaTable

from rillnode.actors.core.threads import Running, SystemThreads
from rillnode.actors.spark.sink_job import PASSING_CODE, VIEWS
from rillnode.node.spark.delta_log import Position, TableLog
from rillnode.node.spark.explaining import FAILURES, explain_end, first_line
from rillnode.node.spark.job_config import TypedConfig, ViewConfig
from rillnode.node.spark.offsets import Offset, Positions
from rillnode.node.spark.views.planning import View
from rillnode.node.spark.views.query import TypedSource, ViewQuery

LOOK_SECONDS: Final = 5.0
"""Time between two looks."""
VERSIONS_MAX: Final = 20
"""Versions whose log one look reads: a request each, where the table lies in an object store."""
BACKOFF_SECONDS: Final = (5.0, 15.0, 60.0)
"""Time between attempts of a table that fails; the last for all further ones."""


class _Version(NamedTuple):
    rows: int
    time_ms: int


class Behind:
    """Counts, version by version, what of a table others have not taken in.

    Args:
        log: the table's log.
    """

    def __init__(self, log: TableLog) -> None:
        self._log = log
        self._versions: dict[int, _Version] = {}

    def look(
        self, table: DeltaTable, positions: Mapping[str, Position | None], now: datetime
    ) -> dict[str, dict[str, int]]:
        """What lies behind each position, by its name.

        Args:
            table: the table as of now.
            positions: None where it is not known.
            now: the time.

        Returns:
            `versions_behind`, and as soon as these versions are counted `rows_behind` and
            `seconds_behind`: how long the first of these rows has been in the table. Nothing for a
            position in another table.

        Raises:
            StoreError: the log does not reach back that far.
            DeltaError, OSError: the table is not reached.
        """
        latest, now_ms = table.version(), round(now.timestamp() * 1_000)
        source = str(table.metadata().id)
        here = {name: one for name, one in positions.items() if one and one.table == source}
        begun = {name: one for name, one in here.items() if one.version >= 0}
        self._count(1 + min((one.version for one in begun.values()), default=latest), latest)
        found = {name: self._behind(one, latest, now_ms) for name, one in begun.items()}
        if fresh := here.keys() - begun.keys():
            whole = {"versions_behind": latest + 1, "rows_behind": table.count()}
            found |= dict.fromkeys(fresh, whole)
        return found

    def _count(self, first: int, latest: int) -> None:
        """Note what the versions from `first` on have added, as many as one look may read."""
        self._versions = {number: one for number, one in self._versions.items() if number >= first}
        missing = [number for number in range(first, latest + 1) if number not in self._versions]
        for number in missing[:VERSIONS_MAX]:
            found = self._log.version(number)
            # A position that rewritten rows stand before stays there, and they wait behind it.
            rows = sum(file.rows for file in found.files)
            self._versions[number] = _Version(rows, found.time_ms)

    def _behind(self, position: Position, latest: int, now_ms: int) -> dict[str, int]:
        found = {"versions_behind": latest - position.version}
        numbers = range(position.version + 1, latest + 1)
        if any(number not in self._versions for number in numbers):
            return found
        # All rows of the base have come at one time, and some may be left of it.
        base = _Version(self._log.rows_left_of_base(position), position.time_ms)
        versions = [base, *(self._versions[number] for number in numbers)]
        waiting = [version for version in versions if version.rows]
        first_ms = waiting[0].time_ms if waiting else now_ms
        found["rows_behind"] = sum(version.rows for version in waiting)
        found["seconds_behind"] = max(0, now_ms - first_ms) // 1_000
        return found


class Part:
    """One table's query, as people are told of it: whether it works, and if not, why.

    Args:
        name: the table's.
        places: directories and URIs without which it cannot work.

    Attributes:
        behind: how far it is behind bronze, as far as that is known.
    """

    def __init__(self, name: str, places: Sequence[str]) -> None:
        self.name = name
        self.behind: dict[str, int] = {}
        self._places = places
        self._failures = 0
        self._error: str | None = None
        self._passes = False

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        self._error, code = explain_end(error, self._places)
        self._passes = code == PASSING_CODE
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        text = f"{self.name} failed, next attempt in {delay:g} s: {self._error}"
        print(text, file=sys.stderr, flush=True)
        return delay

    def abandoned(self, error: BaseException) -> None:
        """Note that nobody makes the table any more before the job is started anew."""
        self._error = f"the thread that makes it has ended: {first_line(error)}"
        self._passes = False
        self._failures += 1

    def worked(self) -> None:
        """Note progress: the next failure is a first one again."""
        self._failures, self._error = 0, None

    def report(self) -> dict[str, object]:
        """The part's state, for the job's report."""
        if self._error is None:
            return {"state": "running", **self.behind}
        state = "waiting" if self._passes else "failed"
        return {"state": state, "failures": self._failures, "error": self._error, **self.behind}


class Batch(NamedTuple):
    """One trigger of a query.

    Attributes:
        batch_id: number of the batch.
        executed: False for a trigger that found nothing to do.
        seconds: how long it took.
        end: where it ended.
        latest: the ends of the streams when it was planned.
    """

    batch_id: int
    executed: bool
    seconds: float
    end: Offset
    latest: Positions

    @property
    def rows_behind(self) -> int:
        """Entries that were waiting behind this batch."""
        done = self.end.positions
        return sum(max(0, until - done.get(key, 0)) for key, until in self.latest.items())


def report_of(batch: Batch, written: dict[str, Any]) -> dict[str, object]:
    """The job's report on a batch, for the node's status."""
    report: dict[str, object] = {
        "batch": batch.batch_id,
        "state": "running" if batch.executed else "waiting",
        "rows_behind": batch.rows_behind,
    }
    if batch.executed:
        rows = int(written.get("rows", 0))
        speed = round(rows / batch.seconds) if batch.seconds else 0
        report |= {"seconds": batch.seconds, "rows_per_second": speed, **written}
    return report


VIEW_SECONDS: Final = 20.0
"""Time between two steps of a view; each writes the table's last file anew."""
_POLL_SECONDS: Final = 0.25


class Made(Protocol):
    """A table that is made of another.

    Attributes:
        position: how far in the other's log it has come; None where it is not known.
    """

    position: Position | None

    @property
    def followed(self) -> str:
        """Directory or URI of the other table."""
        ...

    def figures(self) -> dict[str, object]:
        """What is told of the table."""
        ...


@dataclass(slots=True)
class Duty:
    """A duty that the thread does again and again.

    Attributes:
        part: as what it is told of.
        step: does some of it; returns whether there may be more.
        made: the table that it makes of another, None where it makes none.
        due_at: when it is next done, by the monotonic clock.
        figures: what is told of a view's table.
    """

    part: Part
    step: Callable[[], bool | None]
    made: Made | None = None
    due_at: float = 0.0
    figures: dict[str, object] = field(default_factory=dict[str, object])
    _behind: Behind | None = field(default=None, init=False)

    def look(self) -> None:
        """Note how far a view is behind what it is made of."""
        if self.made is None:
            return
        log = TableLog(self.made.followed)
        table = log.open()
        if table is None:
            return
        self._behind = self._behind or Behind(log)
        found = self._behind.look(table, {"": self.made.position}, datetime.now(UTC))
        self.part.behind = found.get("", self.part.behind)


def view_of(config: ViewConfig) -> View:
    """A view as a job's configuration has it."""
    return View(name=config.name, sql=config.sql, slot=config.slot, dir=config.dir)


def duty_of(query: ViewQuery) -> Duty:
    """The duty of making a view."""
    view = query.view
    name = f"{VIEWS}{view.name}" if view.gold is None else f"gold/{view.name}"
    return Duty(Part(name, [view.dir]), query.step, query)


def typed_views(views: Sequence[ViewConfig], tables: Sequence[TypedConfig]) -> "Duties":
    """What makes views of typed tables."""
    places = {one.name: one.dir for one in tables}
    sources = [(one, TypedSource(one.of, places[one.of])) for one in views]
    return Duties([duty_of(ViewQuery(view_of(one), source)) for one, source in sources])


class Duties:
    """Does what has to be done, in a thread.

    Args:
        duties: what.
        may_run: whether a view may be made now.
        pause_seconds: time between two steps of what has nothing more to do.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        may_run: Callable[[], bool] = lambda: True,
        pause_seconds: float | None = None,
    ) -> None:
        self.duties = duties
        self._pause_seconds = pause_seconds
        self._may_run = may_run
        self._stop = threading.Event()
        self._thread: Running | None = None

    def run_once(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Make every view of what there is now, and return.

        Raises:
            RillnodeError: one cannot be made.
        """
        for one in self.duties:
            if one.made is not None:
                while one.step():
                    continue
                say(f"{one.part.name} is made")

    def start(self) -> None:
        """Begin to run."""
        if self.duties:
            name = self.duties[0].part.name
            self._thread = SystemThreads(self._ended).start(self._run, name)

    def finish(self, deadline: float) -> None:
        """Let the running step end, and stop; not later than `deadline`, by the monotonic clock."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table, for the job's report."""
        return {one.part.name: {**one.part.report(), **one.figures} for one in self.duties}

    def _run(self) -> None:
        look_at = 0.0
        while not self._stop.wait(_POLL_SECONDS):
            for one in self.duties:
                may_run = one.made is None or self._may_run()
                if may_run and not self._stop.is_set() and time.monotonic() >= one.due_at:
                    one.due_at = time.monotonic() + self.attempt(one)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_SECONDS
                for one in self.duties:
                    # Where nobody can know, the last figures stay; the step tells why.
                    with suppress(*FAILURES):
                        one.look()
        for one in self.duties:
            if one.made is None:  # what was only noted until now
                self.attempt(one)

    def attempt(self, one: Duty) -> float:
        """Take a step; returns the seconds to wait before the next."""
        try:
            moved = one.step()
            if one.made is not None and (moved or not one.figures):
                one.figures = one.made.figures()
        except BaseException as error:
            # Whatever it is, a panic of native code too: without the thread all would stand still.
            # When the job stops under a step, that is no failure of the table's.
            is_over = self._stop.is_set() and one.made is not None
            return 0.0 if is_over else one.part.failed(error)
        one.part.worked()
        if moved:
            return 0.0
        return VIEW_SECONDS if self._pause_seconds is None else self._pause_seconds

    def _ended(self, _name: str, error: BaseException) -> None:
        for one in self.duties:
            one.part.abandoned(error)
