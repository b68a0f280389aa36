"""Tests the theory of flooding."""

from math import log

import pytest

from rillnode.node.simulation.scenario import LatencyTable, ModelTable, Scenario
from rillnode.node.simulation.theory import growth_of


def model(
    degree: int = 4, latency: LatencyTable | None = None, processing_ms: float = 0.0
) -> Scenario:
    return Scenario(
        model=ModelTable(degree=degree),
        nodes=128,
        latency=latency or LatencyTable(),
        processing_ms=processing_ms,
    )


def test_more_neighbours_mean_slower_growth() -> None:
    found = [growth_of(model(degree=degree)) for degree in (3, 4, 8)]
    rates = [growth.growth_ms for growth in found if growth is not None]
    assert len(rates) == 3
    assert rates == sorted(rates, reverse=True)


def test_nearly_equal_delays_multiply_copies_by_children_each() -> None:
    # After every delay there are degree - 1 times as many nodes.
    growth = growth_of(model(degree=5, latency=LatencyTable(model="lognormal", sigma=0.25)))
    assert growth is not None
    assert growth.growth_ms == pytest.approx(50.0 / log(4), rel=0.05)
    assert growth.mean_ms(200) - growth.mean_ms(100) == pytest.approx(growth.growth_ms * log(2))


def test_delays_twice_as_long_take_twice_as_long() -> None:
    one, two = (
        growth_of(model(latency=LatencyTable(model="lognormal", mean_ms=mean)))
        for mean in (40.0, 80.0)
    )
    assert one is not None
    assert two is not None
    assert two.mean_ms(1_000) == pytest.approx(2 * one.mean_ms(1_000), rel=1e-6)


@pytest.mark.parametrize(
    "scenario",
    [
        model(degree=2),
        model(latency=LatencyTable(model="constant")),
        model(latency=LatencyTable(model="lognormal", mean_ms=0.0)),
        model(latency=LatencyTable(model="lognormal", sigma=0.0)),
        model(latency=LatencyTable(model="lognormal", sigma=9.0)),
        model(processing_ms=10_000.0),
    ],
)
def test_of_waves_and_of_extremes_it_says_nothing(scenario: Scenario) -> None:
    assert growth_of(scenario) is None
