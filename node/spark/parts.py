"""Tells how the tables are that a job makes of bronze, and makes them what this version expects."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from deltalake import DeltaTable

from rillnode.actors.spark.sink_job import PASSING_CODE
from rillnode.node.spark.delta import upgrade_statistics
from rillnode.node.spark.delta_log import Position, TableLog
from rillnode.node.spark.explaining import FAILURES, explain, explain_end, first_line
from rillnode.node.spark.files import absolute

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


def upgrade_tables(locations: Iterable[str]) -> None:
    """Make the tables that exist tell what their files' statistics are about, and say so.

    One that cannot be upgraded now stops none of the others: its own query tells why it fails.
    """
    for location in locations:
        try:
            done = upgrade_statistics(absolute(location))
        except FAILURES as error:
            done = f"{location} keeps its statistics: {explain(error)[0]}"
        if done:
            print(done, file=sys.stderr, flush=True)
