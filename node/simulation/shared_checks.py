"""Checks that all nodes' views of a shared log are the same when all is quiet."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from msgspec import structs

from rillnode.actors.core.streams.retention import RELIST_SECONDS, SWEEP_SECONDS
from rillnode.actors.log.shared.memory_view import MemoryView, ViewTables
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.codecs.errors import StoreError
from rillnode.node.simulated.history import History
from rillnode.node.simulation.shared_disk import SharedDisk, SharedServers
from rillnode.node.simulation.world import NodeMachine, World

SETTLED_SECONDS: Final = 10.0
"""Within which a view has all that was stored."""

LOOK_SECONDS: Final = 0.1

KEPT_OPEN_SECONDS: Final = RELIST_SECONDS + 2 * SWEEP_SECONDS
"""By then streams that are in use again are looked at, and swept."""


async def keep_open(world: World, servers: SharedServers) -> None:
    """Have all views in use for so long that what is over its limits goes."""
    until = world.now + KEPT_OPEN_SECONDS
    while world.now < until:
        for machine in world.nodes.values():
            for shard in range(len(servers.shards)) if machine.ready else ():
                with suppress(StoreError):  # which is found when they are compared
                    await world.on(machine, _store(machine).current_view(shard))
        await asyncio.sleep(1.0)


def _store(machine: NodeMachine) -> SharedLogStore:
    disk = machine.disk
    assert isinstance(disk, SharedDisk)
    return disk.store


async def check_views(world: World, servers: SharedServers, history: History) -> None:
    """Open all views of all nodes, and compare them with the oracle's."""
    for machine in world.nodes.values():
        if machine.ready:
            for shard in range(len(servers.shards)):
                text = await _differing(world, machine, servers, shard)
                if text:
                    history.broken("view-differs", f"{machine.name}, shard {shard}: {text}")
    connected, living = len(servers.clients), sum(one.ready for one in world.nodes.values())
    if connected != living:
        history.broken("left-over", f"the log's servers have {connected} clients of {living} nodes")


async def _differing(world: World, machine: NodeMachine, servers: SharedServers, shard: int) -> str:
    """In what a node's view of a shard differs from the oracle's; nothing where it is the same."""
    deadline = world.now + SETTLED_SECONDS
    while True:
        try:
            view = await world.on(machine, _store(machine).current_view(shard))
        except StoreError as error:
            text = f"it cannot be opened ({error})"
        else:
            assert isinstance(view, MemoryView)
            oracle = servers.oracle(shard)
            if view.progress.sequence == oracle.applier.progress.sequence:
                here, there = _state(view.tables), _state(oracle)
                return ", ".join(f"another {key}" for key in here if here[key] != there[key])
            text = f"it has {view.progress.sequence} of {oracle.applier.progress.sequence} frames"
        if world.now > deadline:
            return text
        await asyncio.sleep(LOOK_SECONDS)


def _state(tables: ViewTables) -> dict[str, Any]:
    """All that a view holds."""
    state = {name: value for name, value in vars(tables).items() if name != "applier"}
    logs = {
        number: (
            structs.astuple(structs.replace(log.state, numbers=None)),
            # Of producers the order counts, too: it is that in which they are forgotten.
            log.state.numbers.pack() if log.state.numbers else b"",
            [(one.first_index, one.value) for one in log.blocks],
            sorted(log.keys),
        )
        for number, log in tables._logs.items()  # pyright: ignore[reportPrivateUsage]
    }
    return {**state, "_logs": logs, "progress": tables.applier.progress}
