"""Simulated nodes that share streams."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from rillnode.node.client.client import Client
from rillnode.node.config import Config
from rillnode.node.overlay.config import OverlayTable, TrackerTable
from rillnode.node.simulated.nodes import node_config
from rillnode.testing import Network

TRACKER = "t"
STREAM = "readings"


def tracker_config(*, degree: int = 4, takes_part: bool = False) -> Config:
    """A node that is a tracker, and only that or a storage node too."""
    tracker = TrackerTable(enabled=True, degree=degree)
    overlay = [OverlayTable(storage=True)] if takes_part else []
    return node_config(TRACKER).having(tracker, *overlay)


def member_config(name: str, *, storage: bool = False) -> Config:
    """A node that shares all its streams."""
    overlay = OverlayTable(trackers=(TRACKER,), storage=storage)
    return node_config(name).having(overlay)


def add_overlay(
    network: Network, names: Sequence[str], *, storage: Sequence[str] = (), degree: int = 4
) -> None:
    """Add a tracker and nodes of these names; the tracker takes part if it is among them."""
    config = tracker_config(degree=degree, takes_part=TRACKER in names)
    network.add_node(TRACKER, config=config)
    for name in names:
        if name == TRACKER:
            continue
        config = member_config(name, storage=name in storage)
        network.add_node(name, peers=[TRACKER], config=config)


async def entries(client: Client, stream: str = STREAM) -> list[bytes]:
    """All that a node has of a stream, in its order."""
    opened = await client.stream(stream)
    found: list[bytes] = []
    while page := await opened.pull(len(found), 1_000):
        found += [bytes(entry.data) for entry in page]
    return found


async def push(client: Client, *items: bytes, stream: str = STREAM) -> None:
    """Push to a node's stream, and wait until all is durable."""
    opened = await client.stream(stream)
    await opened.push_many(items)


async def all_have(
    network: Network, names: Sequence[str], expected: Sequence[bytes], *, within: float = 120
) -> dict[str, list[bytes]]:
    """Wait until each node has everything, each entry once; return what each has."""
    deadline = network.now + within
    while True:
        found: dict[str, list[bytes]] = {}
        for name in names:
            client = await network.client(name)
            found[name] = await entries(client)
            await client.close()
        if all(Counter(has) == Counter(expected) for has in found.values()):
            return found
        if network.now > deadline:
            short = {name: len(has) for name, has in found.items()}
            raise AssertionError(f"{len(expected)} entries are expected, there are {short}")
        await asyncio.sleep(0.5)
