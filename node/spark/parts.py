"""Tells how the tables are that a job makes of bronze, and makes them what this version expects."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rillnode.actors.spark.sink_job import PASSING_CODE
from rillnode.node.spark.delta import upgrade_statistics
from rillnode.node.spark.explaining import FAILURES, explain, first_line
from rillnode.node.spark.files import absolute
from rillnode.node.spark.places import explain_end

BACKOFF_SECONDS: Final = (5.0, 15.0, 60.0)


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
