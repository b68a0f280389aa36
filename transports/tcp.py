"""TCP: listening and dialling."""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable

from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.limits import CONNECT_SECONDS_MAX
from rillnode.transports.clock import Clock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import NOISE_LIMITS, LinkEvents, LinkLimits
from rillnode.transports.tcp_link import TcpLink, address_text

_BACKLOG = 1_024


class TcpListener:
    """A bound listener and the links that it has accepted.

    Attributes:
        host: the address it is bound to.
        port: the port it is bound to; never 0.
    """

    def __init__(self, server: asyncio.Server, group: LinkGroup) -> None:
        self._server = server
        self._group = group
        self.host, self.port = server.sockets[0].getsockname()[:2]

    @property
    def address(self) -> str:
        """The bound address as `host:port`."""
        return address_text(self.host, self.port)

    @property
    def group(self) -> LinkGroup:
        """The links, for who watches them."""
        return self._group

    @property
    def link_count(self) -> int:
        """Links now held, those in their handshake included."""
        return len(self._group)

    @property
    def counters(self) -> Counter[str]:
        """Links that failed or were refused so far, by error code."""
        return self._group.counters

    def stop_accepting(self) -> None:
        """Take no more links; those held stay open."""
        self._group.stop()
        self._server.close()

    async def close(self, reason: str = "the node is stopping") -> None:
        """Stop accepting, close all links, each within its `close_seconds`, and wait for them."""
        self.stop_accepting()
        await self._group.close(reason)


async def listen(
    host: str,
    port: int,
    *,
    codec_factory: Callable[[], LinkCodec],
    events_factory: Callable[[], LinkEvents],
    transport_name: str,
    clock: Clock,
    limits: LinkLimits = NOISE_LIMITS,
) -> TcpListener:
    """Bind `host:port` (port 0: any free one) and accept links.

    `codec_factory` is called for each connection, `events_factory` for each link that has opened.

    Raises:
        TransportError: the address cannot be bound; the text says what to do.
    """
    group = LinkGroup(transport=transport_name, clock=clock, limits=limits)
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: TcpLink(group, codec_factory(), events_factory), host, port, backlog=_BACKLOG
        )
    except OSError as error:
        raise bind_error(host, port, error) from error
    return TcpListener(server, group)


async def dial(
    host: str,
    port: int,
    *,
    codec: LinkCodec,
    events: LinkEvents,
    transport_name: str,
    clock: Clock,
    limits: LinkLimits = NOISE_LIMITS,
    connect_seconds: float = CONNECT_SECONDS_MAX,
) -> TcpLink:
    """Connect to a listener; the link is open when this returns.

    Raises:
        HandshakeError: the peer is not whom `codec` expects, refuses us, or speaks something else.
        TransportError: it cannot be reached; the text says what to do.
    """
    group = LinkGroup(transport=transport_name, clock=clock, limits=limits)
    return await open_link(group, host, port, codec, events, connect_seconds)


async def open_link(
    group: LinkGroup,
    host: str,
    port: int,
    codec: LinkCodec,
    events: LinkEvents,
    connect_seconds: float = CONNECT_SECONDS_MAX,
) -> TcpLink:
    """Connect to a listener with a link of `group`; errors as of `dial`."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[None] = loop.create_future()
    link = TcpLink(group, codec, lambda: events, settled)
    try:
        _check_address(host, port)  # loops cut some off, and take what is left
        async with asyncio.timeout(connect_seconds):
            await loop.create_connection(lambda: link, host, port)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        settled.cancel()
        raise _dial_error(host, port, error) from error
    except (ValueError, OverflowError) as error:
        settled.cancel()
        text = f"{host[:300]!a}, port {port}, is no address ({error}): check host and port"
        raise ConfigError("link.address", text) from error
    except asyncio.CancelledError:
        settled.cancel()
        raise
    try:
        await settled
    except asyncio.CancelledError:
        link.close("dialling was given up")
        raise
    return link


def bind_error(host: str, port: int, error: OSError) -> TransportError:
    """Say what it means to the operator that an address could not be bound."""
    where = address_text(host, port)
    if isinstance(error, socket.gaierror):
        code, text = "listen.name", f"{host} is no address of this machine: check `listen`"
    elif error.errno == errno.EADDRINUSE:
        code, text = "listen.in_use", f"{where} is in use: stop what uses it or choose another port"
    elif error.errno == errno.EACCES:
        code, text = "listen.forbidden", f"{where} is not allowed: choose a port above 1023"
    elif error.errno in (errno.EADDRNOTAVAIL, None):  # None: asyncio's own, since Python 3.13
        code, text = "listen.name", f"{host} is no address of this machine: check `listen`"
    else:
        code, text = "listen.failed", f"{where} cannot be bound: {error.strerror or error}"
    return TransportError(code, text, address=where)


def _check_address(host: str, port: int) -> None:
    if "\0" in host:
        raise ValueError("a host has no null bytes")
    if not 0 <= port <= 65_535:
        raise OverflowError("a port is from 0 to 65535")


def _dial_error(host: str, port: int, error: OSError | UnicodeError) -> TransportError:
    where = address_text(host, port)
    if isinstance(error, TimeoutError):
        code, text = "link.connect_timeout", f"{where} does not answer: check address and firewall"
    elif isinstance(error, socket.gaierror | UnicodeError):
        code, text = "link.name", f"{host} is no known host name: check the address"
    elif isinstance(error, ConnectionRefusedError):
        code, text = "link.refused", f"nothing listens on {where}: is the node running there?"
    else:
        code, text = "link.unreachable", f"{where} cannot be reached: {error.strerror or error}"
    return TransportError(code, text, address=where)
