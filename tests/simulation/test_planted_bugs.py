"""The simulation finds mistakes that were planted on purpose, and finds nothing where none are."""

import pytest
from msgspec.structs import replace

from every_planted_bug import ALL
from planted_bugs import Planted, requests_forgotten
from planted_overlay import PlantedOverlay
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.results import shrink
from rillnode.node.simulation.run import Run

SEEDS_MAX = 2_000

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


QUICK = frozenset(
    {
        "block-under-another-id",
        "forged-messages-opened",
        "keys-in-any-order",
        "partition-begins-early",
        "plain-links-trusted",
        "plain-records",
        "proofs-not-verified",
        "pull-begins-late",
        "saves-what-was-delivered",
        "seam-twice",
        "trims-one-more",
        "unsubscribed-still-served",
        "waiting-counted-for-ever",
        "writes-torn",
    }
)
"""One of each kind, of clients, links, rights and what nodes keep, which few seeds show.

With that of `test_shared.py`, and those of the public suites (`tests/contract`), they are thirty.
"""


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(one, marks=() if one.name in QUICK else pytest.mark.long, id=one.name)
        for one in ALL
    ],
)
def test_a_planted_mistake_is_found(
    planted: Planted | PlantedOverlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.patch(monkeypatch)
    for seed in range(SEEDS_MAX):
        broken = {violation.rule for violation in Run(planted.scenario, seed).run().violations}
        if broken & set(planted.rules):
            return
    pytest.fail(f"no seed below {SEEDS_MAX} has shown it")


def same(planted: Planted | PlantedOverlay) -> str:
    return repr(replace(planted.scenario, name=""))


ALIKE = {same(planted): planted for planted in ALL}
QUICK_SCENARIOS = {same(planted) for planted in ALL if planted.name in QUICK}


@pytest.mark.parametrize(
    ("planted", "seed"),
    [
        pytest.param(
            planted,
            seed,
            marks=() if seed == 0 and scenario in QUICK_SCENARIOS else pytest.mark.long,
            id=f"{planted.name}-{seed}",
        )
        for scenario, planted in ALIKE.items()
        for seed in range(2)
    ],
)
def test_the_right_code_breaks_no_rule_in_the_same_scenario(
    planted: Planted | PlantedOverlay, seed: int
) -> None:
    assert Run(planted.scenario, seed).run().violations == []


def test_every_planted_mistake_breaks_a_rule_that_there_is() -> None:
    assert {rule for planted in ALL for rule in planted.rules} <= set(RULES)


@pytest.mark.needs("nextgraph")
def test_those_of_the_quick_part_are_there() -> None:
    assert {planted.name for planted in ALL} >= QUICK


@pytest.mark.long
def test_faults_are_left_out_until_only_those_remain_that_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests_forgotten(monkeypatch)
    scenario = next(one for one in ALL if one.patch is requests_forgotten).scenario
    whole = next(
        result
        for result in (Run(scenario, seed).run() for seed in range(SEEDS_MAX))
        if any(one.rule == "no-progress" for one in result.violations)
    )
    short = shrink(whole, lambda left: Run(scenario, whole.seed, only=left).run())
    assert any(one.rule == whole.violations[0].rule for one in short.violations)
    assert len(short.faults) == 1
    numbers = [fault.number for fault in short.faults]
    again = Run(scenario, whole.seed, only=numbers).run()
    assert again.trace_hash == short.trace_hash
    assert again.violations == short.violations
