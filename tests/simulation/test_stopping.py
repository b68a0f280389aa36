"""A node stops while all kinds of clients wait: each has one outcome, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest
from thespian.actors import ActorAddress

from contract_load import CONFIG, NODE
from contract_nextgraph import broker_url
from contract_streamr import streamr_url
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit
from rillnode import nextgraph, streamr
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import ReadOperation
from rillnode.codecs.errors import RillnodeError
from rillnode.node.config import Config
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.runtime import DRAIN_SECONDS, ENDING_SECONDS
from rillnode.node.simulation.disk import SimulatedStore
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from rillnode.testing import Network
from streamr_keys_support import PUBLISHER, rsa_key
from streamr_rest_support import CREATES

STOPPING: Final = Config(
    name=NODE,
    on_fatal="stay",
    grants=(*CONFIG.grants, CREATES),
    tables=[StreamrListener(), NextgraphListener(registration="open"), ServicesTable()],
)
SEEDS: Final = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
SYNC_SECONDS: Final = 0.4
READ_SECONDS: Final = 0.7
"""How long the disk takes: what is asked has not been done when the node is to stop."""

NEVER: Final = 1_000.0
"""Seconds that take longer than any stop may."""

ARRIVED_SECONDS: Final = 0.02
"""After which what was asked has arrived."""

KEPT: Final = {"push", "save", "text", "commit"}
"""What is there once it was confirmed."""

OUTCOME_SECONDS: Final = 40.0
"""Longer than a stop may take, and less than clients wait by themselves for an answer."""


@dataclass
class Asked:
    """The questions of clients, and their outcomes.

    Attributes:
        outcomes: of each question, by its name: None, or the error's code.
        confirmed: what was said to be stored.
    """

    outcomes: dict[str, str | None] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    tasks: "list[asyncio.Task[None]]" = field(default_factory=list)

    def ask(self, name: str, asking: Awaitable[object]) -> None:
        self.tasks.append(asyncio.ensure_future(self._ask(name, asking)))

    async def _ask(self, name: str, asking: Awaitable[object]) -> None:
        assert name not in self.outcomes
        try:
            async with asyncio.timeout(OUTCOME_SECONDS):
                await asking
        except RillnodeError as error:
            self.outcomes[name] = error.code
        except TimeoutError:
            pytest.fail(f"{name} has no outcome")
        else:
            self.outcomes[name] = None
            self.confirmed.add(name)


async def published(client: streamr.Client, text: str) -> None:
    await client.publish("sensors", text)
    await client.flush()


async def resent(client: streamr.Client) -> list[Any]:
    return [message.content async for message in client.resend("sensors", streamr.Last(99))]


async def synced(client: nextgraph.Client) -> list[bytes]:
    events = client.sync(INNER, TOPIC.public_key)
    return [nextgraph.open_event(event, BRANCH).reference.id async for event in events]


COMMITS: Final = {f"commit {number}": commit(b"%d" % number) for number in range(4)}


class Clients:
    """One of each kind, connected to a node; they do not connect again."""

    def __init__(self, network: Network, stack: AsyncExitStack) -> None:
        self._network = network
        self._stack = stack

    async def open(self) -> None:
        network, stack = self._network, self._stack
        self.native = await network.client(NODE, reconnect=False)
        stack.push_async_callback(self.native.close)
        self.streamr = streamr.Client(
            endpoints_of(streamr_url(NODE)), key=PUBLISHER, make_rsa_key=rsa_key
        )
        stack.push_async_callback(self.streamr.close)
        await self.streamr.open()
        broker = bytes.fromhex(network.running(NODE).facts["nextgraph_peer_id"])
        self.nextgraph = await nextgraph.connect(broker_url(NODE), user=ALICE, broker=broker)
        stack.push_async_callback(self.nextgraph.close)

    async def make(self) -> None:
        """What the questions are about."""
        self.stream = await self.native.stream("events", partitions=3)
        await self.streamr.get_or_create_stream("sensors")
        await self.nextgraph.pin(REPO, ACCESS, publish=[TOPIC])
        await self.nextgraph.publish(INNER, TOPIC, BRANCH, commit(b"first"))

    def ask(self, asked: Asked) -> None:
        """Ask the streams, the services, and both kinds of connections."""
        native, stream = self.native, self.stream
        for number in range(12):
            asked.ask(f"push {number}", stream.push(b"%d" % number, partition=number % 3))
        for partition in range(3):
            asked.ask(f"pull {partition}", stream.pull(0, 99, partition=partition))
            asked.ask(f"save {partition}", native.set_index("n", "events", 7, partition=partition))
            asked.ask(f"load {partition}", native.get_index("m", "events", partition=partition))
        asked.ask("create", native.stream("another"))
        asked.ask("describe", native.describe("events"))
        asked.ask("ask", native.ask("echo", b"x", timeout_seconds=OUTCOME_SECONDS - 1.0))
        for number in range(4):
            text = f"text {number}"
            asked.ask(text, published(self.streamr, text))
        asked.ask("resend", resent(self.streamr))
        for name, made in COMMITS.items():
            asked.ask(name, self.nextgraph.publish(INNER, TOPIC, BRANCH, made))
        asked.ask("sync", synced(self.nextgraph))

    async def find(self) -> set[str]:
        """What is there of all that was asked."""
        found = set[str]()
        stream = await self.native.stream("events")
        for partition in range(3):
            entries = await stream.pull(0, 99, partition=partition)
            found |= {f"push {bytes(one.data).decode()}" for one in entries}
            if await self.native.get_index("n", "events", partition=partition) == 7:
                found.add(f"save {partition}")
        found |= {str(text) for text in await resent(self.streamr)}
        ids = await synced(self.nextgraph)
        return found | {name for name, made in COMMITS.items() if made.reference.id in ids}


Delayed = Callable[[SimulatedStore, ReadOperation], bool]


def reads_take(seconds: float) -> Delayed:
    """A store whose reads take so long."""
    read = SimulatedStore.read

    def later(self: SimulatedStore, operation: ReadOperation) -> bool:
        loop = asyncio.get_running_loop()

        def answer() -> None:
            if read(self, operation):
                self._complete((operation,))  # pyright: ignore[reportPrivateUsage]

        loop.call_later(seconds, answer)
        return False

    return later


async def stop(network: Network) -> float:
    """Stop the node, and return how long that has taken."""
    world, before = network._world, network.now  # pyright: ignore[reportPrivateUsage]
    await world.on(world.nodes[NODE], network.running(NODE).stop())
    return network.now - before


class Sleeper(Worker):
    """An application's: waits so long with each message, and does not mind that it is cancelled."""

    async def handle(self, message: float, sender: ActorAddress | None) -> None:
        try:
            await self.sleep(message)
        except asyncio.CancelledError:
            await self.sleep(message)
        if sender is not None:
            self.send(sender, "slept")


