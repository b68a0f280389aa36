"""Checks that messages through an unreachable peer fail, and leave nothing behind.

Looked at while a node is away in quiet: with other troubles, what is not answered may be lost.
"""

import asyncio
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.node.simulated.history import History
from rillnode.node.simulation.world import NodeMachine, World

LOOK_SECONDS: Final = 0.02
"""A pause after a failure is longer."""

ASK_SECONDS: Final = 30.0

DIALS_MAX: Final = 30
"""Attempts within the second or two: a few to each of some, as pauses grow."""


async def see_refused(world: World, history: History, away: NodeMachine, back_at: float) -> None:
    """Ask a node for who is away, through a node that dials it just now: that says so.

    Args:
        world: where it happens.
        history: of the run.
        away: the node that has ended.
        back_at: when it starts again; this returns before, or at about that time.
    """
    near = next(
        (
            machine
            for machine in world.nodes.values()
            if machine.ready and any(peer.name == away.name for peer in machine.config.peers)
        ),
        None,
    )
    if near is None:
        return

    def state() -> str:
        found: str = near.node.observed.parts.peers.statuses()[away.name]["state"]
        return found

    while state() != "dialling":
        if world.now > back_at - LOOK_SECONDS:
            return
        await asyncio.sleep(LOOK_SECONDS)
    dials = world.network.dials[near.name]
    asking = near.loop.create_task(_ask(near, away.name))
    failed = False
    while not asking.done() and world.now < back_at:
        if failed:
            text = f"{near.name} cannot reach {away.name}, and does not say so"
            history.broken("route-answer", text)
            break
        failed = state() == "failed"
        await asyncio.sleep(LOOK_SECONDS)
    near.loop.call_soon(asking.cancel)
    await asyncio.sleep(max(0.0, back_at - world.now))
    dials = world.network.dials[near.name] - dials
    if dials > DIALS_MAX:
        text = f"{near.name} dials {dials} times in a moment, though {away.name} is not there"
        history.broken("dialled-often", text)


async def _ask(machine: NodeMachine, away: str) -> None:
    try:
        client = machine.node.client
        await client.ask(f"peer/{away};echo", b"there?", timeout_seconds=ASK_SECONDS)
    except RillnodeError:
        return
