"""The benchmark of growth runs, small: every part grows, is killed and starts, and is drawn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doc_support import ROOT


@pytest.mark.long
def test_a_quick_run_tells_of_every_size_of_every_part(tmp_path: Path) -> None:
    output, plot = tmp_path / "growth.json", tmp_path / "growth.svg"
    command = [
        sys.executable, "-m", "benchmarks.growth", "--quick", "--dir", str(tmp_path),
        "--output", str(output), "--plot", str(plot),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert document["machine"]["python_slowness"] > 0
    points = document["points"]
    assert [(point["part"], point["size"]) for point in points] == [
        ("streams", 1), ("streams", 100), ("links", 1), ("links", 10),
        ("entries", 1_000), ("entries", 5_000),
    ]  # fmt: skip
    assert all(point["memory_bytes"] > 0 and point["start_cpu_seconds"] > 0 for point in points)
    assert plot.read_text().startswith("<?xml")
    assert not list(tmp_path.glob("growth-*"))
