"""Scenario files."""

import tomllib
from pathlib import Path

import pytest

from deleted_rooms import deleted_rooms
from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.simulation.scenario import Scenario, load_scenario, parse_scenario

FILE = Path("/scenarios/churn.toml")
EXAMPLES = [
    file
    for file in sorted((Path(__file__).parents[3] / "configs").glob("sim-*.toml"))
    if deleted_rooms().isdisjoint(tomllib.loads(file.read_text("utf-8")))
]


def test_an_empty_file_is_a_scenario_named_after_it() -> None:
    assert parse_scenario("", FILE) == Scenario(name="churn")


def test_paths_are_relative_to_the_file() -> None:
    text = '[latency]\nmodel = "csv"\nfile = "delays.csv"\n'
    assert parse_scenario(text, FILE).latency.file == Path("/scenarios/delays.csv")


@each_row(
    [
        ("nodes = 0", "nodes"),
        ("nodes = 1_000_000", "nodes"),
        ("model = true", "model"),
        ("node = 3", "node"),
        ("[network]\nloss = 1.5", "loss"),
        ("[clients]\npayload_bytes = 1", "payload_bytes"),
        ('[[fault]]\nkind = "meteor"', "kind"),
        ('[[fault]]\nkind = "kill"\nnodes = ["n3"]', "n3"),
        ('[[fault]]\nkind = "kill"\nnodes = ["../x"]', "nodes"),
        ('seconds = 9.0\n[[fault]]\nkind = "kill"\nat_seconds = 9.5', "at_seconds"),
        ('[latency]\nmodel = "csv"', "latency.file"),
        ("nodes = 4\n[model]\ndegree = 4", "model.degree"),
        ("nodes = 4\n[model]\ndegree = 1", "model.degree"),
        ("nodes = 100_000\n[model]\ndegree = 5_000", "model.degree"),
        ("nodes = 100_000\nmessages = 1_000_000\n[model]", "messages"),
        ("processing_ms = inf", "processing_ms"),
        ("nodes = 5_000", "nodes"),
        ("[random_faults]\ncount = 1\nkinds = []", "random_faults.kinds"),
        ('[[fault]]\nkind = "kill"\nnodes = ["tracker"]', "tracker"),
        ("nodes = [", "TOML"),
        ("messages = 100_000_000", "messages"),
        ("seconds = 1e12", "seconds"),
        ("[network]\nloss = 1.0", "loss"),
        ("[clients]\nproducers = 1_000_000", "producers"),
        ("[random_faults]\ncount = 1_000_000", "count"),
        ('[[fault]]\nkind = "kill"\ncount = 1_000_000', "count"),
        ('[[fault]]\nkind = "actor"\nactor = "Nobody"', "fault\\[0\\].actor: 'Nobody'"),
        ('[[fault]]\nkind = "actor"\nwhen = "between"', "when"),
        ('[[fault]]\nkind = "actor"\ntimes = 0', "times"),
        ('[[fault]]\nkind = "kill"\nactor = "StreamActor"', "fault\\[0\\].actor: only faults"),
        ('[[fault]]\nkind = "kill"\nwhen = "after"', "fault\\[0\\].when: only faults"),
    ]
)
def test_what_cannot_be_is_refused_with_its_key(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_scenario(text, FILE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seconds = 2.0\nnodse = 3", "churn.toml:2: nodse: unknown key; did you mean nodes?"),
        ("nodes = 0", "churn.toml:1: nodes: 0: expected a whole number from 1 to 100000"),
        ("seconds = -1.0", "seconds: -1.0: expected a number over 0, up to 1000000"),
        ("[network]\nloss = 1.5", "toml:2: network.loss: 1.5: expected a number from 0 to 0.9"),
        ('[[fault]]\nkind = "meteor"', 'fault[0].kind: \'meteor\': expected one of "actor", '),
        ("[[fault]]\ncount = 2", "churn.toml:1: fault[0].kind: missing; expected one of "),
        ("[syslog]", "; plug-ins that are not installed yet may have other tables"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_with_its_line_and_what_could_be(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_scenario(text, FILE)
    assert told in str(refused.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_scenario(FILE)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_scenarios(file: Path) -> None:
    assert load_scenario(file).name == file.stem


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
