"""Thespian's own test-suite, run against our system base in its simplest base's place.

Most of it waits, so that it runs in shares side by side.
"""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parent / "thespian_suite"
EXCLUDED = SUITE / "excluded.toml"
SHARES = 8
SECONDS_MAX = 900

pytestmark = pytest.mark.thespian


def start_share(index: int, directory: Path) -> subprocess.Popen[bytes]:
    directory.mkdir()
    (directory / "pytest.ini").write_text("[pytest]\n")
    path = os.pathsep.join(filter(None, (str(SUITE), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {
        "PYTHONPATH": path,
        "SHARD": f"{index}/{SHARES}",
        "EXCLUDED": str(EXCLUDED),
        "RESULT": str(directory / "result.json"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(directory / "pytest.ini")]
    command += ["-p", "thespian_substitute", "-p", "no:cacheprovider", "--pyargs", "thespian.test"]
    with (directory / "output").open("wb") as output:
        return subprocess.Popen(
            command, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def run_share(process: subprocess.Popen[bytes], directory: Path) -> dict[str, Any]:
    try:
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
    output = (directory / "output").read_text(errors="replace")
    assert (directory / "result.json").exists(), output[-5_000:]
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    assert not result["failed"], output[-20_000:]
    return result


def test_thespians_own_suite_passes_but_for_what_is_excluded_by_name(tmp_path: Path) -> None:
    directories = [tmp_path / str(index) for index in range(SHARES)]
    processes = [start_share(index, directory) for index, directory in enumerate(directories)]
    try:
        results = [
            run_share(process, directory)
            for process, directory in zip(processes, directories, strict=True)
        ]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert sum(result["outcomes"].get("passed", 0) for result in results) == 377
    assert [result["excluded_not_found"] for result in results] == [[]] * SHARES


def test_few_tests_are_excluded_and_each_with_a_reason() -> None:
    tables = tomllib.loads(EXCLUDED.read_text())["excluded"]
    assert all(table["reason"] for table in tables)
    assert sum(len(table["tests"]) for table in tables) <= 48
