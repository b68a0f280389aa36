"""Runs with clients on plain Ockam TCP and in secure channels."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from rillnode.node.ockam.simulation.channel_users import ChannelUser
from rillnode.node.ockam.simulation.tcp_users import OckamTcpUser
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    ClientsTable,
    DiskTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)

BOTH = Scenario(
    nodes=2,
    messages=40,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(ockam_tcp_users=3, channel_users=3, readers=0, examiners=0),
    random_faults=RandomFaults(count=5),
)

HASH = """
from test_ockam_clients import BOTH
from rillnode.node.simulation.run import Run
print(Run(BOTH, 5).run().trace_hash)
"""


def test_a_seed_gives_the_same_trace_in_every_process_and_for_every_hash_seed() -> None:
    here = Run(BOTH, 5).run().trace_hash
    path = os.pathsep.join((os.path.dirname(__file__), *sys.path))
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", HASH],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        assert done.stdout.strip() == here


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_is_broken(seed: int) -> None:
    assert Run(BOTH, seed).run().violations == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_rule_is_broken_by_many_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        assert Run(BOTH, seed).run().violations == [], f"seed {seed}"


def test_no_rule_is_broken_in_an_overlay() -> None:
    clients = ClientsTable(ockam_tcp_users=2, channel_users=2)
    scenario = Scenario(
        nodes=3,
        degree=2,
        overlay=True,
        messages=20,
        seconds=8.0,
        disk=DiskTable(store="memory"),
        clients=clients,
        random_faults=RandomFaults(count=2),
    )
    assert Run(scenario, 1).run().violations == []


def test_all_of_them_push_and_pull_in_every_dialect_and_at_either_end() -> None:
    dialects, ways = Counter[str](), Counter[tuple[bool, bool]]()
    for seed in range(3):
        run = Run(BOTH, seed, only=[])
        assert run.run().violations == []
        for name, program in run.programs.items():
            if isinstance(program, ChannelUser):
                ways[program.far == program.node, program.plain] += 1
            elif isinstance(program, OckamTcpUser):
                dialects[program.dialect] += 1
            else:
                continue
            pushes = [one for one in run.history.pushes.values() if one.producer == f"{name}.1"]
            assert len(pushes) > 2
            assert all(push.index is not None for push in pushes)
            assert {push.log[0] for push in pushes} == {program.log_name}
    assert set(dialects) == {"u16", "2024"}
    assert set(ways) == {(False, False), (True, False), (True, True)}
