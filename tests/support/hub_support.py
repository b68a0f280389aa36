"""The hub's services without sockets: peers with a connection's address, and what comes to them."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

from core_support import Core, with_core
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.catalog import spawn_services
from rillnode.actors.ockam.names import SERVICE_NAMES, ServiceName
from rillnode.actors.ports import Link
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local

ME = (local("me"),)


class _Connection(Worker):
    """Notes what is routed to it, and takes away its own address as a connection does."""

    def __init__(self, received: list[WireMessage]) -> None:
        self._received = received

    def handle(self, message: Any, sender: Any) -> None:
        if isinstance(message, Delivery):
            self._received += (
                wire._replace(onward_route=wire.onward_route[1:]) for wire in message.messages
            )


class HubPeer:
    """A peer behind a connection of its own."""

    def __init__(self, core: Core, principal: str = "anonymous", limit: int = 65_000) -> None:
        self.core = core
        self.received: list[WireMessage] = []
        self.link = local(b"TCP_H_" + core.context.entropy(8).hex().encode())
        self.cell = core.system.spawn(lambda: _Connection(self.received))
        self.origin = Origin(principal, limit, native=False, connection=self.cell)
        core.router.register(self.link.value, self.cell)

    def send(self, onward: str | bytes | Address | Route, payload: bytes, back: Route = ME) -> None:
        """Send one message, as its connection would hand it on."""
        if isinstance(onward, str | bytes):
            onward = local(onward)
        route = (onward,) if isinstance(onward, Address) else onward
        self.core.router.route(self.origin, [WireMessage(route, (self.link, *back), payload)])

    async def ask(self, onward: str | bytes | Address | Route, payload: bytes) -> list[WireMessage]:
        """Send one message, and return what came back by the time that nothing more happens."""
        self.received.clear()
        self.send(onward, payload)
        await self.core.settle()
        return self.received[:]

    async def close(self) -> None:
        """End the connection, as its actor does."""
        self.core.router.unregister(self.link.value)
        self.origin.end()
        self.core.system.exit(self.cell)
        await self.core.settle()


@dataclass
class SlowLink:
    """As much of a link as says how much its peer has to take still."""

    buffered_bytes: int = LINK_BUFFER_HIGH_BYTES + 1


def slow(peer: HubPeer) -> SlowLink:
    """Make a peer slow to read; the rest of a link is not asked for."""
    link = SlowLink()
    peer.origin.link = cast(Link, link)
    return link


def with_hub(
    test: Callable[[Core], Awaitable[None]],
    *,
    enabled: Collection[ServiceName] = SERVICE_NAMES,
    **options: Any,
) -> None:
    """Run a test with a core that has the services."""

    async def run(core: Core) -> None:
        spawn_services(core.context, core.indexes, enabled)
        await core.settle()
        await test(core)

    with_core(run, **options)
