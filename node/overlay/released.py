"""Released Streamr nodes and trackers: the listener that they come to, and links to theirs.

One listener has two faces, as released peers tell trackers from nodes by the address: at its URL
is this node's tracker, below `/node` its part in shared streams.

A pair of nodes keeps one link, whoever has dialled. A node that has come here is not dialled: its
link is used, as released nodes do. Where two links cross, the side with the greater URL drops the
one that is new to it, and the other side none. So one is left, whichever arrives first.
"""

from collections import Counter
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from rillnode.actors.core.access import ANONYMOUS, NODE_PRINCIPAL
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.links.dialling import (
    AcceptedEvents,
    DialledEvents,
    PeerDialer,
    PeerSettings,
    PeerStatus,
)
from rillnode.actors.core.links.directory import PeerDirectory
from rillnode.actors.overlay.generations import GENERATIONS, Generation, duplicate_code
from rillnode.actors.overlay.released import Expected, FrameLink, ReleasedEvents
from rillnode.actors.overlay.tracker import ADDRESS as TRACKER_ADDRESS
from rillnode.actors.overlay.translating import Role, Translator
from rillnode.actors.ports import Dialling
from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.routing.routes import Route, local
from rillnode.codecs.streamr.limits import STREAMR_FRAME_BYTES_MAX
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
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener
from rillnode.node.tls import tls_context
from rillnode.transports.clock import Clock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkLimits
from rillnode.transports.web import accept_websocket
from rillnode.transports.web_dialer import LinkUnwanted, WebSocketDialer
from rillnode.transports.web_server import WebServer, listen_web

NAME: Final = "streamr_network"

PING_SECONDS: Final = 10.0
"""A peer has half of it to answer: the 5 seconds that released nodes give."""

COME_FIRST_SECONDS: Final = 0.5
"""How long a released node has to come before it is dialled: it may have been told to as well, and
nodes of release 13 die where a link of theirs is dropped that they have just opened. Own choice."""

_NODE_PATH: Final = "/node"
_REFUSED_REASON: Final = "streamr:node:missing-required-parameter"
_TRACKER_ID: Final = "tracker-"
"""Begins the id of the tracker: to released nodes each id has one URL."""

TRACKER_PREFIX: Final = b"released_tracker/"


_Key = tuple[Role, str]
"""A peer: what it is to this node, and its URL."""


class _Linked(ReleasedEvents):
    """One link of a released peer, from its handshake to its end.

    Args:
        links: it is taken out of these when it ends.
        key: whose link it is.
        inner: what its connection is told.
        expected: who is at the other end.
        translator: of this link alone.
        counters: frames that could not be read, by error code.
        close_code: what it is closed with in favour of another.
    """

    def __init__(
        self,
        links: "_Links",
        key: _Key,
        inner: AcceptedEvents | DialledEvents,
        expected: Expected,
        translator: Translator,
        counters: Counter[str],
        close_code: int,
    ) -> None:
        super().__init__(inner, expected, translator, counters)
        self._links = links
        self._close_code = close_code
        self._dropped = False
        self.key = key
        self.inner = inner
        self.name = expected.peer.id

    def link_opened(self, link: FrameLink) -> None:
        """The handshake is over; another may have come in the meantime."""
        super().link_opened(link)
        if self._dropped:
            self.drop()

    def link_closed(self, reason: str) -> None:
        """The link is gone."""
        self._links.remove(self)
        super().link_closed(reason)

    def drop(self) -> None:
        """Close it in favour of another."""
        self._dropped = True
        self._links.remove(self)
        self.close(DUPLICATE_REASON, self._close_code)


class _Links:
    """The links of released peers: one for each, or two for the time that they cross."""

    def __init__(self) -> None:
        self._open: dict[_Key, list[_Linked]] = {}
        self._refused: set[_Key] = set()

    @property
    def accepted_urls(self) -> list[str]:
        """Where the peers listen that have come here."""
        return [url for role, url in self._open if self.accepted((role, url)) is not None]

    def accepted(self, key: _Key) -> tuple[_Linked, AcceptedEvents] | None:
        """The link that a peer has made itself, if there is one."""
        for linked in reversed(self._open.get(key, ())):
            if isinstance(linked.inner, AcceptedEvents):
                return linked, linked.inner
        return None

    def refuses(self, key: _Key, own_url: str) -> bool:
        """Whether a link that comes is dropped in favour of the one that there is.

        Who comes again after that has lost the other, which this side cannot see: it is taken.
        """
        if key not in self._open or key in self._refused:
            return False
        refused = drops_new_connection(own_url, key[1])
        if refused:
            self._refused.add(key)
        return refused

    def take(self, new: _Linked, *, granted: bool) -> None:
        """Take in one that has come.

        What the peer has made before it has given up. What this node has dialled it may have kept,
        and drops the new one by itself then.

        Args:
            new: the link.
            granted: who has come may do something here. Who may not, and says that it is the peer,
                does not bring this node to give up what it has reached at the peer's URL.
        """
        lost = granted and new.key in self._refused
        for old in tuple(self._open.get(new.key, ())):
            if lost or isinstance(old.inner, AcceptedEvents):
                old.drop()
        self.add(new)

    def add(self, new: _Linked) -> None:
        """Remember a link."""
        self._refused.discard(new.key)
        self._open.setdefault(new.key, []).append(new)

    def remove(self, linked: _Linked) -> None:
        """Forget a link; harmless when that is done."""
        links = self._open.get(linked.key, [])
        if linked in links:
            links.remove(linked)
            self._refused.discard(linked.key)
            if not links:
                del self._open[linked.key]


