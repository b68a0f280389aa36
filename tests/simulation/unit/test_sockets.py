"""Tests libraries that make their sockets themselves, on a simulated loop."""

import asyncio
import socket
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import Scheduler
from rillnode.node.simulation.network import Host, Network
from rillnode.node.simulation.scenario import NetworkTable


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Ear(asyncio.Protocol):
    """Hears one thing."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.heard.set_result(data)


class Two:
    """Two hosts, and a process on each."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, 1, ConstantLatency(1.0), NetworkTable())
        self.here, self.there = self.add("here", 0), self.add("there", 1)

    def add(self, name: str, number: int) -> Host:
        host = self.network.add_host(name, number)
        host.boot()
        return host

    def run(self, host: Host, coroutine: object) -> object:
        assert asyncio.iscoroutine(coroutine)
        task = host.loop.create_task(coroutine)
        self.scheduler.run_until(task)
        return task.result()


def test_a_socket_that_was_sent_somewhere_is_connected_when_it_is_handed_over() -> None:
    two = Two()

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, host="there", port=80, ssl=None, backlog=5)
        assert server.sockets[0].getsockname() == ("there", 80)

    async def dial() -> bytes:
        loop = asyncio.get_running_loop()
        [(family, kind, protocol, _, address)] = await loop.getaddrinfo(
            "there", 80, type=socket.SOCK_STREAM
        )
        assert address == ("there", 80)
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        transport, ear = await loop.create_connection(Ear, sock=sock)
        assert sock.fileno() == -1
        assert transport.get_extra_info("peername") == ("there", 80)
        transport.write(b"hello")
        heard = await ear.heard
        transport.close()
        return heard

    two.run(two.there, listen())
    assert two.run(two.here, dial()) == b"hello"


def test_names_that_are_not_there_are_not_resolved() -> None:
    two = Two()

    async def resolve() -> None:
        await asyncio.get_running_loop().getaddrinfo("nobody", 80)

    with pytest.raises(socket.gaierror):
        two.run(two.here, resolve())


def test_there_is_no_tls() -> None:
    two = Two()

    async def listen() -> None:
        await asyncio.get_running_loop().create_server(
            Echo, "there", 443, ssl=SSLContext(PROTOCOL_TLS_SERVER)
        )

    async def dial() -> None:
        await asyncio.get_running_loop().create_connection(Ear, "there", 443, ssl=True)

    with pytest.raises(OSError, match="TLS"):
        two.run(two.there, listen())
    with pytest.raises(OSError, match="TLS"):
        two.run(two.here, dial())


def test_a_pipe_tells_the_port_that_was_dialled_in_both_directions() -> None:
    two = Two()
    seen: dict[tuple[str, int], None] = {}
    two.network.on_sent.append(lambda pipe, _: seen.setdefault((pipe.source, pipe.port)))

    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Echo, "there", 80)

    async def dial() -> None:
        transport, ear = await asyncio.get_running_loop().create_connection(Ear, "there", 80)
        transport.write(b"x")
        await ear.heard

    two.run(two.there, listen())
    two.run(two.here, dial())
    assert list(seen) == [("here", 80), ("there", 80)]


def test_who_watches_is_told_where_bytes_were_harmed() -> None:
    two = Two()
    harmed: list[tuple[str, int]] = []
    two.network.on_harmed.append(lambda pipe: harmed.append((pipe.source, pipe.port)))

    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Echo, "there", 80)

    async def dial() -> bytes:
        transport, ear = await asyncio.get_running_loop().create_connection(Ear, "there", 80)
        transport.write(b"x")
        await ear.heard
        ear.heard = asyncio.get_running_loop().create_future()
        two.network.harm("here", "there", "replayed")
        transport.write(b"y")
        heard: bytes = await ear.heard
        return heard

    two.run(two.there, listen())
    assert two.run(two.here, dial()) == b"yx"
    assert harmed == [("here", 80)]
