"""Simulated connections: TCP as processes see it, and what is done to it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import ProcessLoop, Scheduler
from rillnode.node.simulation.network import Network
from rillnode.node.simulation.pipes import WINDOW_BYTES
from rillnode.node.simulation.scenario import NetworkTable

T = TypeVar("T")

DELAY = 0.01


class Peer(asyncio.Protocol):
    """Notes what happens to it."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.data = b""
        self.times: list[float] = []
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.times.append(asyncio.get_running_loop().time())

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)


class Net:
    """Two hosts, `a` that dials and `b` that listens on port 1."""

    def __init__(self, **table: float) -> None:
        self.scheduler = Scheduler()
        latency = ConstantLatency(DELAY * 1_000)
        self.network = Network(self.scheduler, 1, latency, NetworkTable(**table))
        self.a, self.b = self.network.add_host("a", 0), self.network.add_host("b", 1)
        self.a.boot()
        self.b.boot()
        self.director = ProcessLoop(self.scheduler, "director")
        self.near, self.far = Peer(), Peer()

    def run(self, coroutine: Coroutine[Any, Any, T], loop: ProcessLoop | None = None) -> T:
        task = (loop or self.director).create_task(coroutine)
        self.scheduler.run_until(task)
        return task.result()

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def listen(self) -> asyncio.AbstractServer:
        return self.run(self.b.loop.create_server(lambda: self.far, "b", 1), self.b.loop)

    def dial(self, host: str = "b", port: int = 1) -> None:
        self.run(self.a.loop.create_connection(lambda: self.near, host, port), self.a.loop)

    def connect(self) -> None:
        self.listen()
        self.dial()
        self.wait(DELAY)


@pytest.fixture
def net() -> Net:
    found = Net()
    found.connect()
    return found


def test_a_connection_takes_a_round_trip(net: Net) -> None:
    assert net.near.events == net.far.events == ["made"]
    assert net.scheduler.now == pytest.approx(3 * DELAY)
    assert net.near.transport.get_extra_info("peername") == ("b", 1)


def test_the_streams_of_asyncio_work_on_it() -> None:
    net = Net()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(answer, "b", 1)

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("b", 1)
        writer.write(b"news\n")
        await writer.drain()
        found = await reader.read()
        writer.close()
        return found

    net.run(serve(), net.b.loop)
    assert net.run(ask(), net.a.loop) == b"NEWS\n"


def test_bytes_arrive_late_and_in_order(net: Net) -> None:
    before = net.scheduler.now
    for number in range(50):
        net.near.transport.write(b"%d," % number)
    net.wait(1.0)
    assert net.far.data == b"".join(b"%d," % number for number in range(50))
    assert set(net.far.times) == {before + DELAY}


@pytest.mark.parametrize("trouble", [{"loss": 0.3}, {"reorder": 0.5}, {"duplicate": 0.5}])
def test_trouble_on_the_way_is_delay_only(trouble: dict[str, float]) -> None:
    net = Net(jitter_ms=20.0, **trouble)
    net.connect()
    for number in range(100):
        net.near.transport.write(b"%d," % number)
    net.wait(600.0)
    assert net.far.data == b"".join(b"%d," % number for number in range(100))
    assert net.network.counts.total() > net.network.counts["segments"]


def test_bandwidth_bounds_what_a_host_sends() -> None:
    net = Net(bandwidth_mbit=8.0)  # a megabyte in a second
    net.connect()
    before = net.scheduler.now
    net.near.transport.write(bytes(200_000))
    net.wait(5.0)
    assert net.far.times[-1] - before == pytest.approx(0.2 + DELAY, rel=0.01)


def test_a_reader_that_pauses_stops_the_writer_at_the_window(net: Net) -> None:
    net.far.transport.pause_reading()
    net.near.transport.write(bytes(WINDOW_BYTES + 100_000))
    net.wait(1.0)
    assert net.far.data == b""
    assert net.near.transport.get_write_buffer_size() == 100_000
    assert net.near.events == ["made", "pause"]
    net.far.transport.resume_reading()
    net.wait(1.0)
    assert len(net.far.data) == WINDOW_BYTES + 100_000
    assert net.near.events == ["made", "pause", "resume"]


