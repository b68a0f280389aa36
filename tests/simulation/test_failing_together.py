"""Actors of every class fail while all kinds of clients are there, or several of them do.

The quick tests try each case alone, under the smallest load that comes to it.
"""

import asyncio
from contextlib import ExitStack
from itertools import cycle
from random import Random
from time import monotonic
from typing import Final, get_args

import pytest
from _pytest.mark import ParameterSet

from contract_cases import (
    ALONE,
    CASES,
    SHARED,
    TIMES,
    Case,
    Load,
    contract_holds,
    costs_what_it_must,
    id_of,
    load_together,
    reached,
    run_all,
    with_node,
)
from contract_load import Round
from rillnode.actors.engine.faults import When
from rillnode.testing import Network, fail

KINDS_AT_ONCE: Final = 3
STRIKES: Final = (1, 1, 1, 2, 2, 3)
"""How often each of several fails, fewer times than actors are given up after."""
RESTED_SECONDS: Final = 60.0
"""Virtual time in which who has failed is there again, though it pauses longer each time."""


def before_or_after() -> list[ParameterSet]:
    """Each case once, before its message or after it in turn: alone each is tried with both."""
    found = zip(CASES, cycle(get_args(When)), strict=False)
    return [pytest.param(case, when, id=f"{id_of(case)}, {when}") for case, when in found]


@pytest.mark.long
@pytest.mark.parametrize(("case", "when"), before_or_after())
def test_one_failure_under_all_clients_costs_what_it_must(case: Case, when: When) -> None:
    costs_what_it_must(case, when, load_together)


@pytest.mark.long
def test_several_failures_cost_what_they_must(pytestconfig: pytest.Config) -> None:
    """Seeds are tried one after another, as many as there is time for."""
    until = monotonic() + pytestconfig.option.fault_seconds
    seed = pytestconfig.option.fault_seed or Random().randrange(1, 2**31)
    while monotonic() < until:
        print(f"again: --fault-seconds 1 --fault-seed {seed}")
        _several_fail(Random(seed))
        seed += 1


def _several_fail(random: Random) -> None:
    """Have two to five cases fail, which a few kinds of clients come to."""
    shared = random.random() < 0.25
    kinds = random.sample(SHARED.rounds if shared else ALONE, KINDS_AT_ONCE)
    load = Load(tuple(kinds), shared=shared)
    cases = {id_of(case): case for case in CASES}
    names = sorted(reached(load))
    chosen = random.sample(names, min(len(names), random.randint(2, 5)))
    errors = (None, ValueError, asyncio.CancelledError)
    planted = [
        (cases[name], random.choice(STRIKES), random.choice(get_args(When)), random.choice(errors))
        for name in chosen
    ]

    async def several(rounds: list[Round], network: Network) -> None:
        with ExitStack() as stack:
            faults = [
                stack.enter_context(fail(*case, times, when, error))
                for case, times, when, error in planted
            ]
            await run_all(rounds, TIMES)
        assert any(fault.hits for fault in faults), "the load has not come to any"
        await asyncio.sleep(RESTED_SECONDS)
        await contract_holds(rounds, network)

    with_node(several, load)
