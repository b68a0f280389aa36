"""The pages about simulation: their faults are those of the code, and their examples run."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

import simulated_nodes
from deleted_rooms import deleted_rooms
from doc_support import ROOT, blocks, running
from rillnode.node.simulation.faults import KINDS
from rillnode.node.simulation.scenario import FaultKind, load_scenario
from rillnode.testing import Network

HOW_TO = ROOT / "docs/how-to/simulate.md"
REPORT = ROOT / "docs/explanation/simulation.md"
TUTORIAL = ROOT / "docs/tutorials/simulate.md"
MISTAKE = ROOT / "docs/tutorials/find-a-mistake.md"
SCENARIOS = [
    block
    for page in (HOW_TO, REPORT, TUTORIAL)
    for block in blocks(page)
    if block.title.endswith(".toml") and deleted_rooms().isdisjoint(tomllib.loads(block.text))
]


@pytest.mark.check
def test_every_kind_of_fault_is_described() -> None:
    assert tuple(KINDS) == get_args(FaultKind)


@pytest.mark.check
@pytest.mark.parametrize("block", SCENARIOS, ids=lambda block: block.title)
def test_scenarios_are_valid(block: Any, tmp_path: Path) -> None:
    file = tmp_path / block.title
    file.write_text(block.text, "utf-8")
    assert load_scenario(file).name == file.stem


def test_the_scenario_to_be_written_keeps_all_rules(tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        (tmp_path / "outage.toml").write_text(SCENARIOS[0].text, "utf-8")
        runner.command("rillnode sim run outage.toml --seed 0")


def test_the_tutorial_shows_what_is_in_the_example() -> None:
    text = (ROOT / "examples/order_service.py").read_text("utf-8")
    shown = [block.text for block in blocks(MISTAKE) if block.language == "text"]
    assert len(shown) > 3
    assert not [one for one in shown if one not in text]


def test_the_example_keeps_what_it_says() -> None:
    with Network(seed=3) as network:
        simulated_nodes.test_every_reading_reaches_the_centre(network)


@pytest.mark.long
def test_the_example_passes_with_a_seed_of_the_command_line() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "examples/simulated_nodes.py"),
            *("--rillnode-seed", "4"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
