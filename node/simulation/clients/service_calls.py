"""A client's use of services that send on to whoever has registered: aliases and topics."""

import asyncio
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.node.client.session import Session
from rillnode.node.simulated.history import History
from rillnode.node.simulated.programs import TEXT

QUIET_SECONDS: Final = 0.5
"""How long after a message a second copy of it is waited for."""


class ServiceCalls:
    """One client's registrations at one node, over a link of its own.

    Args:
        session: to the client's own node; open.
        way: the route from there to the services' node, as text; empty: the same.
        name: of the client.
        seconds: how long an answer may take.
    """

    def __init__(
        self, session: Session, way: str, name: str, history: History, seconds: float
    ) -> None:
        self._session = session
        self._way = way
        self._name = name
        self._history = history
        self._seconds = seconds
        self._sent: dict[bytes, None] = {}
        self._received: list[WireMessage] = []
        self._arrived = asyncio.Event()
        self._address = session.messages.attach(self._take)

    async def call(self, number: int) -> None:
        """Register with each service, and send a message to what it has given.

        Raises:
            TimeoutError: something has not come back; the link to the services' node may be gone.
            RillnodeError: the session has ended.
        """
        named = f"{self._name}.{number}"
        topics = [TEXT.encode(f"{self._name}{twin}:{named}") for twin in ("", "-twin", "")]
        for service, payloads in (
            ("forwarding_service", [named.encode()]),
            ("static_forwarding_service", [TEXT.encode(self._name)]),
            # Two subscribers, of which one has subscribed again.
            ("pub_sub_service", topics),
        ):
            for payload in payloads:
                given = await self._send(parse_route(f"{self._way}{service}"), payload)
            sent, receivers = f"{service} {named}".encode(), len(set(payloads))
            await self._send(given.return_route, sent, receivers)
            await asyncio.sleep(QUIET_SECONDS)
            copies = sum(wire.payload == sent for wire in self._received)
            if copies > receivers:
                text = f"{self._name} got {copies} copies of what it has sent to {receivers}"
                self._history.broken("answered-twice", text)

    async def _send(self, route: Route, payload: bytes, receivers: int = 1) -> WireMessage:
        """Send a message to what sends it on to this client, and take it, once for each."""
        self._sent[payload] = None
        self._received.clear()
        self._session.messages.send(route, payload, (local(self._address),))
        async with asyncio.timeout(self._seconds):
            while True:
                copies = [wire for wire in self._received if wire.payload == payload]
                if len(copies) >= receivers:
                    return copies[0]
                self._arrived.clear()
                await self._arrived.wait()

    def _take(self, wire: WireMessage) -> None:
        """Take what comes; it may be late, from a call that was given up."""
        if native.is_native(wire.payload):
            return  # a node's word that something could not be handed on
        if wire.payload not in self._sent:
            self._wrong(f"{wire.payload!r} was sent by nobody")
        self._received.append(wire)
        self._arrived.set()

    def _wrong(self, text: str) -> None:
        self._history.broken("route-answer", f"{self._name}: {text}")