class _Attempt:
    """An attempt to open a link: first a wait for the peer, then perhaps dialling."""

    def __init__(self) -> None:
        self.under_way: Dialling | None = None

    def cancel(self) -> None:
        """Give up what is under way."""
        if self.under_way is not None:
            self.under_way.cancel()


class StreamrNetwork:
    """The listener and trackers of `[streamr_network]`.

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
        shared = config.table(OverlayTable)
        self._shares = shared is not None
        storage = shared is not None and shared.storage
        self._headers = handshake_headers(identity, PeerType.STORAGE if storage else PeerType.NODE)
        self._links = _Links()
        self._closed = False
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
            (local(TRACKER_PREFIX + str(at).encode()), local(TRACKER_ADDRESS))
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
        trackers = PeerDirectory(
            self._peers, TRACKER_PREFIX, lambda _, origin: origin.principal == NODE_PRINCIPAL
        )
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
            )
            trackers.add(TRACKER_PREFIX + str(at).encode(), settings, status)

    async def close(self) -> None:
        """Close the links that this node has dialled, and wait for them."""
        self._closed = True
        await self._dialer.close("the node is stopping")

    def dialer(self, url: str) -> PeerDialer:
        """Opens links to a released node, or uses the one that it has made."""
        return self._dialing(url, Role.NODE)

    def status(self) -> dict[str, Any]:
        """Who is connected, and what could not be read."""
        return {
            "accepted": self._links.accepted_urls,
            "trackers": {url: status.state for url, status in self._statuses.items()},
            "counters": dict(self.counters),
        }

    # Dialling --------------------------------------------------------------------------------

    def _dialing(self, url: str, role: Role) -> PeerDialer:
        generation = GENERATIONS[str(self._table.release)]
        key = (role, url)

        def dial(events: DialledEvents, on_failure: Callable[[RillnodeError], None]) -> Dialling:
            attempt = _Attempt()

            def make_events(headers: Any) -> ReleasedEvents:
                expected = Expected(read_handshake(headers, url), role)
                if self._usable(key) is not None and drops_new_connection(self.node_url, url):
                    code = generation.duplicate_code
                    raise LinkUnwanted("link.duplicate", DUPLICATE_REASON, close_code=code)
                translator = Translator(role, generation)
                linked = self._link(key, events, expected, translator, generation.duplicate_code)
                self._links.add(linked)
                return linked

            def failed(error: RillnodeError) -> None:
                if not self._share(key, generation, events):
                    on_failure(error)

            def begin() -> None:
                if self._closed or self._share(key, generation, events):
                    return
                address = quote(self.node_url, safe=":/")
                attempt.under_way = self._dialer.dial(
                    f"{url.rstrip('/')}{generation.path}?{ADDRESS_PARAMETER}={address}",
                    self._headers,
                    make_events,
                    failed,
                )

            if role is Role.TRACKER or self._usable(key) is not None:
                begin()
            else:
                attempt.under_way = self._clock.call_later(COME_FIRST_SECONDS, begin)
            return attempt

        return dial

    def _share(self, key: _Key, generation: Generation, events: DialledEvents) -> bool:
        """Let who wants a link use the one that the peer has made, if there is one."""
        found = self._usable(key)
        if found is None or not found[0].assume(generation):
            return False
        found[1].share(events)
        return True

    def _usable(self, key: _Key) -> tuple[_Linked, AcceptedEvents] | None:
        """The link that a peer has made itself, where that peer may do anything here.

        Another may be anybody who says that this is his URL: what is there is to be dialled.
        """
        found = self._links.accepted(key)
        return None if found is None or not self._granted(found[0].name) else found

    def _granted(self, name: str) -> bool:
        known = self._peers.access.known
        return known(ANONYMOUS) or known(f"streamr:{name}")

    def _link(
        self,
        key: _Key,
        inner: AcceptedEvents | DialledEvents,
        expected: Expected,
        translator: Translator,
        close_code: int,
    ) -> _Linked:
        return _Linked(self._links, key, inner, expected, translator, self.counters, close_code)

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
            return await self._refuse(request, headers, _REFUSED_REASON, CLOSE_REFUSED)
        key = (role, peer.address)
        close_code = duplicate_code(request.path)
        own = self._url if role is Role.TRACKED else self.node_url
        if self._links.refuses(key, own):
            return await self._refuse(request, headers, DUPLICATE_REASON, close_code)
        inner = AcceptedEvents(self._peers, prefix=b"SN_H_")
        linked = self._link(key, inner, expected, Translator(role), close_code)
        self._links.take(linked, granted=self._granted(peer.id))
        try:
            return await accept_websocket(
                request,
                linked,
                group,
                text=True,
                either=True,
                message_bytes_max=STREAMR_FRAME_BYTES_MAX,
                ping_seconds=PING_SECONDS,
                headers=headers,
            )
        finally:
            self._links.remove(linked)

    async def _refuse(
        self, request: web.Request, headers: dict[str, str], reason: str, code: int
    ) -> web.StreamResponse:
        """Close as released nodes do, who upgrade first and then say why."""
        socket = web.WebSocketResponse(timeout=self._limits.close_seconds)
        socket.headers.update(headers)
        await socket.prepare(request)
        await socket.close(code=code, message=reason.encode())
        return socket
