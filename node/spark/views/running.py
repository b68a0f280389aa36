"""Makes views, and tables of functions, step by step in a thread of a job, one after the other.

One that fails holds up no other: it is told of, and tried again after growing pauses.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from rillnode.actors.core.threads import Running, SystemThreads
from rillnode.actors.spark.sink_job import VIEWS
from rillnode.node.spark.delta_log import Position, TableLog
from rillnode.node.spark.explaining import FAILURES
from rillnode.node.spark.job_config import TypedConfig, ViewConfig
from rillnode.node.spark.parts import LOOK_SECONDS, Behind, Part
from rillnode.node.spark.views.planning import View
from rillnode.node.spark.views.query import ViewQuery
from rillnode.node.spark.views.source import TypedSource

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
            self._thread = SystemThreads(self._ended).start(self._run, "views")

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
