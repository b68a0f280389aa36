"""`rillnode nextgraph show`: the id of the broker that `rillnode init` has made."""

import json
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode.codecs.nextgraph.text_ids import parse_id
from rillnode.node.cli import main


def run(*argv: str) -> tuple[int, str, str]:
    screen = Screen()
    return main(argv, screen.terminal), screen.out, screen.err


def test_the_id_that_init_printed_is_shown_again_in_both_forms(tmp_path: Path) -> None:
    code, out, _ = run("init", str(tmp_path / "edge"))
    assert code == 0
    made = json.loads(out)["nextgraph_peer_id"]
    code, out, _ = run("nextgraph", "show", "-c", str(tmp_path / "edge" / "node.toml"))
    shown = json.loads(out)
    assert (code, shown["peer_id"]) == (0, made)
    assert parse_id(shown["text_id"]).hex() == made


def test_a_broker_that_has_no_key_yet_is_told(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('name = "a"\n')
    code, out, err = run("nextgraph", "show", "-c", str(file))
    assert (code, out) == (2, "")
    assert "nextgraph.key" in err


@pytest.mark.parametrize("days", ["nan", "inf", "1e300", "0", "-1", "soon"])
def test_an_invitation_is_for_a_number_of_days(days: str) -> None:
    code, out, err = run("nextgraph", "invite", f"--days={days}")
    assert (code, out) == (2, "")
    assert "expected a number of days over 0" in err
