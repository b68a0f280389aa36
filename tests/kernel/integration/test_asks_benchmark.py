"""The benchmark of questions and answers runs, small: every part of it is there and answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doc_support import ROOT

SYSTEMS = ("rillnode served", "rillnode, in process", "nats")


@pytest.mark.long
def test_each_system_that_is_there_answers(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks", "asks", "--quick", "--systems", *SYSTEMS,
            "--dir", str(tmp_path), "--output", str(output),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    found = {(one["workload"], one["system"], one["metric"]) for one in document["figures"]}
    for window in (1, 64):
        for where, system in (
            ("between processes", "rillnode served"),
            ("between processes", "nats"),
            ("in process", "rillnode"),
        ):
            workload = f"{where}, window {window}"
            for metric in ("asks_per_second", "p50_ms", "p99_ms"):
                assert (workload, system, metric) in found
    assert ("idle actors", "rillnode", "idle_bytes") in found
    assert all(one["median"] > 0 for one in document["figures"])
