"""Shows a simulated network: hosts, connections, and who cannot reach whom."""

from collections.abc import Mapping
from typing import Any, Final

from rillnode.node.simulation.loop import Life
from rillnode.node.simulation.world import Machine, NodeMachine, World

HOSTS_MAX: Final = 128
"""Hosts in one picture. Own choice: as many as can be told apart."""

WAYS_MAX: Final = 2_000


def state_of(machine: Machine) -> str:
    """How a machine is: `up`, `starting`, `paused`, `killed` or `off` (no power)."""
    if not machine.runs:
        return "killed" if machine.host.up else "off"
    if machine.loop.life is Life.PAUSED:
        return "paused"
    if isinstance(machine, NodeMachine) and not machine.ready:
        return "starting"
    return "up"


def network_view(world: World, homes: Mapping[str, str]) -> dict[str, Any]:
    """The network now, as a JSON document; `homes` are the nodes of clients, by their names."""
    machines = list(world.machines.values())[:HOSTS_MAX]
    names = {machine.name for machine in machines}
    groups = _groups(world, sorted(names))
    ways = [
        [source, target, count]
        for (source, target), count in world.network.connections().items()
        if source in names and target in names
    ]
    cut = [list(way) for way in world.network.cut() if names.issuperset(way)]
    return {
        "hosts": [
            {
                "name": machine.name,
                "kind": "node" if isinstance(machine, NodeMachine) else "client",
                "state": state_of(machine),
                "home": homes.get(machine.name),
                "group": groups[machine.name],
            }
            for machine in machines
        ],
        "links": ways[:WAYS_MAX],
        "cut": cut[:WAYS_MAX],
        "more": len(world.machines) > HOSTS_MAX,
    }


def _groups(world: World, names: list[str]) -> dict[str, int]:
    """Numbers of the parts that the network has fallen into: 0 is the largest."""
    apart = set(world.network.cut())
    left, parts = set(names), list[list[str]]()
    while left:
        reached = [min(left)]
        left.remove(reached[0])
        for one in reached:
            near = [
                other for other in sorted(left)
                if (one, other) not in apart and (other, one) not in apart
            ]  # fmt: skip
            left.difference_update(near)
            reached += near
        parts.append(reached)
    parts.sort(key=len, reverse=True)
    return {name: number for number, part in enumerate(parts) for name in part}
