"""The table of an overlay in scenarios of simulations."""

from pathlib import Path

import pytest

from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulation.scenario import parse_scenario

FILE = Path("/scenarios/churn.toml")


@each_row(
    [
        (
            "\n[overlay]\ndegree = 1",
            "churn.toml:3: overlay.degree: 1: expected a whole number",
        ),
        ("[overlay]\n\ndegre = 1", "toml:3: overlay.degre: unknown key; did you mean degree?"),
        ("\n[overlai]", "churn.toml:2: overlai: unknown key; did you mean overlay?"),
        ("overlay = true", "churn.toml:1: overlay: True: expected a table"),
        ("nodes = 1\n[overlay]", "churn.toml:1: nodes: an overlay has at least two"),
        ("[overlay]\nstorage_nodes = 9\n[random_faults]\ncount = 1", "at most the 3 nodes"),
        ("[overlay]\nstorage_nodes = 1", "overlay.storage_nodes: only an overlay with faults"),
        ('[overlay]\n[store]\nengine = "shared"', "store.engine: with `[overlay]` nodes have"),
        ('[overlay]\n[[fault]]\nkind = "kill"\nnodes = ["n3"]', "fault[0].nodes: 'n3'"),
        ("nodes = 4_000\nmessages = 100_000\n[overlay]", "messages: nodes times messages"),
        ("[model]\n[overlay]", "overlay: it needs nodes, and `[model]` runs none"),
    ]
)
def test_what_cannot_be_is_refused_with_its_key(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_scenario(text, FILE)
    assert refused.value.code == "scenario.value"
    assert told in str(refused.value)


def test_without_faults_messages_only_spread() -> None:
    found = parse_scenario("[overlay]\ndegree = 3", FILE)
    assert found.tables == (SharedOverlay(degree=3),)
    assert (found.spreads, found.degree) == (True, 3)
    assert not parse_scenario("[overlay]\n[random_faults]\ncount = 1", FILE).spreads
    assert not parse_scenario("nodes = 8", FILE).spreads


def test_the_tracker_may_fail_where_there_is_one() -> None:
    fault = '[[fault]]\nkind = "kill"\nnodes = ["tracker"]'
    assert parse_scenario(f"[overlay]\n{fault}", FILE).more_nodes == ("tracker",)
    with pytest.raises(ConfigError, match="'tracker': expected n0 to n2"):
        parse_scenario(fault, FILE)
