"""Rests: clients stay connected and idle until what is unused has gone to sleep.

Then one entry more is pushed to each log that somebody follows.
"""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Final

from rillnode.node.simulated.history import History, Push, log_of
from rillnode.node.simulated.programs import CALM_SECONDS, REST_SECONDS, Program, payload_of
from rillnode.node.simulation.clients.readers import Follower
from rillnode.node.simulation.leftovers import remembered, subscriptions
from rillnode.node.simulation.world import NodeMachine, World

REST_PART: Final = 0.25
"""How many runs have a rest: its pings cost more than all else that happens in it."""

RESTED: Final = "rested"
ENTRY_BYTES: Final = 64


def rests(seed: object) -> bool:
    """Whether there is a rest in a run."""
    return Random(f"{seed} rest").random() < REST_PART


async def rest(world: World, history: History, programs: Iterable[Program], parts: int) -> None:
    """Let clients rest, and push to all who still follow."""
    programs = list(programs)
    for program in programs:
        program.rest()
    await asyncio.sleep(CALM_SECONDS)
    dials = world.network.dials.copy()
    await asyncio.sleep(REST_SECONDS)
    for name in world.network.dials - dials:
        history.broken("link-lost", f"{name} has to dial again, though nothing is wrong")
    followed = {one.node: one.log_name for one in programs if isinstance(one, Follower)}
    for name, machine in world.nodes.items():
        if log_of(name) in history.lost or not machine.ready:
            continue
        sessions = [one.machine.session for one in programs if one.node == name]
        known = sum(one.subscriptions_count for one in sessions if one is not None)
        kept = subscriptions(machine.node.observed)
        if kept != known:
            text = f"{name} has {kept} subscriptions of clients that have {known}"
            history.broken("left-over", text)
        for text in remembered(machine.node.observed.system):
            history.broken("left-over", f"{name} has {text}")
        if name in followed:
            await world.on(machine, _push(machine, followed[name], history, parts))


async def _push(machine: NodeMachine, log: str, history: History, partitions: int) -> None:
    """Push one entry to each partition of a stream, from inside of a node."""
    stream = await machine.node.stream(log)
    for partition in range(partitions):
        payload = payload_of(f"{RESTED} {machine.name}", partition, ENTRY_BYTES)
        push = Push(RESTED, partition, (log, partition), history.now(), attempts=1)
        history.pushed({payload: push})
        history.confirmed([payload], [await stream.push(payload, partition=partition)])
