"""Groups and queues at two nodes of one log, which are killed with members, workers and clients."""

import asyncio
from pathlib import Path

import pytest

from killed_work import kill_members, kill_workers
from nats_support import NatsServer, needs_nats
from node_processes import NodeProcess

pytestmark = needs_nats


def nodes_of(directory: Path, nats: NatsServer) -> list[NodeProcess]:
    """Two nodes of one log."""
    return [NodeProcess(directory / name, [nats]) for name in ("a", "b")]


@pytest.mark.long
@pytest.mark.parametrize(("kills", "seed"), [(30, 1), (100, 2), (100, 3)])
def test_a_group_skips_nothing_and_no_position_goes_back(
    tmp_path: Path, nats: NatsServer, kills: int, seed: int
) -> None:
    asyncio.run(kill_members(tmp_path, nodes_of(tmp_path, nats), kills, seed))


@pytest.mark.long
@pytest.mark.parametrize("by_key", [False, True], ids=["any order", "by key"])
@pytest.mark.parametrize(("kills", "seed"), [(30, 1), (100, 2)])
def test_a_queue_has_each_entry_done_once_or_dead(
    tmp_path: Path, nats: NatsServer, kills: int, seed: int, by_key: bool
) -> None:
    nodes = nodes_of(tmp_path, nats)
    asyncio.run(kill_workers(tmp_path, nodes, kills, seed, by_key=by_key))
