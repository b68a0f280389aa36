"""Released Streamr nodes and trackers: the listener that they come to, and links to theirs.

One listener has two faces, as released peers tell trackers from nodes by the address: at its URL
is this node's tracker, below `/node` its part in shared streams.
"""

from collections import Counter
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from rillnode.actors.access import NODE_PRINCIPAL
from rillnode.actors.overlay.generations import GENERATIONS
from rillnode.actors.overlay.released import Expected, ReleasedEvents
from rillnode.actors.overlay.tracker import ADDRESS as TRACKER_ADDRESS
from rillnode.actors.overlay.translating import Role, Translator
from rillnode.actors.peers.connection import ConnectionEvents, PeerContext
from rillnode.actors.peers.dialling import PeerActor, PeerSettings, PeerStatus
from rillnode.actors.ports import Dialer, Dialling, LinkEvents
from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.limits import STREAMR_FRAME_BYTES_MAX
from rillnode.codecs.ockam.routing import Route, local
from rillnode.codecs.streamr.network import (
    ADDRESS_PARAMETER,
    CLOSE_REFUSED,
    DUPLICATE_REASON,
    PeerType,
    drops_new_connection,
    handshake_headers,
    read_handshake,
)
from rillnode.node.config import Config
from rillnode.node.config.overlay_tables import StreamrNetworkListener
from rillnode.node.tls import tls_context
from rillnode.transports.clock import Clock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkLimits
from rillnode.transports.web import accept_websocket
from rillnode.transports.web_dialer import DialledEvents, WebSocketDialer
from rillnode.transports.web_server import WebServer, listen_web

NAME: Final = "streamr_network"

PING_SECONDS: Final = 10.0
"""A peer has half of it to answer: the 5 seconds that released nodes give."""

_NODE_PATH: Final = "/node"
_REFUSED_REASON: Final = "streamr:node:missing-required-parameter"
_TRACKER_ID: Final = "tracker-"
"""Begins the id of the tracker: to released nodes each id has one URL."""

_TRACKER_PREFIX: Final = b"released_tracker/"


