"""Measures how messages spread through an overlay of real nodes, beside model mode.

Nodes form their overlay; then messages are pushed at some that are drawn at random.
A message sets out when it is durable where it was pushed, and has reached a node when that hands it
to its log. What follows from the graph alone, as the hops of first copies, is worked out on the
overlay that was formed.
"""

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from random import Random
from typing import Final

from rillnode.actors.log import Append, WriteOperation
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import SHARED_STREAM, node_config
from rillnode.node.simulation.casting import parts_of, shared_nodes_of
from rillnode.node.simulation.latency import make_latency
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.node.simulation.model import SLICE_MS_MIN, SLICES_PER_LINK, Propagation, flood
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.world import NodeMachine, World

FORM_SECONDS: Final = 600.0
"""Virtual seconds within which the overlay must have formed."""

SETTLE_SECONDS: Final = 90.0
"""After that, before anything is pushed: what new links bring up to date is over by then."""

LATE_SECONDS: Final = 1.0
"""How much longer than links take, for a network that is slow or bad."""

PAGE_ENTRIES: Final = 10_000


class Spreading:
    """One run of a scenario whose nodes share a stream; `run` may be called once.

    Args:
        scenario: what is simulated.
        seed: decides everything that the scenario leaves open.
        burst: messages that a node pushes at once.

    Attributes:
        problems: what is missing, doubled or broken; nothing, where all is well.
        cpu_seconds: processor time of `start`, `form` and `spread`.
    """

    def __init__(self, scenario: Scenario, seed: int, *, burst: int = 1) -> None:
        self.scenario = scenario
        self.seed = seed
        self.problems: list[str] = []
        self.cpu_seconds: dict[str, float] = {}
        self._burst = burst
        hosts = scenario.nodes + len(scenario.more_nodes)
        self._latency = make_latency(scenario.latency, hosts, Random(f"{seed} places"))
        self._world = World(seed, self._latency, network=scenario.network, disk=scenario.disk)
        self._world.network.processing_seconds = scenario.processing_ms / 1_000
        self._world.network.harms = False
        self._history = History(lambda: self._world.now)
        self._world.network.on_delivered.append(self._history.delivered)
        self._nodes: list[NodeMachine] = []
        shared = shared_nodes_of(parts_of(scenario, self._world, self._history))
        assert shared is not None, "the part of `sharing` is one"
        self._shared = shared
        self._appended: list[array[float]] = []
        self._set_out: dict[int, float] = {}
        self._received: list[dict[bytes, float]] = []
        self._copies = 0
        self._wall_seconds = 0.0

    def run(self) -> Propagation:
        """Run it; what went wrong is in `problems`."""
        started = time.perf_counter()
        sources = Random(f"{self.seed} sources")
        pushed_at: list[int] = []
        while len(pushed_at) < self.scenario.messages:
            pushed_at += [sources.randrange(self.scenario.nodes)] * self._burst
        del pushed_at[self.scenario.messages :]
        self._add_nodes()
        try:
            self._world.run(self._direct(pushed_at))
        except SimulationStuck as error:
            self.problems.append(str(error))
        self.problems += self._world.errors()
        self._world.close()
        found = self._account(pushed_at)
        found.trace_hash = self._history.trace_hash
        found.wall_seconds = self._wall_seconds or time.perf_counter() - started
        return found

    def _add_nodes(self) -> None:
        self._shared.add_nodes(node_config)
        for number in range(self.scenario.nodes):
            machine = self._world.nodes[f"n{number}"]
            self._nodes.append(machine)
            appended = array("d")
            self._appended.append(appended)
            machine.disk.on_submit = partial(self._submitted, appended)

    def _submitted(self, appended: "array[float]", operation: WriteOperation) -> None:
        """Note when entries are handed to a node's log; each gets the next index."""
        if isinstance(operation, Append):
            appended.extend([1_000 * self._world.now] * operation.count)

    # What happens ----------------------------------------------------------------------------

    async def _direct(self, pushed_at: list[int]) -> None:
        world, scenario = self._world, self.scenario
        with self._timed("start"):
            for machine in world.nodes.values():
                await world.watched(machine.start())
        with self._timed("form"):
            await self._form()
        await asyncio.sleep(SETTLE_SECONDS)
        before, started = self._shared.copies(), time.perf_counter()
        with self._timed("spread"):
            pause = self._burst * scenario.seconds / scenario.messages
            pushes: list[asyncio.Task[None]] = []
            for first in range(0, scenario.messages, self._burst):
                numbers = range(first, min(first + self._burst, scenario.messages))
                pushes.append(asyncio.ensure_future(self._push(pushed_at[first], numbers)))
                await asyncio.sleep(pause)
            await asyncio.gather(*pushes)
            await self._reached()
            await self._all_copies_came()
        self._wall_seconds = time.perf_counter() - started
        self._copies = self._shared.copies() - before
        for machine, appended in zip(self._nodes, self._appended, strict=True):
            self._received.append(await world.on(machine, _read(machine, appended)))

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        started = time.process_time()
        yield
        self.cpu_seconds[phase] = time.process_time() - started

    async def _form(self) -> None:
        """Wait until every node has the neighbours that it should have."""
        world, scenario = self._world, self.scenario
        wanted = min(scenario.degree, scenario.nodes - 1)
        began = world.now
        lacking = self._nodes
        while world.now < began + FORM_SECONDS:
            # Who had all may have lost some again, but asking everybody each time takes long.
            for asked in (lacking, self._nodes):
                degrees = {machine: self._degree(machine) for machine in asked}
                lacking = [machine for machine in asked if degrees[machine] < wanted]
                # With an odd sum one slot stays open.
                if sum(wanted - degrees[machine] for machine in lacking) > scenario.degree % 2:
                    break
            else:
                return
            await asyncio.sleep(1.0)
        self.problems.append("the overlay has not formed")

    def _degree(self, machine: NodeMachine) -> int:
        return len(self._shared.neighbours(machine, 0))

    async def _push(self, source: int, numbers: Iterable[int]) -> None:
        machine = self._nodes[source]

        async def push() -> None:
            stream = await machine.node.stream(SHARED_STREAM)
            await stream.push_many([b"%d" % number for number in numbers])

        await self._world.on(machine, push())
        self._set_out.update(dict.fromkeys(numbers, 1_000 * self._world.now))

    async def _reached(self) -> None:
        """Wait until every node has kept as much as it must."""
        world, messages = self._world, self.scenario.messages
        deadline = world.now + self.scenario.heal_seconds
        left = list(self._nodes)
        while left and world.now < deadline:
            machine = left[-1]
            described = await world.on(machine, machine.node.client.describe(SHARED_STREAM))
            if described.partitions[0].next_index >= messages:
                left.pop()
            else:
                await asyncio.sleep(0.25)
        if left:
            self.problems.append(f"{left[-1].name} has not got every message")

    async def _all_copies_came(self) -> None:
        """Wait until what is under way still, to nodes that have it already, has come too."""
        world, pairs = self._world, enumerate(self._neighbours())
        longest = max(
            (self._latency.seconds(node, other) for node, row in pairs for other in row),
            default=0.0,
        )
        deadline = world.now + self.scenario.heal_seconds
        copies = -1
        while copies != self._shared.copies() and world.now < deadline:
            copies = self._shared.copies()
            await asyncio.sleep(2 * longest + self.scenario.processing_ms / 1_000 + LATE_SECONDS)

    # The account -----------------------------------------------------------------------------

    def _neighbours(self) -> list[list[int]]:
        numbers = {machine.name: nth for nth, machine in enumerate(self._nodes)}
        return [
            [numbers[name] for name in self._shared.neighbours(machine, 0)]
            for machine in self._nodes
        ]

    def _account(self, pushed_at: list[int]) -> Propagation:
        neighbours = self._neighbours()
        places = self._latency.places[: self.scenario.nodes]
        found = Propagation(self.scenario, self.seed, places, neighbours, copies=self._copies)
        delay = self.scenario.processing_ms
        links = [
            [(other, 1_000 * self._latency.seconds(node, other) + delay) for other in row]
            for node, row in enumerate(neighbours)
        ]
        ends = max(1, sum(map(len, links)))
        mean_ms = sum(one for row in links for _, one in row) / ends
        for number, source in enumerate(pushed_at):
            data = b"%d" % number
            begun = self._set_out.get(number)
            if begun is None:
                continue
            others = chain(self._received[:source], self._received[source + 1 :])
            arrivals = [received[data] - begun for received in others if data in received]
            found.arrivals_ms.extend(arrivals)
            found.last_ms.append(max(arrivals, default=0.0))
            fastest, hops = flood(links, source, max(mean_ms / SLICES_PER_LINK, SLICE_MS_MIN))
            del fastest[source]
            found.fastest_ms.extend(fastest)
            found.hops.update(hops[:source] + hops[source + 1 :])
        found.bytes_sent = dict(self._world.network.bytes_sent)
        for machine, received in zip(self._nodes, self._received, strict=False):
            if len(received) != self.scenario.messages:
                self.problems.append(f"{machine.name} has {len(received)} messages")
        return found


async def _read(machine: NodeMachine, appended: Sequence[float]) -> dict[bytes, float]:
    """When each message came to a node; one that came twice is told of by the count."""
    stream = await machine.node.stream(SHARED_STREAM)
    found: dict[bytes, float] = {}
    doubled = Counter[bytes]()
    index = 0
    while entries := await stream.pull(index, PAGE_ENTRIES):
        index += len(entries)
        for entry in entries:
            data = bytes(entry.data)
            doubled[data] += data in found
            found[data] = appended[entry.index]
    for data, count in doubled.items():
        if count:
            found[data + b" again"] = 0.0
    return found