async def ask_inside(network: Network, asked: Asked, seconds: float) -> None:
    """Ask an application's actor in the node: two questions wait behind the first."""
    world, system = network._world, network.running(NODE)._system  # pyright: ignore[reportPrivateUsage]

    async def make() -> Cell:
        return system.spawn(Sleeper)

    cell = await world.on(world.nodes[NODE], make())
    for number in range(3):
        asking = world.on(world.nodes[NODE], outcome(system.ask(cell, seconds)))
        asked.ask(f"inside {number}", asking)


async def outcome(asking: Awaitable[object]) -> object:
    return await asking


def stopped(seed: int, *, read_seconds: float, inside_seconds: float) -> tuple[Asked, float, str]:
    """Stop a node while everybody waits, and start it again: all that was confirmed is there."""
    asked, random = Asked(), Random(seed)
    with Network(seed=seed, jitter_ms=1.0) as network:
        network.add_node(NODE, config=STOPPING)

        async def application() -> float:
            async with AsyncExitStack() as stack:
                clients = Clients(network, stack)
                await clients.open()
                await clients.make()
                disk = network._world.nodes[NODE].disk  # pyright: ignore[reportPrivateUsage]
                with pytest.MonkeyPatch.context() as slow:
                    slow.setattr(SimulatedStore, "read", reads_take(read_seconds))
                    slow.setattr(disk, "sync_seconds", lambda: SYNC_SECONDS)
                    clients.ask(asked)
                    await ask_inside(network, asked, inside_seconds)
                    await asyncio.sleep(ARRIVED_SECONDS + random.uniform(0.0, 1.0))
                    seconds = await stop(network)
                    await asyncio.gather(*asked.tasks)
            network.kill(NODE)
            network.restart(NODE)
            async with AsyncExitStack() as stack:
                clients = Clients(network, stack)
                await clients.open()
                found = await clients.find()
            kept = {one for one in asked.confirmed if one.split()[0] in KEPT}
            assert kept <= found, "what was confirmed is lost"
            return seconds

        seconds = network.run(application())
        assert len(asked.outcomes) == len(asked.tasks)
        return asked, seconds, network.trace_hash


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_asked_before_a_stop_is_answered(seed: int) -> None:
    asked, seconds, trace = stopped(seed, read_seconds=READ_SECONDS, inside_seconds=1.0)
    failed = {name for name, code in asked.outcomes.items() if code is not None}
    # Of these a client sends one after the other.
    assert {name for name in failed if name.split()[0] not in {"text", "commit", "sync"}} == set()
    assert "commit 0" in asked.confirmed
    assert seconds < DRAIN_SECONDS
    assert stopped(seed, read_seconds=READ_SECONDS, inside_seconds=1.0)[2] == trace


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_does_not_wait_for_ever(seed: int) -> None:
    asked, seconds, _ = stopped(seed, read_seconds=NEVER, inside_seconds=NEVER)
    assert {asked.outcomes[f"inside {number}"] for number in range(3)} == {"actor.stopped"}
    assert asked.outcomes["pull 0"] is not None
    assert DRAIN_SECONDS <= seconds < DRAIN_SECONDS + ENDING_SECONDS


def test_a_stop_does_not_wait_for_who_may_wait_for_minutes() -> None:
    asked = Asked()
    with Network() as network:
        network.add_node(NODE, config=STOPPING)

        async def application() -> float:
            async with AsyncExitStack() as stack:
                clients = Clients(network, stack)
                await clients.open()
                await clients.make()
                await stack.enter_async_context(clients.stream.batches(start="end"))
                broker = bytes.fromhex(network.running(NODE).facts["nextgraph_peer_id"])
                fetching = nextgraph.fetch_wallet(
                    broker_url(NODE), broker=broker, rendezvous=bytes(32)
                )
                asked.ask("wallet", fetching)
                await asyncio.sleep(1.0)
                seconds = await stop(network)
                await asyncio.gather(*asked.tasks)
                return seconds

        assert network.run(application()) < 1.0
        assert asked.outcomes["wallet"] is not None
