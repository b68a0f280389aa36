"""A sink's job: a child process that is started, started again with backoff, and given keys.

A job that only ever fails is parked: whatever is wrong, starting it again does not mend it, and
costs what a start of Spark costs. It stays so until somebody resumes it. One that ends because of
what passes, as when the store of its tables is away, waits and is tried for ever. One that cannot
even be started is dealt with in the same way.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from rillnode.actors.core.access import Access
from rillnode.actors.ports import JobLauncher, JobProcess
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.spark.sink_job")

BACKOFF_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

FAILURES_MAX: Final = 8
"""Failures in a row, without progress between them, after which a job is parked. What passes does
not count. Own choice: about three minutes and eight starts of Spark."""

KEY_SECONDS: Final = 3_600.0
"""How long a job's key is given out; it is taken for as long again, for links made meanwhile."""

KEY_RETRY_SECONDS: Final = 60.0
"""Time to the next try where no new key can be given out; the one before is good until then."""

CONFIGURATION_CODE: Final = 2
"""Exit code of a job whose configuration is wrong: it is parked at once."""
PASSING_CODE: Final = 3
"""Exit code of a job that did not reach the node or the store of its tables, or for which the
machine was too busy. That passes: it is never parked."""

State = Literal[
    "starting",
    "running",
    "waiting",
    "waiting to start again",
    "parked",
    "pausing",
    "paused",
    "stopping",
    "stopped",
    "external",
]

BRONZE: Final = "bronze"
DERIVED_TABLES: Final = (
    "silver", "gold/minutes", "gold/chains", "gold/publishers", "gold/lag",
)  # fmt: skip
"""What a sink's job may make of bronze, as its report names it; other names are not told on."""

TYPED_TABLES: Final = "table/"
"""How the names of typed tables begin, in a job's report."""
VIEWS: Final = "view/"
"""How the names of views begin, in a job's report."""
TYPED_TABLES_MAX: Final = 100
"""Typed tables and views that a report may name beside those that the configuration has."""


class TableStatus(NamedTuple):
    """The state of one table of a sink.

    Attributes:
        state: "running"; "waiting" or "failed" where its query has ended and is tried again, the
            first because of what passes; "starting" before the job has told. While the job itself
            does not run, the state of the job.
        error: why it does not go on, and what to do about it; empty where it does.
    """

    state: str
    error: str = ""


@dataclass(slots=True)
class SinkStatus:
    """The state of a sink, read by the node's status.

    Attributes:
        kind: what its job is: "spark", "python" or "files", as in the configuration.
        tables: the tables that it is known to have, bronze first; its job may report more.
        state: "waiting" from an end because of what passes until there is progress again, also
            while a start is tried.
        failures: how often the job has ended without progress since it last made some.
        last_exit: code of its end, if it has made no progress since; where it could not be
            started, the code with which a job ends for such a reason.
        last_error: why it ended last, in its own words, or could not be started; kept for who
            looks later.
        committed_at: when its job last committed a batch, in ms since 1970; None: not since the
            node was started.
    """

    kind: str = "spark"
    tables: tuple[str, ...] = ()
    state: State = "starting"
    pid: int | None = None
    starts: int = 0
    failures: int = 0
    last_exit: int | None = None
    last_error: str = ""
    rows_behind: int = 0
    bytes_behind: int = 0
    committed_at: int | None = None
    report: dict[str, Any] = field(default_factory=dict[str, Any])

    def table_statuses(self) -> dict[str, TableStatus]:
        """How each of its tables is kept."""
        why = self.last_error if self.last_exit is not None else ""
        job = TableStatus(self.state, why)
        if self.state not in _AT_WORK:
            return dict.fromkeys(self._names(), job)
        unknown = TableStatus("external" if self.state == "external" else "starting")
        return {
            name: job if name == BRONZE else _told_of(self.report.get(name)) or unknown
            for name in self._names()
        }

    def _names(self) -> list[str]:
        typed = [name for name in self.report if name.startswith((TYPED_TABLES, VIEWS))]
        names = (*DERIVED_TABLES, *typed[:TYPED_TABLES_MAX])
        told = (name for name in names if _told_of(self.report.get(name)) is not None)
        return list(dict.fromkeys((*self.tables, *told)))

    def failing_tables(self) -> dict[str, TableStatus]:
        """The tables that do not go on although the job runs."""
        if self.state not in _AT_WORK:
            return {}
        return {
            name: table
            for name, table in self.table_statuses().items()
            if table.state in ("failed", "waiting")
        }

    def worst_state(self) -> str:
        """The state of the job, or of its worst table where the job itself runs."""
        states = {table.state for table in self.failing_tables().values()}
        return next((state for state in ("failed", "waiting") if state in states), self.state)

    @property
    def error(self) -> str:
        """Why the job has ended, or tables are not kept; empty where all has worked since."""
        if self.last_exit is not None:
            return self.last_error
        failing = self.failing_tables().items()
        return "; ".join(f"{name} {table.state}: {table.error}" for name, table in failing)

    def document(self) -> dict[str, Any]:
        """The status for people: the state is that of its worst part, tables are by name."""
        tables = {name: table._asdict() for name, table in self.table_statuses().items()}
        shown = {"state": self.worst_state(), "error": self.error, "tables": tables}
        return {**asdict(self), **shown}


_AT_WORK: Final = ("running", "external")


def _told_of(part: object) -> TableStatus | None:
    """What a job's report says of a table; None where it says nothing that is understood."""
    if not isinstance(part, dict):
        return None
    told = cast("dict[str, object]", part)
    state = told.get("state")
    if state not in ("running", "waiting", "failed"):
        return None
    return TableStatus(str(state), "" if state == "running" else str(told.get("error", "")))


