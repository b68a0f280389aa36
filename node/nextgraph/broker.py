"""NextGraph's side of a node: the broker's key, its actors, and the listener for its clients."""

from collections.abc import Iterable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import HttpVersion11, web

from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StoreHealth, StreamRecord
from rillnode.actors.nextgraph.broker import spawn_broker, stream_removed
from rillnode.actors.nextgraph.connection import BrokerEvents
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.codecs.keys import SEED_BYTES
from rillnode.codecs.nextgraph.bootstrap import (
    BOOTSTRAP_PATH,
    BootstrapContent,
    BoxPrivate,
    BrokerServer,
    BrokerServerType,
    Domain,
    Localhost,
    Public,
    bootstrap_document,
)
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.text_ids import format_id
from rillnode.codecs.nextgraph.types import BindAddress, IPv4, IPv6
from rillnode.node.http.proxies import proxied_hosts
from rillnode.node.keys.files import read_or_make_key
from rillnode.node.nextgraph.access import Caller, admits, may_bootstrap
from rillnode.node.nextgraph.config import NextgraphListener, nextgraph_key_file
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.node.tls import tls_context
from rillnode.transports.groups import LinkGroup
from rillnode.transports.keepalive import keep_alive
from rillnode.transports.links import LinkLimits
from rillnode.transports.web import accept_websocket
from rillnode.transports.web_server import WebServer, listen_web

IDLE_SECONDS: Final = 60
"""How long a client is silent before the system probes it: the protocol has nothing that tells who
is gone, and released clients take a WebSocket ping for a malformed message and close."""


class Nextgraph(PlugIn):
    """The broker of a node whose configuration has a `[nextgraph]` table that is turned on.

    Raises:
        ConfigError: the key's file cannot be used.
    """

    simulated = "rillnode.node.nextgraph.simulation.part:NextgraphPart"

    _context: BrokerContext
    _server: WebServer

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._table = host.table(NextgraphListener)
        self._peer = read_or_make_key(nextgraph_key_file(host.config), host.entropy(SEED_BYTES))

    @property
    def facts(self) -> Mapping[str, str]:
        """The broker's Ed25519 key, hex."""
        return {"nextgraph_peer_id": self._peer.public_hex}

    @property
    def links(self) -> Iterable[Cell]:
        """The connections that there are."""
        return tuple(self._context.connections) if hasattr(self, "_context") else ()

    def start(self, core: Core) -> None:
        """Make the actors."""
        context = BrokerContext(
            streams=core.streams,
            peer=self._peer,
            registration=self._table.registration,
            discoverable=self._table.discoverable,
            bootstrap=self.bootstrap,
            rules=core.rules,
            stream_changed=core.changed,
        )
        spawn_broker(context, core.actor(TopicActor))
        self._context = context

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Tell a topic that its stream is no more."""
        if isinstance(change, StreamRemoved):
            stream_removed(self._context, change)

    def on_health(self, health: StoreHealth) -> None:
        """Take over how the store is; called from any thread."""
        if hasattr(self, "_context"):
            system = self._context.streams.system
            system.post_threadsafe([(self._context.repairs, health)])

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener.

        Raises:
            ConfigError: the TLS certificate or its key cannot be used.
            TransportError: the address cannot be bound.
        """
        table = self._table
        limits = LinkLimits(
            # The system finds out who is gone; who is only silent may stay.
            idle_ping_seconds=None,
            idle_close_seconds=None,
            connections_max=table.connections_max,
            connections_per_address_max=table.connections_per_address_max,
        )
        clock = self._context.streams.clock
        group = LinkGroup(transport="nextgraph", clock=clock, limits=limits)
        bound["nextgraph"] = self._server = await listen_web(
            self._app(group), *table.address, group=group, tls=tls_context(table, "nextgraph")
        )

    def bootstrap(self) -> BootstrapContent:
        """Where clients reach the broker."""
        server = BrokerServer(
            server_type=self._server_type(),
            can_verify=False,
            can_forward=True,
            peer_id=self._peer.public_key,
        )
        return BootstrapContent([server])

    def status(self) -> dict[str, Any]:
        """The broker's id, also as its clients write it, and what was dropped or refused."""
        if not hasattr(self, "_context"):
            return {"nextgraph": None}
        shown = {
            "peer_id": self._peer.public_hex,
            "text_id": format_id(self._peer.public_key),
            "connections": len(self._context.connections),
            "clients": len(self._context.sessions),
            "overlays": len(self._context.overlays),
            "topics": len(self._context.topics),
            "counters": dict(self._context.counters),
        }
        return {"nextgraph": shown}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was dropped or refused."""
        return {"nextgraph": self._context.counters} if hasattr(self, "_context") else {}

    def _server_type(self) -> BrokerServerType:
        if self._table.public_name is not None:
            return Domain(self._table.public_name)
        if self._table.address.loopback:
            return Localhost(self._server.port)
        address = ip_address(self._server.host)
        ip = IPv4(address.packed) if address.version == 4 else IPv6(address.packed)
        place = [BindAddress(self._server.port, ip)]
        return Public(place) if address.is_global else BoxPrivate(place)

    def _app(self, group: LinkGroup) -> web.Application:
        async def serve(request: web.Request) -> web.StreamResponse:
            caller = Caller(
                remote=request.remote or "",
                host=request.headers.get("Host", ""),
                origin=request.headers.get("Origin"),
                proxied_hosts=proxied_hosts(request.headers.items()),
            )
            if request.method != "GET":
                return _refusal(405, "only GET")
            if request.version < HttpVersion11:
                return _refusal(505, "only HTTP/1.1")
            if not admits(self._table, caller):
                return _refusal(403, "not from here")
            if request.path == "/" and request.headers.get("Upgrade", "").lower() == "websocket":
                if request.transport is not None:
                    keep_alive(request.transport.get_extra_info("socket"), IDLE_SECONDS)
                return await accept_websocket(
                    request,
                    BrokerEvents(self._context),
                    group,
                    text=False,
                    message_bytes_max=NEXTGRAPH_MESSAGE_BYTES_MAX,
                    ping_seconds=None,
                )
            if request.path == BOOTSTRAP_PATH and may_bootstrap(self._table, caller):
                return self._bootstrap_response(caller)
            return _refusal(403, "nothing here")

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", serve)
        return app

    def _bootstrap_response(self, caller: Caller) -> web.Response:
        headers = {"Cache-Control": "max-age=0", "Vary": "Origin"}
        if caller.origin is not None:
            headers["Access-Control-Allow-Origin"] = caller.origin
        body = bootstrap_document(self.bootstrap(), None)
        return web.Response(body=body, content_type="text/json", headers=headers)


def _refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
