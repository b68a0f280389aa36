"""Thespian's own test-suite, run against our system base in its simplest base's place.

Most of it waits, so that it runs in shares side by side.
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "thespian_suite"
EXCLUDED = SUITE / "excluded.toml"
SHARES = 12
SECONDS_MAX = 900

pytestmark = pytest.mark.thespian


def test_thespians_own_suite_passes_but_for_what_is_excluded_by_name(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    path = os.pathsep.join(filter(None, (str(SUITE), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {
        "PYTHONPATH": path,
        "SHARES": str(SHARES),
        "EXCLUDED": str(EXCLUDED),
        "RESULTS": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-c", str(tmp_path / "pytest.ini")]
    command += ["-p", "thespian_substitute", "-p", "no:cacheprovider", "--pyargs", "thespian.test"]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(SECONDS_MAX)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    told = (tmp_path / "output").read_text(errors="replace")[-20_000:]
    results = [json.loads(one.read_text()) for one in tmp_path.glob("result-*.json")]
    assert len(results) == SHARES, told
    assert not any(result["failed"] for result in results), told
    assert sum(result["outcomes"].get("passed", 0) for result in results) == 376
    assert not any(result["excluded_not_found"] for result in results)


def test_few_tests_are_excluded_and_each_with_a_reason() -> None:
    tables = tomllib.loads(EXCLUDED.read_text())["excluded"]
    assert all(table["reason"] for table in tables)
    assert sum(len(table["tests"]) for table in tables) <= 48
