"""The simulated network: hosts, what is between them, and what goes wrong there.

Hosts are found by name, as `n0`. Each pipe of each connection draws its delays from a source of
its own, so that what happens on one says nothing about another.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import shake_256
from random import Random
from typing import Any, Final, Protocol

from rillnode.node.simulation.carrier import Sign
from rillnode.node.simulation.loop import Call, Life, ProcessLoop, Scheduler
from rillnode.node.simulation.pipes import Pipe, StreamTransport
from rillnode.node.simulation.scenario import NetworkTable

FREE_PORT_MIN: Final = 49_152
RESEND_SECONDS: Final = 0.2
"""After which TCP sends a lost segment again at first; doubled each time."""
RESEND_SECONDS_MAX: Final = 10.0
RESENDS_MAX: Final = 16
SYN_SECONDS: Final = 1.0
"""After which TCP asks again for a connection at first; doubled each time."""

Factory = Callable[[], asyncio.BaseProtocol]

Watch = Callable[[Pipe, bytes], object]
"""Sees bytes on their way."""


class Latency(Protocol):
    """How far hosts are from each other."""

    def seconds(self, source: int, target: int, /) -> float:
        """The delay of a message, one way."""
        ...


class Arrival(Call):
    """What the network brings: it comes whether the process runs or not."""

    __slots__ = ()


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


class HostLoop(ProcessLoop):
    """A process's event loop, with the network that its host is in."""

    def __init__(self, network: "Network", host: Host) -> None:
        super().__init__(network.scheduler, host.name)
        self._network = network
        self._host = host

    def keep(self, call: Call) -> None:
        """Take a call that cannot run now; of what arrives its operating system takes care."""
        if isinstance(call, Arrival):
            self._network.take(call)
        else:
            super().keep(call)

    async def create_connection(self, *args: Any, **_: Any) -> tuple[asyncio.Transport, Any]:
        """Connect to another host: protocol factory, name, port.

        Raises:
            OSError: there is no such host, or nothing listens.
        """
        protocol_factory, host, port = args
        return await self._network.connect(self._host, protocol_factory, host, port)

    async def create_server(self, *args: Any, **_: Any) -> asyncio.Server:
        """Accept connections to a port of this host: protocol factory, any name, port.

        Raises:
            OSError: the port is in use.
        """
        protocol_factory, host, port = args
        listeners = self._host.listeners
        if port in listeners:
            raise OSError(98, "Address already in use")
        while not port or port in listeners:
            port = max(FREE_PORT_MIN, *listeners, 0) + 1
        listeners[port] = protocol_factory
        return _Server(listeners, host, port)


class _Name:
    """What a listener asks of a bound socket."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class _Server(asyncio.Server):
    """A bound port."""

    def __init__(self, listeners: dict[int, Factory], host: str, port: int) -> None:
        self._listeners = listeners
        self._port = port
        self._name = _Name(host, port)

    @property
    def sockets(self) -> Any:
        return (self._name,)

    def close(self) -> None:
        self._listeners.pop(self._port, None)


class Network:
    """All hosts and the ways between them.

    Attributes:
        on_sent: who sees all that processes hand to the network.
        on_delivered: who sees all that comes out of it.
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
        self.counts: Counter[str] = Counter()
        self.bytes_sent: Counter[str] = Counter()
        self.dials: Counter[str] = Counter()
        self.unread_bytes_max = 0
        self.processing_seconds = 0.0
        self.harms = True
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
        """Have the next segment of an open connection `corrupted` or `replayed`."""
        self._harm.setdefault((source, target), []).append(how)

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
        if way not in self._harm or not pipe.last:
            return data
        how = self._harm[way].pop(0)
        if not self._harm[way]:
            del self._harm[way]
        self.counts[how] += 1
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
        out = self._pipe(source, target, dialling=True)
        near = StreamTransport(source.loop, out, (name, port))
        out.sender = near
        opened = near.open_when_answered(factory)
        self._knock(near, out, port, SYN_SECONDS)
        await opened
        return near, near.get_protocol()

    def _pipe(self, source: Host, target: Host, *, dialling: bool) -> Pipe:
        way = (source.name, target.name)
        self._connections[way] += 1
        seconds = self._latency.seconds(source.number, target.number) + self.processing_seconds
        number = self._connections[way]
        return Pipe(self, *way, number, dialling=dialling, way_seconds=seconds)

    def _knock(self, near: StreamTransport, out: Pipe, port: int, again: float) -> None:
        """Ask for a connection, again after `again` seconds where the way is blocked."""
        self._loop.call_at(self.arrival(out, 0), self._knocked, near, out, port, again)

    def _knocked(self, near: StreamTransport, out: Pipe, port: int, again: float) -> None:
        if not near.opening:
            return
        if self.blocked_way(out.source, out.target):
            self._loop.call_later(again, self._knock, near, out, port, 2 * again)
            return
        source, target = self.hosts[out.source], self.hosts[out.target]
        factory = target.listeners.get(port)
        if factory is None:
            self._loop.call_later(out.way_seconds, near.sign_arrived, Sign.RESET)
            return
        back = self._pipe(target, source, dialling=False)
        far = StreamTransport(target.loop, back, source.peername)
        back.sender, back.receiver = far, near
        out.receiver = far
        near.peer, far.peer = far, near
        back.send(Sign.OPEN)
        target.loop.call_soon(far.open, factory)
