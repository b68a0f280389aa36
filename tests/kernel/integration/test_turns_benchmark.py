"""The benchmark of turns runs a small node through all its phases, and tells of each class."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

CLASSES = {
    "ConnectionActor", "Directory", "IndexService", "MemberActor", "RelayActor", "ResendActor",
    "RetentionActor", "StreamActor", "StreamService", "StreamrConnection", "SubscriptionActor",
    "TrackerActor", "nextgraph.ConnectionActor",
}  # fmt: skip


@pytest.mark.long
def test_a_quick_run_tells_of_every_kind_of_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.turns", "--quick", "--store", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    told = {row["what"]: row for row in rows if row["part"] == "turns"}
    assert told.keys() >= CLASSES
    assert all(told[name]["count"] for name in CLASSES)
    assert told["StreamService"]["longest_seconds"] > 0
    assert {row["part"] for row in rows} >= {
        "turns of the stop", "callbacks", "gap of an idle loop", "gap of the node's loop",
    }  # fmt: skip
    assert any(row["phase"] == "reload" for row in rows if row["what"] == "_reload")
