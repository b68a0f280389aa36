"""Restarts one idle node, and checks that all recovers, whatever faults there were.

Who dials it begins with the shortest pause, for nothing has failed lately. An overlay is repaired
without it, and what is pushed meanwhile is there soon after it is back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import SharedNodes
from rillnode.node.simulation.world import NodeMachine, World

AWAY_SECONDS: Final = 1.5
"""For how long nobody can dial it: a few attempts fail."""

BACK_SECONDS: Final = 6.0
"""From its start until all links are there again: the pause after some failures, and its end."""

OVERLAY_SECONDS: Final = 40.0
"""Within which an overlay is as it should be, without a node and with it again."""

LOOK_SECONDS: Final = 0.25

DIALLING_LOOK_SECONDS: Final = 0.02
"""A pause after a failure is longer."""


async def start_one_again(world: World, history: History, shared: SharedNodes | None) -> None:
    """End one node, start it again, and see that all is as before; where it is one of several."""
    has_peers = any(machine.config.peers for machine in world.nodes.values())
    if not has_peers and world.servers is None:
        return
    names = list(world.nodes)
    machine = world.nodes[world.network.random("who starts again").choice(names)]
    history.note(machine.name, "starts again")
    machine.end()
    back_at = world.now + AWAY_SECONDS
    await see_refused(world, history, machine, back_at)
    await asyncio.sleep(back_at - world.now)
    if shared is not None:
        await _until_right(world, history, shared.repaired, OVERLAY_SECONDS)
        await shared.push_aside(machine)
    world.boot(machine)

    async def not_linked() -> list[str]:
        return _not_linked(world)

    await _until_right(world, history, not_linked, BACK_SECONDS)
    if shared is not None:
        await _until_right(world, history, shared.missing, OVERLAY_SECONDS)


def _not_linked(world: World) -> list[str]:
    """Nodes that have not started, or have no link to a peer that they keep one to."""
    found = [f"{one.name} has not started again" for one in world.nodes.values() if not one.ready]
    if found:
        return found
    return [
        f"{one.name} has no link to {peer}"
        for one in world.nodes.values()
        for peer, status in one.node.observed.parts.peers.statuses().items()
        if status["state"] != "open"
    ]


async def _until_right(
    world: World, history: History, problems: Callable[[], Awaitable[list[str]]], seconds: float
) -> None:
    deadline = world.now + seconds
    while found := await problems():
        if world.now > deadline:
            history.broken("back-soon", f"{found[0]}, {seconds:.0f} s later")
            return
        await asyncio.sleep(LOOK_SECONDS)


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
        if world.now > back_at - DIALLING_LOOK_SECONDS:
            return
        await asyncio.sleep(DIALLING_LOOK_SECONDS)
    dials = world.network.dials[near.name]
    asking = near.loop.create_task(_ask(near, away.name))
    failed = False
    while not asking.done() and world.now < back_at:
        if failed:
            text = f"{near.name} cannot reach {away.name}, and does not say so"
            history.broken("route-answer", text)
            break
        failed = state() == "failed"
        await asyncio.sleep(DIALLING_LOOK_SECONDS)
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