def test_closing_sends_what_is_buffered_and_then_the_end(net: Net) -> None:
    net.near.transport.write(b"last words")
    net.near.transport.close()
    net.near.transport.write(b"too late")
    net.wait(1.0)
    assert net.far.data == b"last words"
    assert net.near.events == ["made", "lost"]
    assert net.far.events == ["made", "eof", "lost"]


def test_aborting_resets_the_other_side(net: Net) -> None:
    net.near.transport.abort()
    net.wait(1.0)
    assert net.far.events == ["made", "ConnectionResetError"]


def test_writing_to_who_has_closed_resets(net: Net) -> None:
    net.far.transport.abort()
    net.near.transport.write(b"nobody reads this")
    net.wait(1.0)
    assert net.near.events == ["made", "ConnectionResetError"]


def test_a_killed_process_resets_its_connections_and_frees_its_port(net: Net) -> None:
    net.b.end(power=False)
    net.wait(1.0)
    assert net.near.events == ["made", "ConnectionResetError"]
    assert net.far.events == ["made"]
    with pytest.raises(ConnectionRefusedError):
        net.dial()


def test_a_power_cut_is_noticed_when_the_machine_is_back(net: Net) -> None:
    net.b.end(power=True)
    net.near.transport.write(b"is anybody there")
    net.wait(100.0)
    assert net.near.events == ["made"]
    net.b.boot()
    net.wait(5.0)
    assert net.near.events == ["made", "ConnectionResetError"]


def test_a_partition_holds_bytes_until_it_is_over(net: Net) -> None:
    net.network.block([("a", "b")])
    net.near.transport.write(b"there")
    net.far.transport.write(b"back")
    net.wait(10.0)
    assert (net.far.data, net.near.data) == (b"", b"back")
    net.network.unblock([("a", "b")])
    net.wait(1.0)
    assert net.far.data == b"there"


def test_two_blocks_of_one_way_must_both_end(net: Net) -> None:
    net.network.block([("a", "b")])
    net.network.block([("a", "b")])
    net.near.transport.write(b"there")
    net.network.unblock([("a", "b")])
    net.wait(10.0)
    assert net.far.data == b""
    net.network.unblock([("a", "b")])
    net.wait(10.0)
    assert net.far.data == b"there"


def test_a_dial_into_a_partition_waits_and_succeeds_after_it() -> None:
    net = Net()
    net.listen()
    net.network.block([("a", "b")])
    net.director.call_later(5.0, net.network.unblock, [("a", "b")])
    net.dial()
    assert 5.0 < net.scheduler.now < 10.0


def test_nothing_listens() -> None:
    net = Net()
    with pytest.raises(ConnectionRefusedError):
        net.dial()
    with pytest.raises(OSError, match="not known"):
        net.dial("nowhere")


def test_a_dial_that_was_given_up_leaves_nothing_open() -> None:
    net = Net()
    net.listen()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DELAY * 1.5):
                await net.a.loop.create_connection(lambda: net.near, "b", 1)

    net.run(give_up(), net.a.loop)
    net.wait(1.0)
    assert net.near.events == []
    assert net.far.events == ["made", "ConnectionResetError"]
    assert not net.a.loop.sockets
    assert not net.b.loop.sockets


def test_a_port_is_bound_once_and_port_0_is_any() -> None:
    net = Net()
    server = net.listen()
    with pytest.raises(OSError, match="in use"):
        net.listen()
    server.close()
    net.listen()
    free = net.run(net.b.loop.create_server(Peer, "b", 0), net.b.loop)
    assert free.sockets[0].getsockname()[1] > 1


@pytest.mark.parametrize("how", ["replayed", "corrupted"])
def test_segments_are_harmed_as_told(net: Net, how: str) -> None:
    net.near.transport.write(b"one")
    net.wait(1.0)
    net.network.harm("a", "b", how)
    net.near.transport.write(b"two")
    net.wait(1.0)
    net.near.transport.write(b"three")
    net.wait(1.0)
    assert net.network.counts[how] == 1
    if how == "replayed":
        assert net.far.data == b"onetwoonethree"
        return
    assert len(net.far.data) == 11
    flipped = [a ^ b for a, b in zip(net.far.data, b"onetwothree", strict=True)]
    assert sum(bits.bit_count() for bits in flipped[3:6]) == 1
    assert not any(flipped[:3] + flipped[6:])
