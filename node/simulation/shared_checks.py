"""What holds of a log that all nodes share when all is quiet: their views of it are the same."""

import asyncio
from dataclasses import astuple
from typing import Any, Final

from rillnode.actors.storage.shared.memory_view import MemoryView, ViewTables
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.history import History
from rillnode.node.simulation.shared_disk import SharedDisk, SharedServers
from rillnode.node.simulation.world import NodeMachine, World

SETTLED_SECONDS: Final = 10.0
"""Within which a view has all that was stored."""

LOOK_SECONDS: Final = 0.1


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
    disk = machine.disk
    assert isinstance(disk, SharedDisk)
    deadline = world.scheduler.now + SETTLED_SECONDS
    while True:
        try:
            view = await world.on(machine, disk.store.current_view(shard))
        except StoreError as error:
            text = f"it cannot be opened ({error})"
        else:
            assert isinstance(view, MemoryView)
            oracle = servers.oracle(shard)
            if view.progress.sequence == oracle.applier.progress.sequence:
                here, there = _state(view.tables), _state(oracle)
                return ", ".join(f"another {key}" for key in here if here[key] != there[key])
            text = f"it has {view.progress.sequence} of {oracle.applier.progress.sequence} frames"
        if world.scheduler.now > deadline:
            return text
        await asyncio.sleep(LOOK_SECONDS)


def _state(tables: ViewTables) -> dict[str, Any]:
    """All that a view holds."""
    state = {name: value for name, value in vars(tables).items() if name != "applier"}
    logs = {
        number: (
            astuple(log.state),
            [(one.first_index, one.value) for one in log.blocks],
            sorted(log.keys),
        )
        for number, log in tables._logs.items()  # pyright: ignore[reportPrivateUsage]
    }
    return {**state, "_logs": logs, "progress": tables.applier.progress}
