"""The event loop of a process that has a network: what asyncio and its users do with sockets there.

Protocols get connections of the simulated network. A library that makes its sockets itself, as
aiohttp does, resolves a name, connects a socket to what came of that, and hands the socket to
`create_connection`. Here the name stands for itself, the socket is only remembered with where it
was to go, and the connection is made when it is handed over; the real one carries nothing.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from rillnode.node.simulation.loop import Call, ProcessLoop

if TYPE_CHECKING:
    from rillnode.node.simulation.network import Host, Network

FREE_PORT_MIN: Final = 49_152

Factory = Callable[[], asyncio.BaseProtocol]

AddressInfo = tuple[int, int, int, str, tuple[str, int]]
"""Family, type, protocol, canonical name, and name with port."""


class Arrival(Call):
    """An arrival from the network, whether the process runs or not."""

    __slots__ = ()


class HostLoop(ProcessLoop):
    """A process's event loop, with the network that its host is in."""

    def __init__(self, network: "Network", host: "Host") -> None:
        super().__init__(network.scheduler, host.name)
        self._network = network
        self._host = host
        self._targets: WeakKeyDictionary[socket.socket, tuple[str, int]] | None = None

    def keep(self, call: Call) -> None:
        """Take a call that cannot run now; of what arrives its operating system takes care."""
        if isinstance(call, Arrival):
            self._network.take(call)
        else:
            super().keep(call)

    async def create_connection(self, *args: Any, **options: Any) -> tuple[asyncio.Transport, Any]:
        """Connect to another host: protocol factory, name, port; or `sock`, once "connected".

        Raises:
            OSError: there is no such host, or nothing listens; or TLS is asked for.
        """
        _refuse_tls(options)
        protocol_factory, *named = args
        given: socket.socket | None = options.get("sock")
        if given is None:
            host, port = named or (options["host"], options["port"])
        else:
            assert self._targets is not None, "it has come through `sock_connect`"
            host, port = self._targets.pop(given)
            given.close()
        return await self._network.connect(self._host, protocol_factory, host, port)

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Accept connections to a port of this host: protocol factory, any name, port.

        Raises:
            OSError: the port is in use; or TLS is asked for.
        """
        _refuse_tls(options)
        protocol_factory, *named = args
        host, port = named or (options["host"], options["port"])
        listeners = self._host.listeners
        if port in listeners:
            raise OSError(98, "Address already in use")
        while not port or port in listeners:
            port = max(FREE_PORT_MIN, *listeners, 0) + 1
        listeners[port] = protocol_factory
        return _Server(listeners, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """Find a host: its name is its address.

        Raises:
            OSError: there is no such host.
        """
        if host not in self._network.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found: AddressInfo = (
            socket.AF_INET,
            socket.SOCK_STREAM,
            socket.IPPROTO_TCP,
            "",
            (host, port),
        )
        return [found]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Note where a socket is to go; `create_connection` goes there."""
        if self._targets is None:
            self._targets = WeakKeyDictionary()
        self._targets[sock] = address[:2]


def _refuse_tls(options: dict[str, Any]) -> None:
    if options.get("ssl"):
        raise OSError("the simulated network carries no TLS")


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
