"""Each actor fails in one file, and the loads under which it does break no rule by themselves."""

import json
from pathlib import Path

import pytest

from contract_cases import (
    CASES,
    LOADS,
    MUCH,
    RARE,
    ROOMS,
    SHARED,
    USUAL,
    Load,
    cases_of,
    contract_holds,
    id_of,
    look_for_load,
    name_of,
    record_of,
    with_node,
)
from rillnode.testing import actor_classes, message_types
from rooms import TESTS


def test_classes_declare_what_they_take() -> None:
    assert [name_of(one) for one in actor_classes() if message_types(one) is None] == []


def test_each_case_is_in_one_file() -> None:
    assert sorted(map(id_of, CASES)) == sorted(
        id_of(one) for room in ROOMS for one in cases_of(room)
    )
    files = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    rooms = {path.parts[-3] for path in TESTS.glob("*/unit/test_failing_once.py")}
    assert files | rooms == {*ROOMS, "loads"}


@pytest.mark.long
@pytest.mark.parametrize(
    "load", [USUAL, RARE, MUCH, SHARED], ids=["usual", "rare", "much", "shared"]
)
def test_the_contract_holds_where_spans_are_made_and_nothing_fails(load: Load) -> None:
    """Without spans `test_mailboxes.py` has it."""
    with_node(contract_holds, load, traced=True)


@pytest.mark.long
def test_what_is_written_down_is_the_smallest_load_that_comes_to_each_case(tmp_path: Path) -> None:
    found = {id_of(case): record_of(look_for_load(case)) for case in sorted(CASES, key=id_of)}
    lines = [f"  {json.dumps(case)}: {json.dumps(load)}" for case, load in found.items() if load]
    file = tmp_path / LOADS.name
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert file.read_text() == LOADS.read_text(), f"copy {file} to {LOADS}"
