"""Runs the queries of a sink's typed tables in a thread of its job, beside bronze, silver and gold.

A table that fails holds up no other: it is told of, and tried again after growing pauses.
"""

import hashlib
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from rillnode.actors.core.patterns import matcher
from rillnode.actors.core.threads import Running, SystemThreads
from rillnode.actors.spark.sink_job import TYPED_TABLES
from rillnode.node.spark.bronze import streams_in
from rillnode.node.spark.delta_log import Position, TableLog
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.explaining import FAILURES
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.parts import LOOK_SECONDS, Behind, Part
from rillnode.node.spark.typed.judging import COUNTS
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.schemas import STREAM
from rillnode.node.spark.typed.work import Engine

_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)
_LOWER: Final = re.compile(r"[a-z0-9_]+")
_POLL_SECONDS: Final = 0.25
MERGE_PAUSES: Final = 9
"""Time after a merge into a table with a key, in times of what it took: it has a tenth of all."""
MERGE_PAUSE_MAX: Final = 60.0
KEEP_SECONDS: Final = 3_600.0
"""Time between two looks for rows that are too old, of a table that gets no new ones."""


def part_name(table: str) -> str:
    """As what a job's report names a typed table."""
    return f"{TYPED_TABLES}{table}"


def directory_of(stream: str) -> str:
    """The name of a stream's own directory: the stream's, where that can be one."""
    if _PLAIN.fullmatch(stream) and not stream.startswith((".", "_")):
        return stream
    digest = hashlib.blake2b(stream.encode(), digest_size=4).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9.-]', '.', stream)[:100].lstrip('.')}-{digest}"


def table_of(stream: str) -> str:
    """The name of a stream's own table in a catalog, where dots part names and cases are one."""
    if _LOWER.fullmatch(stream):
        return stream
    digest = hashlib.blake2b(stream.encode(), digest_size=4).hexdigest()
    return f"{re.sub(r'[^a-z0-9_]', '_', stream.lower())[:100]}_{digest}"


def of_stream(config: TypedConfig, stream: str) -> TypedConfig:
    """The table of one stream, of a table for each stream."""
    place = config.dir.replace(STREAM, directory_of(stream))
    table = config.table.replace(STREAM, table_of(stream))
    return replace(config, dir=place, table=table, streams=(stream,))


@dataclass(slots=True)
class _Query:
    """A table's query, and when it takes its next step, by the monotonic clock.

    Attributes:
        keep_at: when rows that are too old are looked for.
    """

    query: TypedQuery
    part: Part
    due_at: float = 0.0
    keep_at: float = 0.0

    def is_to_keep(self) -> bool:
        """Whether it is time to look for rows that are too old."""
        days = self.query.config.layout.keep_days
        return days is not None and time.monotonic() >= self.keep_at