class SinkJob:
    """The process and the keys of one sink's job.

    Args:
        launch: starts the process.
        issue_key: makes a new key, puts it where the job reads it, returns its principal; raises
            as `launch`.
        access: where keys are lent the sink's principal.
        external: somebody else starts the process; only its keys are looked after here.
        on_exit: told of the process's end, with its code.
    """

    def __init__(
        self,
        sink: str,
        *,
        launch: JobLauncher,
        issue_key: Callable[[str], str],
        access: Access,
        status: SinkStatus,
        on_exit: Callable[[int], None],
        external: bool = False,
    ) -> None:
        self.principal = f"sink/{sink}"
        self._sink = sink
        self._launch = launch
        self._issue_key = issue_key
        self._access = access
        self._status = status
        self._on_exit = on_exit
        self._process: JobProcess | None = None
        self._keys: list[str] = []
        self._stopping = False
        self._external = external
        self._halted = False
        self._faults = 0

    def start(self) -> float | None:
        """Start the process unless it runs, or was stopped, paused or parked.

        Returns:
            The pause before the next try where it could not be started and that passes.
        """
        if self._external:
            self._status.state = "external"
            return None
        if self._stopping or self._halted or self._process is not None:
            return None
        try:
            if not self._keys:
                self._lend_key()
            self._process = self._launch(self._sink, {}, self._on_exit)
        except RillnodeError as error:
            return self._failed(PASSING_CODE if error.retryable else CONFIGURATION_CODE, str(error))
        self._status.starts += 1
        if self._status.state != "waiting":
            self._status.state = "running"
        self._status.pid = self._process.pid
        logger.info("sink_started", extra={"sink": self._sink, "pid": self._process.pid})
        return None

    def ended(self, code: int) -> float | None:
        """Note the process's end; return the pause before the next start, None for never."""
        reason = self._process.last_words if self._process is not None else ""
        self._process = None
        status = self._status
        status.pid = None
        if self._stopping:
            status.last_exit = code
            self.stop()
            return None
        if self._halted:
            status.state = "paused"
            status.last_exit = None
            return None
        return self._failed(code, reason)

    def _failed(self, code: int, reason: str) -> float | None:
        """Note a failure; return the pause before the next start, None for never."""
        status = self._status
        delay = BACKOFF_SECONDS[min(status.failures, len(BACKOFF_SECONDS) - 1)]
        status.failures += 1
        status.last_exit, status.last_error = code, reason
        about = {"sink": self._sink, "code": code, "reason": reason}
        if code == PASSING_CODE:
            status.state = "waiting"
            logger.warning("sink_waiting", extra={**about, "start_again_seconds": delay})
            return delay
        self._faults += 1
        if code == CONFIGURATION_CODE or self._faults >= FAILURES_MAX:
            self._halted = True
            status.state = "parked"
            logger.error("sink_parked", extra={**about, "failures": status.failures})
            return None
        status.state = "waiting to start again"
        logger.warning("sink_job_ended", extra={**about, "start_again_seconds": delay})
        return delay

    def pause(self) -> None:
        """Let the process end after its batch, and start it only when resumed."""
        if self._stopping:
            return
        self._halted = True
        if self._process is None:
            self._status.state = "paused"
            self._status.last_exit = None
        else:
            self._status.state = "pausing"
            self._process.terminate()
        logger.info("sink_paused", extra={"sink": self._sink})

    def resume(self) -> float | None:
        """Start what was paused or parked, as `start`; one still ending is started when it has."""
        if not self._halted or self._stopping:
            return None
        self._halted = False
        self._forget_failures()
        logger.info("sink_resumed", extra={"sink": self._sink})
        return self.start()

    def healthy(self) -> None:
        """The job has made progress: its next failure is a first one again."""
        self._forget_failures()
        if self._status.state == "waiting":
            self._status.state = "running"
            logger.info("sink_goes_on", extra={"sink": self._sink})

    def renew_key(self) -> float | None:
        """Lend a new key to the job; return the time to the next one, None when stopped."""
        if self._stopping:
            return None
        try:
            self._lend_key()
        except RillnodeError as error:
            logger.warning("sink_key_failed", extra={"sink": self._sink, "reason": str(error)})
            return KEY_RETRY_SECONDS
        return KEY_SECONDS

    def _lend_key(self) -> None:
        """Lend a new key to the job, and take back the one before the last."""
        key = self._issue_key(self._sink)
        self._access.lend(key, self.principal)
        if key not in self._keys:
            self._keys.append(key)
        if len(self._keys) > 2:
            self._access.withdraw(self._keys.pop(0))

    def finish(self) -> None:
        """Let the process end after its batch, and never start it again.

        Its keys stay good until it has ended: to save what it committed it may have to connect.
        """
        self._stopping = True
        if self._process is None:
            self.stop()
        else:
            self._status.state = "stopping"
            self._process.terminate()

    def stop(self) -> None:
        """End the process for good and take back its keys."""
        self._stopping = True
        self._status.state = "stopped"
        if self._process is not None:
            self._process.terminate()
        while self._keys:
            self._access.withdraw(self._keys.pop())

    def _forget_failures(self) -> None:
        self._faults = self._status.failures = 0
        self._status.last_exit = None


def no_start(directory: Path, error: OSError) -> TransportError:
    """Why a job that needs `directory` could not be started: something that passes."""
    return TransportError(
        "job.start",
        f"the job cannot be started now: {directory}: {error}. Make room on that disk, let the "
        "node write there, or give it more processes, as the reason says; it is tried again",
    )
