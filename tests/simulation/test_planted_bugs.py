"""The simulation finds mistakes that were planted on purpose, and finds nothing where none are."""

import pytest
from msgspec.structs import replace

from planted_bugs import PLANTED, Planted, requests_forgotten
from planted_channel_bugs import PLANTED_CHANNELS
from planted_further_bugs import PLANTED_FURTHER
from planted_lasting_bugs import PLANTED_LASTING
from planted_link_bugs import PLANTED_LINKS
from planted_nextgraph_bugs import PLANTED_NEXTGRAPH
from planted_overlay_bugs import PLANTED_OVERLAY, PlantedOverlay
from planted_rarer_bugs import PLANTED_RARER
from planted_service_bugs import PLANTED_SERVICES
from planted_store_bugs import PLANTED_STORE
from planted_streamr_bugs import PLANTED_STREAMR
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.shrink import shrink

SEEDS_MAX = 2_000

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


ALL: tuple[Planted | PlantedOverlay, ...] = (
    *PLANTED,
    *PLANTED_STORE,
    *PLANTED_SERVICES,
    *PLANTED_LASTING,
    *PLANTED_RARER,
    *PLANTED_OVERLAY,
    *PLANTED_LINKS,
    *PLANTED_CHANNELS,
    *PLANTED_STREAMR,
    *PLANTED_NEXTGRAPH,
    *PLANTED_FURTHER,
)


@pytest.mark.parametrize("planted", ALL, ids=lambda planted: planted.name)
def test_a_planted_mistake_is_found(
    planted: Planted | PlantedOverlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.patch(monkeypatch)
    for seed in range(SEEDS_MAX):
        broken = {violation.rule for violation in Run(planted.scenario, seed).run().violations}
        if broken & set(planted.rules):
            return
    pytest.fail(f"no seed below {SEEDS_MAX} has shown it")


ALIKE = {repr(replace(planted.scenario, name="")): planted for planted in ALL}


@pytest.mark.parametrize("planted", ALIKE.values(), ids=lambda planted: planted.name)
def test_the_right_code_breaks_no_rule_in_the_same_scenario(
    planted: Planted | PlantedOverlay,
) -> None:
    for seed in range(2):
        assert Run(planted.scenario, seed).run().violations == []


def test_every_planted_mistake_breaks_a_rule_that_there_is() -> None:
    assert {rule for planted in ALL for rule in planted.rules} <= set(RULES)


def test_faults_are_left_out_until_only_those_remain_that_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests_forgotten(monkeypatch)
    scenario = next(one for one in PLANTED if one.patch is requests_forgotten).scenario
    whole = next(
        result
        for result in (Run(scenario, seed).run() for seed in range(SEEDS_MAX))
        if any(one.rule == "no-progress" for one in result.violations)
    )
    short = shrink(scenario, whole)
    assert any(one.rule == whole.violations[0].rule for one in short.violations)
    assert len(short.faults) == 1
    numbers = [fault.number for fault in short.faults]
    again = Run(scenario, whole.seed, only=numbers).run()
    assert again.trace_hash == short.trace_hash
    assert again.violations == short.violations
