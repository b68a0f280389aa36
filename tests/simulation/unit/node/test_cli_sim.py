"""`rillnode sim run`."""

import csv
import json
import shlex
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fake_client import Screen
from planted_bugs import requests_forgotten
from rillnode.node.cli import main
from rillnode.node.simulation.run import Run

PROTOCOL = """
nodes = 2
messages = 20
seconds = 4.0
[clients]
producers = 1
followers = 1
consumers = 0
readers = 0
[random_faults]
count = 2
"""
MODEL = "nodes = 20\nmessages = 4\n[model]\ndegree = 3\n"


@dataclass(frozen=True)
class Done:
    """The outcome of a command."""

    returncode: int
    stdout: str
    stderr: str


def rillnode(*args: object, tty: bool = False) -> Done:
    screen = Screen(tty=tty)
    code = main(["sim", "run", *map(str, args)], screen.terminal)
    return Done(code, screen.out, screen.err)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(PROTOCOL)
    return file


def test_one_seed_gives_one_document(scenario: Path) -> None:
    done = rillnode(scenario, "--seed", 3)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["seed"] == 3
    assert document["violations"] == []
    assert document["confirmed"] == document["pushed"] > 0
    assert len(document["faults"]) == 2
    assert (
        json.loads(rillnode(scenario, "--seed", 3).stdout)["trace_hash"] == (document["trace_hash"])
    )


def test_many_seeds_give_a_summary_and_a_line_each(scenario: Path, tmp_path: Path) -> None:
    table = tmp_path / "figures.csv"
    done = rillnode(scenario, "--seeds", "0..2", "--csv", table)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["seeds"] == 3
    assert summary["failed_seeds"] == []
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trace_hash"] for row in rows] == [run["trace_hash"] for run in summary["runs"]]


class _Page(HTMLParser):
    """Counts plots, and what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.plots = 0
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.plots += tag == "svg"
        self.loads += [name for name, _ in attrs if name in ("src", "href")]


@pytest.mark.parametrize(("text", "plots"), [(PROTOCOL, 3), (MODEL, 3)])
def test_a_report_is_one_page_with_plots(tmp_path: Path, text: str, plots: int) -> None:
    file, report = tmp_path / "<b>.toml", tmp_path / "report.html"
    file.write_text(text)
    done = rillnode(file, "--html", report)
    assert done.returncode == 0, done.stderr
    page = _Page()
    page.feed(report.read_text())
    assert page.plots == plots
    assert page.loads == []
    assert "<b>" not in report.read_text()


def test_model_mode_gives_propagation(tmp_path: Path) -> None:
    file = tmp_path / "model.toml"
    file.write_text(MODEL)
    document = json.loads(rillnode(file, "--seed", 1).stdout)
    assert set(document["propagation"]) == {"mean_ms", "p50_ms", "p90_ms", "p99_ms", "last_node_ms"}
    assert document["copies_per_message"] == 20 * 2 + 1
    summary = json.loads(rillnode(file, "--seeds", "1..3").stdout)
    assert summary["runs"][0]["mean_ms"] == document["propagation"]["mean_ms"]


def test_an_overlay_of_real_nodes_gives_propagation_as_well(tmp_path: Path) -> None:
    file = tmp_path / "overlay.toml"
    file.write_text("nodes = 5\nmessages = 2\nseconds = 2.0\n[overlay]\ndegree = 2\n")
    document = json.loads(rillnode(file, "--seed", 1).stdout)
    assert (document["mode"], document["copies_per_message"]) == ("protocol", 5 + 1)
    assert set(document["propagation"]) == {"mean_ms", "p50_ms", "p90_ms", "p99_ms", "last_node_ms"}


@pytest.mark.parametrize(
    "args", [["--seeds", "5..1"], ["--seeds", "x..y"], ["--faults", "a"], ["--seed", "-1"]]
)
def test_what_cannot_be_asked_for(scenario: Path, args: list[str]) -> None:
    assert rillnode(scenario, *args).returncode == 2


@pytest.mark.parametrize(("text", "fault"), [(PROTOCOL, 2), (MODEL, 0)])
def test_a_fault_that_a_scenario_does_not_have(tmp_path: Path, text: str, fault: int) -> None:
    file = tmp_path / "small.toml"
    file.write_text(text)
    done = rillnode(file, "--faults", fault)
    assert done.returncode == 2
    assert f"no fault {fault}" in done.stderr
    assert rillnode(file, "--faults", "none").returncode == 0


def test_what_cannot_be_written_is_told_before_the_first_seed(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_run(*_: object, **__: object) -> None:
        pytest.fail("a seed has run")

    monkeypatch.setattr(Run, "__init__", no_run)
    for option in ("--html", "--csv"):
        done = rillnode(scenario, option, tmp_path / "nowhere" / "file")
        assert done.returncode == 2
        assert "cannot be written" in done.stderr


def test_a_scenario_that_cannot_be_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("nodes = -1\n")
    done = rillnode(file)
    assert done.returncode == 2
    assert "nodes" in done.stderr
    assert rillnode(tmp_path / "nothing.toml").returncode == 2


def test_a_broken_rule_is_told_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests_forgotten(monkeypatch)
    file = tmp_path / "a broken one.toml"
    file.write_text(
        PROTOCOL.replace("count = 2", 'count = 4\nkinds = ["kill"]').replace(
            "nodes = 2", "nodes = 1"
        )
    )
    attempts = (rillnode(file, "--seed", seed) for seed in range(100))
    done = next(one for one in attempts if one.returncode)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["violations"]
    assert document["repeat"] in done.stderr
    arguments = shlex.split(document["repeat"].removeprefix("rillnode sim run "))
    again = json.loads(rillnode(*arguments, "--no-shrink").stdout)
    assert again["trace_hash"] == document["trace_hash"]
    assert len(again["faults"]) < 4


def test_people_get_a_table(scenario: Path) -> None:
    done = rillnode(scenario, tty=True)
    assert "trace_hash" in done.stdout
    assert not done.stdout.startswith("{")
