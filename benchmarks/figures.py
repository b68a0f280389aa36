"""Figures, their medians and ratios, and how they are shown."""

import json
import statistics
import subprocess
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.jobs import Result
from benchmarks.servers import FLOOR, RILLNODE

LOAD: Final = "client_cpu_us"
"""What the load generator itself takes: no merit of a server."""

_FAILURES: Final = (OSError, RuntimeError, EOFError, subprocess.SubprocessError)
"""What becomes of a peer that cannot start, or of its load."""

LESS_IS_BETTER: Final = ("_ms", "_us", "_bytes", "lost", "wrong", "holes")


class Sink(Protocol):
    """Takes what a case measures, and what it could not."""

    def add(self, case: str, workload: str, system: str, result: Result) -> None:
        """Take one round of one system."""
        ...

    def note(self, text: str) -> None:
        """Take a remark for whoever reads the figures."""
        ...

    def has_failed(self, system: str) -> bool:
        """Whether a peer is left out from now on."""
        ...

    def trying(self, system: str) -> AbstractContextManager[None]:
        """Start and measure a system: a peer that fails costs its own figures only."""
        ...


@dataclass(slots=True)
class Series:
    """The rounds of one system under one workload."""

    case: str
    workload: str
    system: str
    rounds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def median(self, metric: str) -> float:
        """The median of a metric's rounds."""
        return statistics.median(self.rounds[metric])


class Figures:
    """All that one run measures; satisfies `Sink`."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}
        self.notes: list[str] = []
        self._failed: set[str] = set()

    def add(self, case: str, workload: str, system: str, result: Result) -> None:
        """Take one round of one system."""
        key = (case, workload, system)
        series = self._series.setdefault(key, Series(*key))
        for metric, value in result.items():
            series.rounds.setdefault(metric, []).append(value)

    def note(self, text: str) -> None:
        """Take a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def has_failed(self, system: str) -> bool:
        """Whether a peer is left out from now on."""
        return system in self._failed

    @contextmanager
    def trying(self, system: str) -> Generator[None]:
        """Start and measure a system: a peer that fails costs its own figures only.

        A system whose name begins with rillnode's is no peer.
        """
        try:
            yield
        except _FAILURES as error:
            if system.startswith(RILLNODE):
                raise
            self._failed.add(system)
            reason = str(error).strip().splitlines()
            self.note(f"without {system} from here on: {reason[-1] if reason else error!r}")

    def total(self, metric: str) -> float:
        """The sum of a metric over all systems and rounds."""
        return sum(sum(series.rounds.get(metric, ())) for series in self._series.values())

    def documents(self, case: str = "") -> Iterator[dict[str, Any]]:
        """One document for each median, with its rounds and rillnode's ratio to it.

        The ratio is above 1 where rillnode is the better one, whatever the metric.
        """
        for series in self._series.values():
            if case and series.case != case:
                continue
            for metric, rounds in series.rounds.items():
                yield {
                    "case": series.case,
                    "workload": series.workload,
                    "system": series.system,
                    "metric": metric,
                    "median": series.median(metric),
                    "rounds": rounds,
                    "rillnode_is_better_by": self._ratio(series, metric),
                }

    def summary(self) -> Iterator[dict[str, Any]]:
        """One document for each row of rillnode's, against the best peer's."""
        best: dict[tuple[str, str, str], dict[str, Any]] = {}
        for document in self.documents():
            if document["system"].startswith(RILLNODE) or document["system"] == FLOOR:
                continue  # itself in another place is no peer, nor is the floor
            if document["rillnode_is_better_by"] is not None and document["metric"] != LOAD:
                row = (document["case"], document["workload"], document["metric"])
                if (
                    row not in best
                    or document["rillnode_is_better_by"] < (best[row]["rillnode_is_better_by"])
                ):
                    best[row] = document
        for (case, workload, metric), document in best.items():
            ratio = document["rillnode_is_better_by"]
            yield {
                "case": case,
                "workload": workload,
                "metric": metric,
                "best_peer": document["system"],
                "ratio": ratio,
                "won": ratio >= 1.0,
            }

    def table(self, case: str, title: str) -> Table:
        """A case's medians; in brackets, how many times better rillnode is."""
        chosen = [series for series in self._series.values() if series.case == case]
        metrics = list(dict.fromkeys(name for series in chosen for name in series.rounds))
        table = Table(title=title, title_justify="left")
        table.add_column("workload")
        table.add_column("system")
        for metric in metrics:
            table.add_column(metric.replace("_", " "), justify="right")
        workload = ""
        for series in sorted(chosen, key=lambda series: _first_seen(chosen, series.workload)):
            first = series.workload != workload
            if first and workload:
                table.add_section()
            cells = [self._cell(series, metric) for metric in metrics]
            table.add_row(series.workload if first else "", series.system, *cells)
            workload = series.workload
        return table

    def _cell(self, series: Series, metric: str) -> str:
        if metric not in series.rounds:
            return ""
        text = _number(series.median(metric))
        ratio = self._ratio(series, metric)
        return text if ratio is None else f"{text} [dim]({ratio:.2f}x)[/dim]"

    def _ratio(self, series: Series, metric: str) -> float | None:
        """How many times better rillnode is; None for itself, or where there is none."""
        own = self._series.get((series.case, series.workload, RILLNODE))
        if series is own or own is None or metric not in own.rounds:
            return None
        mine, theirs = own.median(metric), series.median(metric)
        if metric.endswith(LESS_IS_BETTER):
            mine, theirs = theirs, mine
        return mine / theirs if theirs > 0 else None


def show(figures: Figures, case: str, title: str, console: Console) -> None:
    """Show one case: a table on a terminal, JSON lines in a pipe."""
    if console.is_terminal:
        console.print(figures.table(case, title))
        return
    for document in figures.documents(case):
        print(json.dumps(document), flush=True)


def show_summary(figures: Figures, console: Console) -> None:
    """Show how rillnode stands beside the best peer in each row: a table, or JSON lines."""
    rows = list(figures.summary())
    if not console.is_terminal:
        for row in rows:
            print(json.dumps({"summary": row}), flush=True)
        return
    if not rows:
        return
    won = sum(row["won"] for row in rows)
    table = Table(title=f"won {won} of {len(rows)} rows, each against its best peer")
    table.add_column("row")
    table.add_column("best peer")
    table.add_column("ratio", justify="right")
    table.add_column("")
    for row in rows:
        name = f"{row['case']}: {row['workload']}, {row['metric'].replace('_', ' ')}"
        table.add_row(
            name, row["best_peer"], f"{row['ratio']:.2f}x", "won" if row["won"] else "[red]lost[/]"
        )
    console.print(table)


def _first_seen(chosen: list[Series], workload: str) -> int:
    return next(at for at, series in enumerate(chosen) if series.workload == workload)


def _number(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
