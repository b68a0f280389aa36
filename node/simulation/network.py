"""The simulated network: hosts, what is between them, and what goes wrong there.

Hosts are found by name, as `n0`. Each pipe of each connection draws its delays from a source of
its own, so that what happens on one says nothing about another.
"""

import asyncio
import math
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import shake_256
from random import Random
from typing import Any, Final, Protocol

from rillnode.node.simulated.world import Pipe as Way, Watch
from rillnode.node.simulation.loop import Life, ProcessLoop, Scheduler
from rillnode.node.simulation.pipes import Pipe, Sign, StreamTransport
from rillnode.node.simulation.scenario import NetworkTable
from rillnode.node.simulation.sockets import FREE_PORT_MIN, Arrival, Factory, HostLoop

RESEND_SECONDS: Final = 0.2
"""After which TCP sends a lost segment again at first; doubled each time."""
RESEND_SECONDS_MAX: Final = 10.0
RESENDS_MAX: Final = 16
SYN_SECONDS: Final = 1.0
"""After which TCP asks again for a connection at first; doubled each time."""


class Latency(Protocol):
    """The distances of hosts from each other."""

    def seconds(self, source: int, target: int, /) -> float:
        """The delay of a message, one way."""
        ...


class Host:
    """A machine: its process comes and goes, its name stays.

    Attributes:
        peername: what those that it connects to see of it.
        number: place in the latency model.
        loop: the process's event loop; that of the last one, where none runs.
        up: whether the machine has power.
        listeners: what accepts connections, by port.
        free_at: when what it has sent is on the wire, for the bandwidth.
    """

    def __init__(self, network: "Network", name: str, number: int) -> None:
        self.name = name
        self.peername = (name, FREE_PORT_MIN)
        self.number = number
        self.up = True
        self.listeners: dict[int, Factory] = {}
        self.free_at = 0.0
        self.lives = 0
        self._network = network
        self.loop: HostLoop

    def boot(self) -> "HostLoop":
        """Begin a process."""
        self.lives += 1
        self.up = True
        self.loop = HostLoop(self._network, self)
        self._network.release(self.name)
        return self.loop

    def end(self, *, power: bool) -> None:
        """End the process: killed, or with the whole machine."""
        self.loop.kill()
        self.listeners.clear()
        for transport in tuple(self.loop.sockets):
            assert isinstance(transport, StreamTransport)
            transport.die(tell=not power)
        self.up = not power

    @property
    def runs(self) -> bool:
        """Whether a process runs, or is paused."""
        return self.up and self.loop.life is not Life.DEAD


