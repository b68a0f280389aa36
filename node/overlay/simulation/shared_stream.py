"""A stream that all nodes of a run share over an overlay, and the rules that hold between nodes.

Each node's log is a log of its own in the history. What holds between logs is checked when all
faults are over: first that everything reaches everybody, then, in quiet, how one entry of each node
spreads, and at last that all logs hold the same entries, each once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from rillnode.actors.overlay.stream_keys import stream_key
from rillnode.node.config import Config, StreamTable
from rillnode.node.overlay.config import OverlayTable, TrackerTable
from rillnode.node.overlay.overlay import Overlay
from rillnode.node.overlay.simulation.table import TRACKER, SharedOverlay
from rillnode.node.simulated.history import History, Log, LogContents, Push, log_of
from rillnode.node.simulated.nodes import SHARED_STREAM
from rillnode.node.simulated.part import SimulatedPart
from rillnode.node.simulated.programs import payload_of
from rillnode.node.simulated.tables import Scenario
from rillnode.node.simulated.world import Machine, NodeMachine, World
from rillnode.node.streamr.simulation.messages import PUBLISHER

SPREAD_SECONDS: Final = 30.0
"""Within which an entry is everywhere, in quiet."""

CALM_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.25
PAGE_ENTRIES: Final = 10_000
PROBE: Final = "probe"
PROBE_BYTES: Final = 64


class SharedStream(SimulatedPart):
    """The nodes of an overlay and their one stream."""

    def __init__(
        self, table: SharedOverlay, scenario: Scenario, world: World, history: History
    ) -> None:
        self._table = table
        self._scenario = scenario
        self._world = world
        self._history = history
        self._nodes: list[NodeMachine] = []
        self._names: dict[str, str] = {}
        self._had: dict[Log, Counter[bytes]] = {}

    def add_nodes(self, configure: Callable[[str], Config]) -> None:
        """Add the nodes, and the tracker behind them."""
        scenario, world = self._scenario, self._world
        shared = StreamTable(name=SHARED_STREAM, partitions=scenario.partitions)
        for number in range(scenario.nodes):
            config, storage = configure(f"n{number}"), number < self._table.storage_nodes
            config = replace(config, streams=(*config.streams, shared)).having(
                OverlayTable(streams=(SHARED_STREAM,), trackers=(TRACKER,), storage=storage)
            )
            machine = world.add_node(f"n{number}", number, config)
            self._nodes.append(machine)
            self._names[machine.identity.public_hex] = machine.name
        table = TrackerTable(enabled=True, degree=self._table.degree)
        world.add_node(TRACKER, scenario.nodes, configure(TRACKER).having(table))
        for machine in self._nodes:
            machine.config = world.peer(machine.config, TRACKER)

    # Progress --------------------------------------------------------------------------------

    async def missing(self) -> list[str]:
        """What is not as it should be yet: entries that nodes lack, and neighbours."""
        found = [f"{one.name} has not started again" for one in self._nodes if not one.ready]
        if found:
            return found
        return await self._lacking() or self._graph_problems()

    async def _lacking(self) -> list[str]:
        """Nodes that lack entries which were confirmed elsewhere."""
        found: list[str] = []
        confirmed = [
            (payload, push.log[1])
            for payload, push in self._history.pushes.items()
            if push.index is not None and push.log[0] not in self._history.lost
        ]
        for machine in self._nodes:
            if log_of(machine.name) in self._history.lost:
                continue
            await self._world.on(machine, self._read_on(machine))
            lacking = [
                payload
                for payload, partition in confirmed
                if payload not in self._had[log_of(machine.name), partition]
            ]
            if lacking:
                text = f"{machine.name}: {len(lacking)} of {len(confirmed)} entries are not there"
                found.append(f"{text}, such as {_short(lacking[0])}")
        return found

    async def _read_on(self, machine: NodeMachine) -> None:
        """Take note of what a node's logs hold behind what was read before."""
        stream = await machine.node.stream(SHARED_STREAM)
        for partition in range(self._scenario.partitions):
            had = self._had.setdefault((log_of(machine.name), partition), Counter())
            while entries := await stream.pull(had.total(), PAGE_ENTRIES, partition=partition):
                had.update(bytes(entry.data) for entry in entries)

    async def repaired(self) -> list[str]:
        """What is not as it should be yet between the nodes that run: neighbours."""
        return self._graph_problems()

    def _graph_problems(self) -> list[str]:
        """Whether the overlays are as they should be: regular, mutual, and in one piece."""
        found: list[str] = []
        there = self._there
        wanted = min(self._table.degree, len(there) - 1)
        for partition in range(self._scenario.partitions):
            graph = self._graph(partition)
            where = f"in partition {partition}"
            missing = {name: wanted - len(linked) for name, linked in graph.items()}
            # With an odd sum one slot stays open; and two that are linked already cannot be again.
            open_slots = sum(number for number in missing.values() if number > 0)
            short = [name for name, number in missing.items() if number > 0]
            if open_slots > wanted * len(graph) % 2 and not _all_linked(short, graph):
                found.append(f"{short[0]} has {len(graph[short[0]])} neighbours {where}")
            found += [
                f"{name} has {len(linked)} neighbours {where}"
                for name, linked in graph.items()
                if len(linked) > self._table.degree
            ]
            found += [
                f"{one} is linked to {other} {where}, which is not to it"
                for one, linked in graph.items()
                for other in linked
                if one not in graph.get(other, ())
            ]
            if len(_piece(graph, there[0].name)) < len(graph):
                found.append(f"the overlay is in pieces {where}")
        return found

    def _graph(self, partition: int) -> dict[str, list[str]]:
        return {machine.name: self.neighbours(machine, partition) for machine in self._there}

    def neighbours(self, machine: NodeMachine, partition: int) -> list[str]:
        """The neighbours that a node has now in a partition of the stream, by their names."""
        found = _overlay(machine)["neighbours"].get(stream_key(SHARED_STREAM, partition), ())
        return [self._names[one] for one in found]

    @property
    def _there(self) -> list[NodeMachine]:
        return [machine for machine in self._nodes if machine.ready]

    def look_for_leftovers(self) -> None:
        """In quiet, no node keeps a link to who is no neighbour, or lets it in as one."""
        storage = [f"n{number}" for number in range(self._table.storage_nodes)]
        graphs = [self._graph(partition) for partition in range(self._scenario.partitions)]
        for machine in self._nodes:
            name, overlay = machine.name, machine.node.observed.plug_in(Overlay)
            links = _overlay(machine)["links"]
            near = {name, *storage, *(other for graph in graphs for other in graph[name])}
            for other in (one for one in self._nodes if one.name not in near):
                identity = other.identity.public_hex
                if identity in links:
                    self._history.broken("left-over", f"{name} keeps a link to {other.name}")
                if overlay is not None and overlay.admits(identity):
                    self._history.broken("left-over", f"{name} lets {other.name} in for ever")

    # How it spreads --------------------------------------------------------------------------

    async def probe(self) -> None:
        """When all is quiet, let one entry of each node spread, one after the other."""
        for number, machine in enumerate(self._nodes):
            partition = number % self._scenario.partitions
            copies_max = self._copies_max(partition)
            before = self.copies()
            payload = payload_of(PROBE, number, PROBE_BYTES)
            await self._world.on(machine, self._push(machine, payload, number, partition))
            lacking = await self._spread(payload, partition)
            if lacking:
                text = f"{PROBE} {number} of {machine.name} is not at {', '.join(lacking)}"
                self._history.broken("overlay-spread", f"{text} after {SPREAD_SECONDS:.0f} s")
            await asyncio.sleep(CALM_SECONDS)  # the slowest copies are on their way still
            copies = self.copies() - before
            if copies > copies_max:
                text = (
                    f"{copies} copies of {PROBE} {number} of {machine.name}: {copies_max} are due"
                )
                self._history.broken("overlay-copies", text)

    async def _push(self, machine: NodeMachine, payload: bytes, number: int, part: int) -> None:
        history = self._history
        push = Push(PROBE, number, (log_of(machine.name), part), history.now(), attempts=1)
        history.pushed({payload: push})
        stream = await machine.node.stream(SHARED_STREAM)
        history.confirmed([payload], [await stream.push(payload, partition=part)])

    async def push_aside(self, away: Machine) -> None:
        """Push an entry while a node is away."""
        number = len(self._nodes)
        machine = next(one for one in self._nodes if one is not away)
        payload = payload_of(PROBE, number, PROBE_BYTES)
        await self._world.on(machine, self._push(machine, payload, number, 0))

    async def _spread(self, payload: bytes, partition: int) -> list[str]:
        """Wait until an entry is everywhere; the nodes that it does not reach."""
        deadline = self._world.now + SPREAD_SECONDS
        left = list(self._nodes)
        while left and self._world.now < deadline:
            machine = left[-1]
            await self._world.on(machine, self._read_on(machine))
            if payload in self._had[log_of(machine.name), partition]:
                left.pop()
            else:
                await asyncio.sleep(LOOK_SECONDS)
        return [machine.name for machine in reversed(left)]

    def copies(self) -> int:
        """How many entries nodes have handed on so far."""
        return sum(_overlay(machine)["counters"].get("copies", 0) for machine in self._nodes)

    def _copies_max(self, partition: int) -> int:
        """Each node sends to all neighbours but the one that the entry came from."""
        return sum(map(len, self._graph(partition).values())) - len(self._nodes) + 1

    # The end ---------------------------------------------------------------------------------

    def check(self, logs: LogContents) -> None:
        """Compare the nodes' logs with each other: the entries of each node, in their order."""
        for partition in range(self._scenario.partitions):
            for machine in self._nodes:
                log = log_of(machine.name), partition
                if log[0] in self._history.lost:
                    continue
                here = self._of(logs, log, log)
                for other in self._nodes:
                    at = log_of(other.name), partition
                    if at != log and at[0] not in self._history.lost:
                        self._compare(log, here, at, self._of(logs, at, log))

    def _of(self, logs: LogContents, log: Log, origin: Log) -> list[bytes]:
        """What of a log was pushed at another node."""
        pushes = self._history.pushes
        return [
            payload
            for _, payload in logs.get(log, ())
            if (push := pushes.get(payload)) is not None and push.log == origin
        ]

    def _compare(self, log: Log, here: list[bytes], at: Log, there: list[bytes]) -> None:
        lost, doubled = Counter(here) - Counter(there), Counter(there) - Counter(here)
        where = f"{log[0]}/{log[1]} and {at[0]}/{at[1]}"
        for payload, count in lost.items():
            self._history.broken("overlay-lost", f"{where}: {count} of {_short(payload)}")
        for payload, count in doubled.items():
            self._history.broken("overlay-duplicate", f"{where}: {count} of {_short(payload)}")
        if lost or doubled:
            return
        # Streamr's publishers have chains of their own, whose order is another rule's matter.
        here, there = self._pushed(here), self._pushed(there)
        if here != there:
            one, other = next(pair for pair in zip(here, there, strict=True) if pair[0] != pair[1])
            text = f"{where}: {_short(one)} in the first, {_short(other)} in the other"
            self._history.broken("overlay-order", text)

    def _pushed(self, payloads: list[bytes]) -> list[bytes]:
        """Those of native clients, which are in the order in which their node has taken them."""
        pushes, begin = self._history.pushes, f"{PUBLISHER} "
        return [one for one in payloads if not pushes[one].producer.startswith(begin)]


def _all_linked(names: Sequence[str], graph: Mapping[str, Sequence[str]]) -> bool:
    """Whether each of some nodes is linked to all others of them."""
    return all(other == one or other in graph[one] for one in names for other in names)


def _piece(graph: Mapping[str, Sequence[str]], start: str) -> set[str]:
    found, queue = {start}, deque([start])
    while queue:
        for other in graph.get(queue.popleft(), ()):
            if other not in found:
                found.add(other)
                queue.append(other)
    return found


def _overlay(machine: NodeMachine) -> dict[str, Any]:
    # Of the whole status, which is asked of every node a few times, most would be for nothing.
    overlay = machine.node.observed.plug_in(Overlay)
    assert overlay is not None
    status: dict[str, Any] = overlay.status()["overlay"]
    return status


def _short(payload: bytes) -> str:
    return payload[:48].decode(errors="backslashreplace")
