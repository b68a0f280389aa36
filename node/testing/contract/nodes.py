"""Nodes for suites: on loopback, with one client that may do everything."""

import asyncio
from pathlib import Path
from typing import Final

from rillnode.actors.core.access import VERBS
from rillnode.actors.log import Complete, LogStore, OnHealth
from rillnode.actors.log.memory import Faults, MemoryLogStore
from rillnode.codecs.keys import Identity
from rillnode.node.client import Client, connect
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener
from rillnode.node.runtime import Node
from rillnode.node.stores import MakeStore
from rillnode.transports.clock import SystemClock

CLIENT: Final = Identity.from_seed(b"a client of the tests".ljust(32, b"."))
"""The key of the client that may do everything."""


def bare_config(directory: Path) -> Config:
    """A node with nothing but its `noise` listener, at any port, and its data below a directory."""
    who = f"noise:{CLIENT.public_hex}"
    return Config(
        name="test",
        data_dir=directory,
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(
            GrantTable(who=who, streams="*", may=VERBS),
            GrantTable(who=who, addresses="*", may=("admin",)),
        ),
    )


async def connect_to(
    node: Node, identity: Identity = CLIENT, *, through: str | None = None
) -> Client:
    """A client over the node's Noise listener, or `through` another address that leads there."""
    address = through or node.addresses()["noise"]
    return await connect(f"noise://{address}", identity=identity, node_identity=node.identity)


def store_with(faults: Faults | None = None) -> MakeStore:
    """Makes a store in memory, on a disk with such faults; called where the node runs."""
    loop = asyncio.get_running_loop()

    def make_store(complete: Complete, on_health: OnHealth) -> LogStore:
        return MemoryLogStore(
            complete=complete,
            on_health=on_health,
            post=loop.call_soon_threadsafe,
            clock=SystemClock(loop),
            faults=faults,
        )

    return make_store
