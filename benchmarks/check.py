"""Has anything become slower since the baseline was stored? Rillnode's own rows, held to a floor.

    python -m benchmarks.check [--store] [--cases w1 w2 w4] [--rounds N]

Machines differ, and one machine from hour to hour. So each row is told as its ratio to what plain
Python does at the same time, a loop of dictionary look-ups and calls timed before and after each
case: pushes for a million of its rounds, or rounds for a push. `baseline.json` has the ratios of a
quiet machine; named is what has fallen by more than a tenth, and the exit code is 1 then. `--store`
writes a new baseline. The data lies in memory where the machine has a directory for that: disks
differ most of all.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.against import ROOT, Row, measured
from benchmarks.figures import LESS_IS_BETTER, LOAD

_BASELINE: Final = ROOT / "benchmarks" / "baseline.json"
_MEMORY: Final = Path("/dev/shm")
_ROUNDS: Final = 200_000
_TRIES: Final = 7
_FALLEN: Final = 0.9


class _Thing:
    """What the loop calls."""

    def __init__(self) -> None:
        self.count = 0

    def call(self, key: int, table: dict[int, int]) -> None:
        self.count += table[key & 1_023]


def floor() -> float:
    """Millions of rounds a second that this interpreter makes now, at its best."""
    table, thing = dict.fromkeys(range(1_024), 1), _Thing()
    best = 0.0
    for _ in range(_TRIES):
        started = perf_counter()
        for key in range(_ROUNDS):
            thing.call(key, table)
        best = max(best, _ROUNDS / (perf_counter() - started) / 1e6)
    return best


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check")
    parser.add_argument("--store", action="store_true", help="write a new baseline")
    parser.add_argument("--cases", nargs="+", default=["w1", "w2", "w4"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    directory = _MEMORY if _MEMORY.is_dir() else None
    errors = Console(stderr=True)
    found: dict[Row, list[float]] = defaultdict(list)
    for round_ in range(arguments.rounds):
        for case in arguments.cases:
            errors.print(f"round {round_ + 1} of {arguments.rounds}: {case}")
            before = floor()
            rows = measured(ROOT, case, directory)
            speed = (before + floor()) / 2
            for row, value in rows:
                found[row].append(_held_to(row, value, speed))
    ratios = {" / ".join(row): median(values) for row, values in found.items() if row[2] != LOAD}
    if arguments.store:
        known: dict[str, float] = json.loads(_BASELINE.read_text()) if _BASELINE.exists() else {}
        _BASELINE.write_text(json.dumps(known | ratios, indent=1, sort_keys=True) + "\n")
        errors.print(f"written: {_BASELINE}")
        return
    sys.exit(_compare(ratios, json.loads(_BASELINE.read_text())))


def _held_to(row: Row, value: float, speed: float) -> float:
    """A value as a multiple of what the floor does; bytes are bytes."""
    if row[2].endswith("_bytes"):
        return value
    return value * speed if row[2].endswith(LESS_IS_BETTER) else value / speed


def _compare(now: dict[str, float], baseline: dict[str, float]) -> int:
    """Show how each row stands to the baseline; 1 where one has fallen."""
    console = Console()
    table = Table("row", "to the baseline", "")
    fallen = 0
    for row, value in now.items():
        then = baseline.get(row)
        if not then or not value:
            continue
        ratio = then / value if row.endswith(LESS_IS_BETTER) else value / then
        fallen += ratio < _FALLEN
        if console.is_terminal:
            table.add_row(row, f"{ratio:.2f}x", "[red]fallen[/]" if ratio < _FALLEN else "")
        else:
            print(json.dumps({"row": row, "ratio": ratio, "fallen": ratio < _FALLEN}))
    if console.is_terminal:
        console.print(table)
    return int(fallen > 0)


if __name__ == "__main__":
    main()