class Network:
    """All hosts and the ways between them.

    Attributes:
        on_sent: who sees all that processes hand to the network.
        on_delivered: who sees all that comes out of it.
        on_harmed: who is told where `harm` has struck.
        harmed_at: when it has struck last.
        unproven_ports: listeners whose connections it spares, as nothing there tells harmed bytes.
        counts: segments, and what became of them.
        bytes_sent: by host.
        dials: connections that each host has asked for.
        unread_bytes_max: the most that one direction of a connection held, buffers included.
        harms: whether `harm` may be called: else nothing that was delivered is kept for it.
    """

    def __init__(
        self, scheduler: Scheduler, seed: object, latency: Latency, table: NetworkTable
    ) -> None:
        self.scheduler = scheduler
        self.hosts: dict[str, Host] = {}
        self.on_sent: list[Watch] = []
        self.on_delivered: list[Watch] = []
        self.on_harmed: list[Callable[[Way], object]] = []
        self.counts: Counter[str] = Counter()
        self.bytes_sent: Counter[str] = Counter()
        self.dials: Counter[str] = Counter()
        self.unread_bytes_max = 0
        self.processing_seconds = 0.0
        self.harms = True
        self.harmed_at = -math.inf
        self.unproven_ports: set[int] = set()
        self._seed = seed
        self._latency = latency
        self._table = table
        self._jitter_seconds = table.jitter_ms / 1_000
        self._byte_seconds = 8e-6 / table.bandwidth_mbit if table.bandwidth_mbit else 0.0
        self._even = table == NetworkTable()
        self._loop = ProcessLoop(scheduler, "network")
        self._connections: Counter[tuple[str, str]] = Counter()
        self._blocks: Counter[tuple[str, str]] = Counter()
        self._stalled: dict[Pipe, None] = {}
        self._harm: dict[tuple[str, str], list[str]] = {}

    def add_host(self, name: str, number: int) -> Host:
        """Add a machine, without a process."""
        host = self.hosts[name] = Host(self, name, number)
        return host

    def random(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose."""
        return Random(f"{self._seed} {purpose}")

    def secret(self, purpose: str, count: int) -> bytes:
        """Bytes that are chance, the same for the same purpose.

        For who needs few, but as long as the run: a Random's state takes 2.5 kB.
        """
        return shake_256(f"{self._seed} {purpose}".encode()).digest(count)

    def close(self) -> None:
        """Carry nothing more."""
        self._loop.close()

    # What there is to see --------------------------------------------------------------------

    def connections(self) -> Counter[tuple[str, str]]:
        """Connections that are there now, by who has dialled whom."""
        found = Counter[tuple[str, str]]()
        for host in self.hosts.values():
            for transport in host.loop.sockets:
                assert isinstance(transport, StreamTransport)
                way = transport.way
                if way.dialling:
                    found[way.source, way.target] += 1
        return found

    def cut(self) -> list[tuple[str, str]]:
        """Ways on which nothing gets through, though both ends are up."""
        return list(self._blocks)

    @property
    def harmed(self) -> int:
        """How often `harm` has struck."""
        return self.counts["corrupted"] + self.counts["replayed"]

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call something of an operating system's, whether its processes run or not."""
        self._loop.call_later(seconds, callback)

    # Faults ----------------------------------------------------------------------------------

    def block(self, ways: Iterable[tuple[str, str]]) -> None:
        """Let nothing through from the first to the second of each pair, until `unblock`."""
        self._blocks.update(ways)

    def unblock(self, ways: Iterable[tuple[str, str]]) -> None:
        """Undo one `block`; what was stopped is sent again soon."""
        self._blocks.subtract(ways)
        self._blocks += Counter[tuple[str, str]]()
        self._release(lambda pipe: not self.blocked_way(pipe.source, pipe.target))

    def release(self, name: str) -> None:
        """A host is up: what was sent to it arrives after all, or is refused."""
        self._release(lambda pipe: pipe.target == name)

    def harm(self, source: str, target: str, how: str) -> None:
        """Have the next segment of an open connection `corrupted` or `replayed`.

        Not of one to `unproven_ports`: the next of another one.
        """
        self._harm.setdefault((source, target), []).append(how)

    def spare(self) -> None:
        """Harm nothing of what nothing has come of yet."""
        self._harm.clear()

    def blocked_way(self, source: str, target: str) -> bool:
        """Whether nothing gets through."""
        return (source, target) in self._blocks or not self.hosts[target].up

    def _release(self, which: Callable[[Pipe], bool]) -> None:
        for pipe in [one for one in self._stalled if which(one)]:
            del self._stalled[pipe]
            late = pipe.way_seconds + pipe.random.random() * RESEND_SECONDS
            self._loop.call_later(late, pipe.unblocked)

    # What pipes ask --------------------------------------------------------------------------

    def arrival(self, pipe: Pipe, size: int) -> float:
        """When a segment that is sent now arrives."""
        self.counts["segments"] += 1
        now = self.scheduler.now
        return now + (pipe.way_seconds if self._even else self._delay(pipe, size, now))

    def _delay(self, pipe: Pipe, size: int, now: float) -> float:
        """What a segment needs on a network that is slow or bad."""
        table, random, delay = self._table, pipe.random, pipe.way_seconds
        if self._jitter_seconds:
            delay += random.expovariate(1.0 / self._jitter_seconds)
        if table.loss:
            resend = max(RESEND_SECONDS, 2 * delay)
            for _ in range(RESENDS_MAX):
                if random.random() >= table.loss:
                    break
                self.counts["lost"] += 1
                delay += resend
                resend = min(2 * resend, RESEND_SECONDS_MAX)
        if table.reorder and random.random() < table.reorder:
            self.counts["overtaken"] += 1
            delay *= 1 + random.random()
        if table.duplicate and random.random() < table.duplicate:
            self.counts["doubled"] += 1
        if self._byte_seconds:
            host = self.hosts[pipe.source]
            host.free_at = max(host.free_at, now) + size * self._byte_seconds
            delay += host.free_at - now
        return delay

    def carry(self, pipe: Pipe, when: float, arrive: Callable[[], object]) -> None:
        """Call `arrive` then, in the receiver's process where it runs, or without."""
        loop = pipe.receiver.loop
        # What arrives is nothing that the sender's context is for.
        self.scheduler.at(Arrival(loop, arrive, (), loop.context, when))

    def take(self, call: Arrival) -> None:
        """Let arrive what a process has no part in now."""
        call.loop = self._loop
        self.scheduler.ready(call)

    def blocked(self, pipe: Pipe) -> bool:
        """Whether nothing gets through now; the pipe goes on when that is over."""
        target = pipe.target
        if self.hosts[target].up and not (self._blocks and (pipe.source, target) in self._blocks):
            return False
        self.counts["stopped"] += 1
        self._stalled[pipe] = None
        return True

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """A process has handed over bytes."""
        self.bytes_sent[pipe.source] += len(data)
        held = pipe.unread_bytes + pipe.sender.get_write_buffer_size()
        if held > self.unread_bytes_max:
            self.unread_bytes_max = held
        for watch in self.on_sent:
            watch(pipe, data)

    def delivered(self, pipe: Pipe, data: bytes) -> bytes:
        """Bytes arrive, as they are or harmed."""
        for watch in self.on_delivered:
            watch(pipe, data)
        seen = self._harmed(pipe, data) if self._harm else data
        if self.harms:
            pipe.last = data
        return seen

    def _harmed(self, pipe: Pipe, data: bytes) -> bytes:
        way = (pipe.source, pipe.target)
        if way not in self._harm or not pipe.last or pipe.port in self.unproven_ports:
            return data
        how = self._harm[way].pop(0)
        if not self._harm[way]:
            del self._harm[way]
        self.counts[how] += 1
        self.harmed_at = self.scheduler.now
        for watch in self.on_harmed:
            watch(pipe)
        if how == "replayed":
            return data + pipe.last
        place = pipe.random.randrange(len(data))
        flipped = data[place] ^ 1 << pipe.random.randrange(8)
        return data[:place] + bytes((flipped,)) + data[place + 1 :]

    # Connecting ------------------------------------------------------------------------------

    async def connect(
        self, source: Host, factory: Factory, name: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        """Open a connection; asks again for as long as the caller waits.

        Raises:
            OSError: there is no such host, or nothing listens.
        """
        target = self.hosts.get(name)
        if target is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.dials[source.name] += 1
        out = self._pipe(source, target, port, dialling=True)
        near = StreamTransport(source.loop, out, (name, port))
        out.sender = near
        opened = near.open_when_answered(factory)
        self._knock(near, out, SYN_SECONDS)
        await opened
        return near, near.get_protocol()

    def _pipe(self, source: Host, target: Host, port: int, *, dialling: bool) -> Pipe:
        way = (source.name, target.name)
        self._connections[way] += 1
        seconds = self._latency.seconds(source.number, target.number) + self.processing_seconds
        number = self._connections[way]
        return Pipe(self, *way, port, number, dialling=dialling, way_seconds=seconds)

    def _knock(self, near: StreamTransport, out: Pipe, again: float) -> None:
        """Ask for a connection, again after `again` seconds where the way is blocked."""
        self._loop.call_at(self.arrival(out, 0), self._knocked, near, out, again)

    def _knocked(self, near: StreamTransport, out: Pipe, again: float) -> None:
        if not near.opening:
            return
        if self.blocked_way(out.source, out.target):
            self._loop.call_later(again, self._knock, near, out, 2 * again)
            return
        source, target = self.hosts[out.source], self.hosts[out.target]
        factory = target.listeners.get(out.port)
        if factory is None:
            self._loop.call_later(out.way_seconds, near.sign_arrived, Sign.RESET)
            return
        back = self._pipe(target, source, out.port, dialling=False)
        far = StreamTransport(target.loop, back, source.peername)
        back.sender, back.receiver = far, near
        out.receiver = far
        near.peer, far.peer = far, near
        back.send(Sign.OPEN)
        target.loop.call_soon(far.open, factory)
