"""Declares the world that simulated clients and plug-ins' parts of a run live in.

The simulation satisfies these Protocols; whoever is written with them imports nothing of it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Protocol, TypeVar

from rillnode.actors.ports import Clock
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import Client
from rillnode.node.client.session import Connect, Session
from rillnode.node.config import Config
from rillnode.node.runtime import Node

T = TypeVar("T")


class Pipe(Protocol):
    """One direction of a connection.

    Attributes:
        source: name of the machine that sends.
        target: name of the machine that receives.
        port: which of the dialled side the connection is to.
        dialling: whether the source is the side that has dialled.
    """

    source: str
    target: str
    port: int
    dialling: bool


Watch = Callable[[Pipe, bytes], object]
"""Sees bytes on their way."""


class Network(Protocol):
    """The machines and the ways between them.

    Attributes:
        on_sent: who sees all that processes hand to the network.
        on_harmed: who is told where bytes were changed or repeated.
        harmed_at: when that was last.
        unproven_ports: listeners at which nothing tells bytes that were changed from others, so
            that none are.
    """

    on_sent: list[Watch]
    on_harmed: list[Callable[[Pipe], object]]
    harmed_at: float
    unproven_ports: set[int]

    @property
    def dials(self) -> Mapping[str, int]:
        """Connections that each machine has asked for; whoever asked for none is not there."""
        ...

    @property
    def harmed(self) -> int:
        """How often bytes were changed or repeated so far."""
        ...

    def random(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose."""
        ...

    def secret(self, purpose: str, count: int) -> bytes:
        """Random bytes, the same for the same purpose."""
        ...


class Machine(Protocol):
    """A machine and its process, which may end and start again.

    Attributes:
        name: its name in the network.
        identity: its key, whatever process it runs.
        session: the last of a client of its process.
    """

    name: str
    identity: Identity
    session: Session | None

    @property
    def channel_key(self) -> ChannelKey:
        """Its key for secure channels, likewise."""
        ...

    @property
    def clock(self) -> Clock:
        """Its clock, which may be wrong."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its process."""
        ...

    @property
    def runs(self) -> bool:
        """Whether its process lives; it may be paused."""
        ...

    @property
    def lives(self) -> int:
        """How many processes it had."""
        ...

    def entropy(self, count: int, /) -> bytes:
        """Random bytes that the seed decides."""
        ...


class NodeMachine(Machine, Protocol):
    """A machine that runs a node.

    Attributes:
        config: with which its next process starts.
        node: the node of its last process.
        ready: whether the node of this process has started.
    """

    config: Config
    node: Node
    ready: bool


class World(Protocol):
    """Everything that is simulated in one run."""

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        ...

    @property
    def network(self) -> Network:
        """What is between the machines."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeMachine]:
        """The machines with nodes, by name."""
        ...

    def add_node(self, name: str, number: int, config: Config) -> NodeMachine:
        """Add a machine that is to run a node; `number` is its place."""
        ...

    def add_machine(self, name: str, number: int) -> Machine:
        """Add a machine for a client."""
        ...

    def peer(self, config: Config, *others: str) -> Config:
        """A configuration with other nodes as peers, by their names."""
        ...

    def channel_key_of(self, name: str) -> ChannelKey:
        """The key for secure channels that the machine of this name has, or will have."""
        ...

    async def client(
        self, machine: Machine, node: str, *, reconnect: bool = True, connect: Connect | None = None
    ) -> Client:
        """A client on a machine, connected to a node; for the machine's own process.

        `connect` opens other links than those of the node's `noise` listener.
        """
        ...

    def session(self, machine: Machine, node: str, *, identity: Identity, expected: str) -> Session:
        """A session that is not open yet, of whoever says so with whomever is expected there."""
        ...

    async def on(self, machine: Machine, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a machine's process, and wait for its result."""
        ...
