"""Has anything become slower since the baseline was stored? Rillnode's own rows, held to a floor.

    python -m benchmarks.check [--store] [--cases w1 w2 w4] [--rounds N]

Machines differ, and one machine from hour to hour. So each row is told as its ratio to what plain
Python does at the same time, a loop of dictionary look-ups and calls timed before and after each
case: pushes for a million of its rounds, or rounds for a push. `baseline.json` has the ratios of a
quiet machine; named is what has fallen by more than a tenth or is not measured any more, and the
exit code is 1 then. `--store` writes a new baseline of the cases that are run. The data lies in
memory where the machine has a directory for that: disks differ most of all.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

FALLEN: Final = "fallen by more than a tenth"
GONE: Final = "not measured any more"
NEW: Final = "not in the baseline"


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
    baseline: dict[str, float] = json.loads(_BASELINE.read_text()) if _BASELINE.exists() else {}
    others = {row: then for row, then in baseline.items() if _case(row) not in arguments.cases}
    if arguments.store:
        _BASELINE.write_text(json.dumps(others | ratios, indent=1, sort_keys=True) + "\n")
        errors.print(f"written: {_BASELINE}")
        return
    compared = compare(ratios, {row: baseline[row] for row in baseline.keys() - others.keys()})
    _show(compared, Console())
    for one in compared:
        if one.state:
            errors.print(f"{one.state}: {one.name}", markup=False, soft_wrap=True)
    sys.exit(any(one.state in (FALLEN, GONE) for one in compared))


def _case(row: str) -> str:
    return row.partition(" / ")[0]


def _held_to(row: Row, value: float, speed: float) -> float:
    """A value as a multiple of what the floor does; bytes are bytes."""
    if row[2].endswith("_bytes"):
        return value
    return value * speed if row[2].endswith(LESS_IS_BETTER) else value / speed


@dataclass(frozen=True, slots=True)
class Compared:
    """A row beside its baseline.

    Attributes:
        ratio: above 1 where it has become better; None where one of both is missing.
        state: "", or what is wrong with it.
    """

    name: str
    ratio: float | None
    state: str


def compare(now: Mapping[str, float], baseline: Mapping[str, float]) -> list[Compared]:
    """Hold each row to its baseline; one that is not measured any more has not stayed the same."""
    found: list[Compared] = []
    for name in sorted(now.keys() | baseline.keys()):
        value, then = now.get(name), baseline.get(name)
        if value is None:
            found.append(Compared(name, None, GONE))
        elif then is None:
            found.append(Compared(name, None, NEW))
        else:
            less, more = (value, then) if name.endswith(LESS_IS_BETTER) else (then, value)
            ratio = more / less if less else 1.0
            found.append(Compared(name, ratio, FALLEN if ratio < _FALLEN else ""))
    return found


def _show(compared: Sequence[Compared], console: Console) -> None:
    """Show each row: a table, or JSON lines in a pipe."""
    if not console.is_terminal:
        for row in compared:
            print(json.dumps({"row": row.name, "ratio": row.ratio, "state": row.state}))
        return
    table = Table("row", "to the baseline", "")
    for row in compared:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        table.add_row(row.name, ratio, f"[red]{row.state}[/]" if row.state else "")
    console.print(table)


if __name__ == "__main__":
    main()
