"""Scenario files."""

from pathlib import Path

import pytest

from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.simulation.scenario import Scenario, load_scenario, parse_scenario

FILE = Path("/scenarios/churn.toml")
EXAMPLES = sorted((Path(__file__).parents[3] / "configs").glob("sim-*.toml"))


def test_an_empty_file_is_a_scenario_named_after_it() -> None:
    assert parse_scenario("", FILE) == Scenario(name="churn")


def test_paths_are_relative_to_the_file() -> None:
    text = '[latency]\nmodel = "csv"\nfile = "delays.csv"\n'
    assert parse_scenario(text, FILE).latency.file == Path("/scenarios/delays.csv")


@each_row(
    [
        ("nodes = 0", "nodes"),
        ("nodes = 1_000_000", "nodes"),
        ('mode = "dream"', "mode"),
        ("node = 3", "node"),
        ("[network]\nloss = 1.5", "loss"),
        ("[clients]\npayload_bytes = 1", "payload_bytes"),
        ('[[fault]]\nkind = "meteor"', "kind"),
        ('[[fault]]\nkind = "kill"\nnodes = ["n3"]', "n3"),
        ('[[fault]]\nkind = "kill"\nnodes = ["../x"]', "nodes"),
        ('seconds = 9.0\n[[fault]]\nkind = "kill"\nat_seconds = 9.5', "at_seconds"),
        ('[latency]\nmodel = "csv"', "latency.file"),
        ('mode = "model"\nnodes = 4\ndegree = 4', "degree"),
        ('mode = "model"\nnodes = 4\ndegree = 1', "degree"),
        ('mode = "model"\nnodes = 100_000\ndegree = 5_000', "degree"),
        ('mode = "model"\nnodes = 100_000\nmessages = 1_000_000', "messages"),
        ("processing_ms = inf", "processing_ms"),
        ("nodes = 5_000", "nodes"),
        ("[random_faults]\ncount = 1\nkinds = []", "random_faults.kinds"),
        ("overlay = true\nnodes = 1", "nodes"),
        ("overlay = true\ndegree = 1", "degree"),
        ("overlay = true\nstorage_nodes = 9\n[random_faults]\ncount = 1", "storage_nodes"),
        ("overlay = true\nstorage_nodes = 1", "storage_nodes"),
        ('overlay = true\n[[fault]]\nkind = "kill"\nnodes = ["n3"]', "n3"),
        ('[[fault]]\nkind = "kill"\nnodes = ["tracker"]', "tracker"),
        ("nodes = [", "TOML"),
        ("messages = 100_000_000", "messages"),
        ("degree = 4\nnodes = 4_000\nmessages = 100_000", "messages"),
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
        ("\nnodes = 4\noverlay = true\ndegree = 1", "churn.toml:4: degree: a tracker takes 2 to "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_with_its_line_and_what_could_be(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_scenario(text, FILE)
    assert told in str(refused.value)


def test_who_gives_a_degree_means_an_overlay() -> None:
    assert parse_scenario("nodes = 8\ndegree = 3", FILE).spreads
    assert not parse_scenario("nodes = 8\ndegree = 3\noverlay = false", FILE).spreads
    assert not parse_scenario("nodes = 8", FILE).overlay


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_scenario(FILE)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_scenarios(file: Path) -> None:
    assert load_scenario(file).name == file.stem


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