class StreamrNetwork:
    """What `[streamr_network]` asks for.

    Args:
        config: the node's.
        table: its `[streamr_network]`.
        identity: the node's identity, hexadecimal: its id to released peers.
        peers: the parts that connections work with.
        clock: of the node.
        tracked: whether the node is a tracker.

    Attributes:
        counters: frames that could not be read or written, by error code.
    """

    def __init__(
        self,
        config: Config,
        table: StreamrNetworkListener,
        identity: str,
        peers: PeerContext,
        clock: Clock,
        *,
        tracked: bool,
    ) -> None:
        self._table = table
        self._identity = identity
        self._peers = peers
        self._clock = clock
        self._tracked = tracked
        self._shares = config.overlay is not None
        storage = config.overlay is not None and config.overlay.storage
        self._headers = handshake_headers(identity, PeerType.STORAGE if storage else PeerType.NODE)
        self._open: dict[tuple[Role, str], ReleasedEvents] = {}
        self._statuses: dict[str, PeerStatus] = {}
        self._url = table.advertise or ""
        limits = partial(LinkLimits, idle_ping_seconds=None, idle_close_seconds=None)
        self._limits = limits(
            connections_max=table.connections_max,
            connections_per_address_max=table.connections_per_address_max,
        )
        self._dialer = WebSocketDialer(
            transport_name=NAME,
            clock=clock,
            limits=limits(connections_max=config.dialling.links_max),
            connect_seconds=config.dialling.connect_seconds_max,
            message_bytes_max=STREAMR_FRAME_BYTES_MAX,
            ping_seconds=PING_SECONDS,
        )
        self.counters: Counter[str] = Counter()

    @property
    def trackers(self) -> tuple[Route, ...]:
        """The ways to released trackers."""
        return tuple(
            (local(_TRACKER_PREFIX + str(at).encode()), local(TRACKER_ADDRESS))
            for at in range(len(self._table.trackers))
        )

    @property
    def node_url(self) -> str:
        """Where released nodes find this one; empty where it shares no streams, or is not bound."""
        return self._url.rstrip("/") + _NODE_PATH if self._url and self._shares else ""

    async def listen(self, bound: MutableMapping[str, Any]) -> None:
        """Bind the listener, then dial the trackers, which are told its URL.

        Raises:
            ConfigError: the TLS certificate or its key cannot be used.
            TransportError: the address cannot be bound.
        """
        table = self._table
        group = LinkGroup(transport=NAME, clock=self._clock, limits=self._limits)
        tls = tls_context(table, NAME)
        server: WebServer = await listen_web(self._app(group), *table.address, group=group, tls=tls)
        bound[NAME] = server
        self._url = table.advertise or f"{'ws' if tls is None else 'wss'}://{server.address}"
        for at, url in enumerate(table.trackers):
            status = self._statuses[url] = PeerStatus(url, f"{NAME}/{table.release}")
            settings = PeerSettings(
                name=url,
                prefix=b"SN_C_",
                dial=self._dialing(url, Role.TRACKER),
                kept=True,
                may_use=NODE_PRINCIPAL.__eq__,
            )
            factory = partial(PeerActor, self._peers, settings, status)
            cell = self._peers.system.spawn(factory, name=url)
            self._peers.router.register(_TRACKER_PREFIX + str(at).encode(), cell)

    async def close(self) -> None:
        """Close the links that this node has dialled, and wait for them."""
        await self._dialer.close("the node is stopping")

    def dialer(self, url: str) -> Dialer:
        """Opens links to a released node."""
        return self._dialing(url, Role.NODE)

    def status(self) -> dict[str, Any]:
        """Who is connected, and what could not be read."""
        return {
            "accepted": [url for _, url in self._open],
            "trackers": {url: status.state for url, status in self._statuses.items()},
            "counters": dict(self.counters),
        }

    # Dialling --------------------------------------------------------------------------------

    def _dialing(self, url: str, role: Role) -> Dialer:
        generation = GENERATIONS[str(self._table.release)]

        def dial(events: LinkEvents, on_failure: Callable[[RillnodeError], None]) -> Dialling:
            def make_events(headers: Any) -> DialledEvents:
                expected = Expected(read_handshake(headers, url), role)
                translator = Translator(role, generation)
                return ReleasedEvents(events, expected, translator, self.counters)

            address = quote(self.node_url, safe=":/")
            return self._dialer.dial(
                f"{url.rstrip('/')}{generation.path}?{ADDRESS_PARAMETER}={address}",
                self._headers,
                make_events,
                on_failure,
            )

        return dial

    # Accepting -------------------------------------------------------------------------------

    def _app(self, group: LinkGroup) -> web.Application:
        app = web.Application()
        faces: list[tuple[str, Role]] = []
        if self._tracked:
            faces.append(("", Role.TRACKED))
        if self._shares:
            faces.append((_NODE_PATH, Role.NODE))
        for path, role in faces:
            handler = partial(self._connect, group, role)
            app.router.add_get(path or "/", handler)
            app.router.add_get(f"{path}/ws", handler)
        return app

    async def _connect(
        self, group: LinkGroup, role: Role, request: web.Request
    ) -> web.StreamResponse:
        headers = self._headers
        if role is Role.TRACKED:
            headers = handshake_headers(_TRACKER_ID + self._identity, PeerType.TRACKER)
        try:
            peer = read_handshake(request.headers, request.query.get(ADDRESS_PARAMETER))
            expected = Expected(peer, role)
        except CodecError as error:
            self.counters[error.code] += 1
            return await self._refuse(request, headers, _REFUSED_REASON)
        key = (role, peer.address)
        held = self._open.get(key)
        if held is not None:
            own = self._url if role is Role.TRACKED else self.node_url
            if drops_new_connection(own, peer.address):
                return await self._refuse(request, headers, DUPLICATE_REASON)
            held.close(DUPLICATE_REASON)
        inner = ConnectionEvents(self._peers, prefix=b"SN_H_")
        events = self._open[key] = ReleasedEvents(inner, expected, Translator(role), self.counters)
        try:
            return await accept_websocket(
                request,
                events,
                group,
                text=True,
                either=True,
                message_bytes_max=STREAMR_FRAME_BYTES_MAX,
                ping_seconds=PING_SECONDS,
                headers=headers,
            )
        finally:
            if self._open.get(key) is events:
                del self._open[key]

    async def _refuse(
        self, request: web.Request, headers: dict[str, str], reason: str
    ) -> web.StreamResponse:
        """Close as released nodes do, who upgrade first and then say why."""
        socket = web.WebSocketResponse(timeout=self._limits.close_seconds)
        socket.headers.update(headers)
        await socket.prepare(request)
        await socket.close(code=CLOSE_REFUSED, message=reason.encode())
        return socket
