"""Nodes for tests: everything allowed, every port free, everything below one directory."""

import asyncio
from pathlib import Path

import msgspec

from rillnode.actors.core.access import VERBS
from rillnode.actors.log import Complete, LogStore, OnHealth
from rillnode.actors.log.memory import Faults, MemoryLogStore
from rillnode.codecs.keys import Identity
from rillnode.node.client import Client, connect
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener
from rillnode.node.ockam.config import OckamListener
from rillnode.node.runtime import Node
from rillnode.node.stores import MakeStore
from rillnode.node.testing.contract.ports import free_address
from rillnode.transports.clock import SystemClock

CLIENT = Identity.from_seed(b"a client of the tests".ljust(32, b"."))


def node_config(directory: Path, *grants: GrantTable, strict: bool = False) -> Config:
    """A node with the listeners `noise`, `ockam` and `http`; without grants, all are allowed."""
    everything = tuple(
        GrantTable(who=who, streams="*", may=VERBS)
        for who in ("anonymous", f"noise:{CLIENT.public_hex}")
    )
    return Config(
        name="test",
        data_dir=directory,
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="127.0.0.1:0"),
        grants=grants or everything,
        tables=[OckamListener(listen="127.0.0.1:0", strict=strict)],
    )


def at_own_ports(config: Config) -> Config:
    """The same node where it is found again: nobody else is given its ports while it is stopped."""
    ockam = config.table(OckamListener)
    assert ockam is not None
    return msgspec.structs.replace(
        config, noise=msgspec.structs.replace(config.noise, listen=free_address())
    ).having(msgspec.structs.replace(ockam, listen=free_address()))


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
