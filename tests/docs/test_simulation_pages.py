"""The pages about simulation: keys, kinds, rules and mistakes are those of the code."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from doc_support import ROOT, blocks, running
from every_planted_bug import ALL
from rillnode.node.config.describe import toml_value
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.scenario import FaultKind, FaultTable, Scenario, load_scenario

HOW_TO = ROOT / "docs/how-to/simulate.md"
REPORT = ROOT / "docs/explanation/simulation.md"
TUTORIAL = ROOT / "docs/tutorials/simulate.md"
SCENARIOS = [
    block
    for page in (HOW_TO, REPORT, TUTORIAL)
    for block in blocks(page)
    if block.title.endswith(".toml")
]


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page.read_text("utf-8"), re.M | re.S
    )
    assert found, heading
    return found[1]


def first_cells(text: str) -> list[str]:
    """What stands in the first column of a table, where it is code."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.M)


def tables() -> list[tuple[str, type[msgspec.Struct]]]:
    """Each table of a scenario: its heading in the page, and its keys."""
    inner = [
        (f"`[{one.name}]`", type(one.default))
        for one in msgspec.structs.fields(Scenario)
        if isinstance(one.default, msgspec.Struct)
    ]
    return [("Above all tables", Scenario), *inner, ("`[[fault]]`", FaultTable)]


def default_of(key: msgspec.structs.FieldInfo) -> Any:
    return () if key.default_factory is not msgspec.NODEFAULT else key.default


@pytest.mark.check
@pytest.mark.parametrize(("heading", "struct"), tables(), ids=lambda one: str(one))
def test_every_key_of_a_scenario_is_described(heading: str, struct: type[msgspec.Struct]) -> None:
    keys = {
        key.name: default_of(key)
        for key in msgspec.structs.fields(struct)
        if struct is not Scenario or isinstance(key.default, (str, int, float))
    }
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \| ", section(HOW_TO, heading), re.M))
    assert list(rows) == list(keys)
    for name, default in keys.items():
        if isinstance(default, (str, int, float)):
            assert rows[name] == f"`{toml_value(default)}`", name


@pytest.mark.check
def test_every_kind_of_fault_is_described() -> None:
    text = HOW_TO.read_text("utf-8").partition("Kinds of faults:")[2].partition("\n## ")[0]
    assert first_cells(text) == list(get_args(FaultKind))


@pytest.mark.check
def test_every_rule_is_described() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section(REPORT, "Rules"), re.M))
    assert rows == dict(RULES)


@pytest.mark.check
def test_every_planted_mistake_is_described_with_a_rule_that_it_breaks() -> None:
    rows = re.findall(r"^\| (.*) \| (`.*`) \| \d+ \|$", section(REPORT, "Planted mistakes"), re.M)
    assert [what for what, _ in rows] == [str(one.patch.__doc__).rstrip(".") for one in ALL]
    for planted, (_, rules) in zip(ALL, rows, strict=True):
        assert set(re.findall(r"`([\w-]+)`", rules)) <= set(planted.rules), planted.name


@pytest.mark.check
@pytest.mark.parametrize("block", SCENARIOS, ids=lambda block: block.title)
def test_scenarios_are_valid(block: Any, tmp_path: Path) -> None:
    file = tmp_path / block.title
    file.write_text(block.text, "utf-8")
    assert load_scenario(file).name == file.stem


def test_the_scenario_to_be_written_keeps_all_rules(tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        (tmp_path / "outage.toml").write_text(SCENARIOS[0].text, "utf-8")
        runner.command("rillnode sim run outage.toml --seeds 0..1")


def test_the_example_passes_with_several_seeds() -> None:
    for seed in (0, 3):
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "rillnode.node.simulation.pytest_plugin",
                ),
                *("examples/simulated_nodes.py", "--rillnode-seed", str(seed)),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert "1 passed" in done.stdout
