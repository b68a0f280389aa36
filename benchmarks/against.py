"""Rillnode's own rows of workloads in two checkouts by turns: has a change made anything slower?

    python -m benchmarks.against CHECKOUT [--cases w1 w2 w3 w4] [--rounds N] [--dir DIR]

CHECKOUT is another working tree, such as `git worktree add ../before COMMIT`; this one is held
against it. Each round starts every server anew, in one tree and then in the other, and the order
changes from round to round. Told are the medians of both and the median of the rounds' ratios,
above 1 where this tree is the better one. A directory in memory leaves the disk out of it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.figures import LESS_IS_BETTER

ROOT: Final = Path(__file__).parent.parent
_RUN: Final = """
import sys
from benchmarks import workloads
workloads._IDLE_SECONDS = 1  # what idle actors give back is no question of speed
sys.argv[0] = "benchmarks"
from benchmarks.__main__ import main
main()
"""
_CASE_SECONDS: Final = 900.0

Row = tuple[str, str, str]
"""Case, workload and metric."""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against")
    parser.add_argument("checkout", type=Path, help="the tree that this one is held against")
    parser.add_argument("--cases", nargs="+", default=["w1", "w2", "w3", "w4"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the servers keep their data")
    arguments = parser.parse_args()
    trees = {"here": ROOT, "there": arguments.checkout.resolve()}
    found: dict[str, dict[Row, list[float]]] = {name: defaultdict(list) for name in trees}
    errors = Console(stderr=True)
    for round_ in range(arguments.rounds):
        for case in arguments.cases:
            for name in list(trees)[:: 1 if round_ % 2 else -1]:
                errors.print(f"round {round_ + 1} of {arguments.rounds}: {case} {name}")
                for row, value in measured(trees[name], case, arguments.dir):
                    found[name][row].append(value)
    _show(found)


def measured(tree: Path, case: str, directory: Path | None) -> list[tuple[Row, float]]:
    """The rows of one case in one tree, once."""
    with tempfile.TemporaryDirectory() as kept:
        output = Path(kept) / "figures.json"
        command = [sys.executable, "-c", _RUN, case, "--systems", "rillnode", "--rounds", "1"]
        command += ["--output", str(output), *(["--dir", str(directory)] if directory else [])]
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
        subprocess.run(
            command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=_CASE_SECONDS,
        )  # fmt: skip
        figures = json.loads(output.read_text())["figures"]
    return [((one["case"], one["workload"], one["metric"]), one["median"]) for one in figures]


def _show(found: dict[str, dict[Row, list[float]]]) -> None:
    table = Table("case", "workload", "metric", "here", "there", "here is better by")
    console = Console()
    for row, here in found["here"].items():
        there = found["there"].get(row)
        if not there or not median(there):
            continue
        ratios = [a / b for a, b in zip(here, there, strict=False) if a and b]
        better = median(ratios)
        if row[2].endswith(LESS_IS_BETTER):
            better = 1 / better
        shown = (f"{median(here):,.4g}", f"{median(there):,.4g}", f"{better:.2f}")
        if console.is_terminal:
            table.add_row(*row, *shown)
        else:
            values = {"here": here, "there": there, "better": round(better, 3)}
            print(json.dumps({"case": row[0], "workload": row[1], "metric": row[2], **values}))
    if console.is_terminal:
        console.print(table)


if __name__ == "__main__":
    main()