class TypedTables:
    """The typed tables made of one bronze table.

    Args:
        configs: which.
        bronze: the bronze table.
        engine: does the work.
        tasks_max: tasks of a step that is large enough for them.
        trigger_seconds: time between two looks at bronze.
    """

    def __init__(
        self,
        configs: Sequence[TypedConfig],
        bronze: str,
        engine: Engine,
        *,
        tasks_max: int = 1,
        trigger_seconds: float = 5.0,
    ) -> None:
        self._configs = configs
        self._engine = engine
        self._tasks_max = tasks_max
        self._trigger_seconds = trigger_seconds
        self._log = TableLog(bronze)
        self._erasures = Erasures(bronze)
        self._behind, self._look_at = Behind(self._log), 0.0
        self._seen: Position | None = None
        self._found_in: int | None = None
        self._queries: dict[tuple[str, str], _Query] = {}
        self._figures: dict[tuple[str, str], dict[str, object]] = {}
        self._stop, self._news = threading.Event(), threading.Event()
        self._thread: Running | None = None
        for config in configs:
            if not config.of_each_stream:
                self._add(config, "")

    def run_once(self) -> None:
        """Take in what bronze has now, and return.

        Raises:
            RillnodeError: a table cannot be made.
        """
        self._find_streams()
        for one in self._queries.values():
            while one.query.step():
                continue

    def start(self) -> None:
        """Begin to run."""
        if self._configs:
            self._thread = SystemThreads(self._ended).start(self._run, "tables")

    def tell(self) -> None:
        """Tell that bronze has changed: it is looked at now, and not when it is time to."""
        self._news.set()

    def finish(self, deadline: float) -> None:
        """Let the running step end, and stop; not later than `deadline`, by the monotonic clock."""
        self._stop.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table, for the job's report; those of single streams are one."""
        report: dict[str, dict[str, object]] = {}
        for config in self._configs:
            mine = [key for key in list(self._queries) if key[0] == config.name]
            parts = [self._queries[key].part.report() for key in mine]
            told: dict[str, Any] = min(
                parts, key=lambda one: _ORDER.index(str(one["state"])), default={"state": "running"}
            )
            figures: list[dict[str, Any]] = [self._figures.get(key, {}) for key in mine]
            summed = {
                name: sum(int(str(one.get(name, 0))) for one in figures)
                for name in ("rows", "rejects", *COUNTS)
            }
            version = max((int(str(one.get("schema_version", 0))) for one in figures), default=0)
            unexpected = {
                one.name: sum(each.get("unexpected", {}).get(one.name, 0) for each in figures)
                for one in config.expect
            }
            shown = {"schema_version": version, "unexpected": unexpected, **_sizes(figures)}
            report[part_name(config.name)] = {**told, **summed, **shown}
        return report

    def _add(self, config: TypedConfig, stream: str) -> None:
        if stream:
            config = of_stream(config, stream)
        query = TypedQuery(
            config,
            self._log,
            self._engine,
            tasks_max=self._tasks_max,
            erasures=self._erasures,
        )
        part = Part(part_name(config.name), [config.dir] if config.dir else [])
        self._queries[config.name, stream] = _Query(query, part)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.is_set():
            self._news.wait(pause)
            self._news.clear()
            version = self._version()
            if version is None or version != self._found_in:
                with suppress(*FAILURES):  # what is wrong with bronze, the queries meet and tell
                    self._find_streams()
                    self._found_in = version
            # Of hundreds of tables most have nothing to do, and are not even looked at.
            waiting = {
                key: one
                for key, one in self._queries.items()
                if version is None or one.query.caught_up_with != version or one.is_to_keep()
            }
            for key, one in waiting.items():
                if not self._stop.is_set() and time.monotonic() >= one.due_at:
                    one.due_at = time.monotonic() + self._attempt(key, one)
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_SECONDS
                self._look()
            pause = _POLL_SECONDS if waiting else max(_POLL_SECONDS, self._trigger_seconds)

    def _version(self) -> int | None:
        """The version that bronze has now; None where nobody knows."""
        with suppress(*FAILURES):  # the queries meet it, too, and tell
            bronze = self._log.open()
            return None if bronze is None else bronze.version()
        return None

    def _attempt(self, key: tuple[str, str], one: _Query) -> float:
        """Take a step of a table; returns the seconds to wait before its next."""
        began_at = time.monotonic()
        try:
            moved = one.query.step()
            if moved or key not in self._figures or one.is_to_keep():
                if done := one.query.maintain():
                    print(f"{one.part.name}: {done}", file=sys.stderr, flush=True)
                else:
                    one.keep_at = time.monotonic() + KEEP_SECONDS
                self._figures[key] = one.query.figures()
        except BaseException as error:
            # Whatever it is, a panic of native code too: without the thread all tables would stand
            # still. When the session stops under a step, that is no failure of the table's.
            return 0.0 if self._stop.is_set() else one.part.failed(error)
        one.part.worked()
        if moved and one.query.config.layout.key and one.query.is_level():
            # What comes meanwhile is merged at once, so that fewer files are written anew.
            return min(MERGE_PAUSE_MAX, MERGE_PAUSES * (time.monotonic() - began_at))
        return 0.0 if moved else self._trigger_seconds

    def _ended(self, _name: str, error: BaseException) -> None:
        for one in self._queries.values():
            one.part.abandoned(error)

    def _find_streams(self) -> None:
        """Find the streams that have tables of their own, in what is new in bronze."""
        wanted = [config for config in self._configs if config.of_each_stream]
        bronze = self._log.open() if wanted else None
        if bronze is None:
            return
        start = self._seen or Position(str(bronze.metadata().id))
        end = self._log.plan(start, None)
        for name in sorted(streams_in(self._log.uris(self._log.files_between(start, end)))):
            for config in wanted:
                known = (config.name, name) in self._queries
                if not known and any(matcher(one)(name) for one in config.streams):
                    self._add(config, name)
        self._seen = end

    def _look(self) -> None:
        """Note how far the tables are behind bronze."""
        with suppress(*FAILURES):  # the queries meet it, too, and tell
            bronze = self._log.open()
            if bronze is None:
                return
            queries = {" ".join(key): one for key, one in self._queries.items()}
            positions = {name: one.query.position for name, one in queries.items()}
            found = self._behind.look(bronze, positions, datetime.now(UTC))
            for name, one in queries.items():
                one.part.behind = found.get(name, one.part.behind)


def _sizes(figures: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Files and bytes of some tables, and the last commit of all."""
    known = [one for one in figures if "files" in one]
    if not known:
        return {}
    summed = {name: sum(one[name] for one in known) for name in ("files", "bytes")}
    return {**summed, "committed_at": max(one["committed_at"] for one in known)}


_ORDER: Final = ("failed", "waiting", "running")
