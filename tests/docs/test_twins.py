"""The example of twins runs, and the table has each of their states."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

import twins
from doc_support import ROOT
from rillnode.node.spark.config import PythonSink, SinkTables


def run_as_shown(directory: Path) -> list[str]:
    command: list[str | Path] = [sys.executable, ROOT / "examples" / "twins.py", directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def tables_of(spark: tuple[PythonSink, ...]) -> SinkTables:
    return SinkTables(python=spark)


def run_without_spark(directory: Path) -> list[str]:
    with (
        patch.object(twins, "SparkSink", PythonSink),
        patch.object(twins, "SinkTables", tables_of),
        redirect_stdout(StringIO()) as printed,
    ):
        asyncio.run(twins.main(directory))
    return printed.getvalue().splitlines()


@pytest.mark.parametrize(
    "run",
    [
        run_without_spark,
        pytest.param(run_as_shown, marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_twins_follow_their_devices_and_land_in_a_table(
    tmp_path: Path, run: Callable[[Path], list[str]]
) -> None:
    for runs in (1, 2):  # the second goes on where the first has ended
        *found, last = run(tmp_path)
        assert [json.loads(line) for line in found] == [
            {
                "device": f"kettle-{number}",
                "index": 200 * runs - 5 + number,
                "readings": 40 * runs,
                "celsius_max": 19.5 + number / 10,
            }
            for number in range(5)
        ]
        assert last == f"{200 * runs} states are in {tmp_path / 'tables'}"
