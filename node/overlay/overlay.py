"""The overlay's side of a node: its tracker, its member, and links to the nodes it is told of."""

import re
from collections.abc import Callable, MutableMapping
from dataclasses import asdict, dataclass
from fnmatch import translate
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from rillnode.actors.core.access import NODE_PRINCIPAL, Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.links.dialling import PeerSettings, PeerStatus
from rillnode.actors.core.links.directory import PeerDirectory
from rillnode.actors.core.streams.context import StreamContext, StreamRemoved
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StreamRecord
from rillnode.actors.overlay.context import (
    MEMBER_ADDRESS,
    OverlayContext,
    OverlaySettings,
    claim_of,
    identity_in,
    is_known,
    verbs_of,
)
from rillnode.actors.overlay.member import MemberActor, Shares
from rillnode.actors.overlay.stream_keys import parse_overlay_address
from rillnode.actors.overlay.tracker import ADDRESS as TRACKER_ADDRESS, TrackerActor
from rillnode.actors.ports import Clock, Dialling
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import Identity, parse_identities
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.routes import Route, local
from rillnode.codecs.streamr.node_address import AnyAddress, NodeAddress, ReleasedAddress
from rillnode.node.config import Config, parse_address
from rillnode.node.listening import noise_limits
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener, TrackerTable
from rillnode.node.peers import ADDRESS_PREFIX
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.transports.dialer import TcpDialer
from rillnode.transports.links import LinkEvents

if TYPE_CHECKING:
    from rillnode.node.overlay.released import StreamrNetwork

RELEASE_SECONDS: Final = 10.0
"""How long a link stays after the last that needed it; as streamr-network does."""

_SEED_BYTES: Final = 16


class Overlay(PlugIn):
    """The plug-in of `[tracker]`, `[overlay]` and `[streamr_network]`; idle without them."""

    simulated = "rillnode.node.overlay.simulation.shared_stream:SharedStream"

    _context: OverlayContext | None = None
    _tracker: Cell | None = None
    _member: Cell | None = None
    _links: "OverlayLinks | None" = None
    _released: "StreamrNetwork | None" = None

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._config = host.config
        self._identity = host.identity
        self._entropy = host.entropy
        self._table = host.config.table(OverlayTable)
        self._tracking = host.config.table(TrackerTable) or TrackerTable()
        self._listener = host.config.table(StreamrNetworkListener)
        patterns = () if self._table is None else self._table.streams
        self._patterns = [re.compile(translate(pattern)) for pattern in patterns]

    def start(self, core: Core) -> None:
        """Keep the node's parts until its address is known."""
        self._core = core

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Make the actors, and bind the listener for released nodes if there is to be one.

        Raises:
            RillnodeError: as `StreamrNetwork.listen`.
        """
        noise = bound.get("noise")
        self.spawn(self._core.streams, self._core.peers, None if noise is None else noise.address)
        if self._released is not None:
            await self._released.listen(bound)

    def spawn(self, streams: StreamContext, peers: PeerContext, bound: str | None) -> None:
        """Make the actors; `bound` is the address that the `noise` listener has taken."""
        router, config = streams.router, self._config
        released, tracked, table = self._listener, self._is_tracker, self._table
        if released is not None and released.enabled:
            from rillnode.node.overlay.released import StreamrNetwork

            self._released = StreamrNetwork(
                config,
                released,
                self._identity.public_hex,
                peers,
                streams.clock,
                tracked=tracked,
            )
        if tracked:
            factory = partial(
                TrackerActor,
                router,
                streams.access,
                degree=self._tracking.degree,
                random=lambda: Random(int.from_bytes(self._entropy(_SEED_BYTES), "big")),
            )
            self._tracker = streams.system.spawn(factory)
            router.register(TRACKER_ADDRESS, self._tracker)
            router.register_guard(TRACKER_ADDRESS, partial(self._knows, streams))
        if table is None:
            return
        self._links = OverlayLinks(config, self._identity, peers, streams.clock, self._released)
        address = self._address(table.advertise or bound or config.noise.listen)
        settings = OverlaySettings(
            identity=self._identity.public_hex,
            address=lambda: address._replace(url=self._released_url),
            storage=table.storage,
            takes_part=partial(self._takes_part, streams.access),
            trackers=self._trackers(),
            released=self._released is not None,
            told_one_end=self._released is not None and bool(self._released.trackers),
        )
        self._context = OverlayContext(
            streams, settings, self._links, partial(self._admits, streams)
        )
        router.register_guard(MEMBER_ADDRESS, self._context.admits)
        self._member = streams.system.spawn(partial(MemberActor, self._context, Shares()))

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Take over that there is a stream, or that it is no more."""
        if self._member is not None:
            self._member.base.post(self._member, change)

    def admits(self, identity: str) -> bool:
        """Whether a node may connect because a tracker has named it."""
        return self._context is not None and self._context.admitted[identity] > 0

    async def close(self) -> None:
        """Close all links to other nodes and wait for them."""
        if self._links is not None:
            await self._links.close()
        if self._released is not None:
            await self._released.close()

    def status(self) -> dict[str, Any]:
        """Who is linked, what was sent and taken; None where the node takes no part."""
        if self._context is None:
            return {"overlay": None}
        shown = {
            "neighbours": dict(self._context.neighbours),
            "counters": dict(self._context.counters),
            "links": {} if self._links is None else self._links.statuses(),
            "released": None if self._released is None else self._released.status(),
        }
        return {"overlay": shown}

    def _takes_part(self, access: Access, stream_id: str) -> bool:
        return not access.is_reserved(stream_id) and any(
            pattern.match(stream_id) for pattern in self._patterns
        )

    @property
    def _is_tracker(self) -> bool:
        if self._table is None or self._tracking.enabled:
            return self._tracking.enabled
        released = self._listener
        elsewhere = released is not None and released.enabled and released.trackers
        return not (self._table.trackers or elsewhere)

    @property
    def _released_url(self) -> str:
        return "" if self._released is None else self._released.node_url

    def _trackers(self) -> tuple[Route, ...]:
        table = self._table
        if self._released is not None and self._released.trackers:
            return self._released.trackers
        if table is None or not table.trackers:
            return ((local(TRACKER_ADDRESS),),)
        return tuple(
            (local(ADDRESS_PREFIX + name.encode()), local(TRACKER_ADDRESS))
            for name in table.trackers
        )

    def _address(self, listen: str) -> NodeAddress:
        host, port = parse_address(listen)
        table = self._table
        storage = table is not None and table.storage
        return NodeAddress(self._identity.public_hex, host, port, storage)

    def _knows(self, streams: StreamContext, _: bytes, origin: Origin) -> bool:
        """Trackers listen to whom any grant names."""
        return origin.principal == NODE_PRINCIPAL or is_known(streams.access, origin)

    def _admits(self, streams: StreamContext, address: bytes, origin: Origin) -> bool:
        """Trackers speak to the member, and to the neighbours actors whom they have named.

        Beside those may do so who may push to the stream and subscribe to it.
        """
        principal = origin.principal
        if principal == NODE_PRINCIPAL:
            return True
        claim, identity = claim_of(origin), identity_in(principal)
        if claim is not None:
            # Only this node opens links to released trackers, and to nodes that they have named.
            dialled = origin.link is not None and origin.link.info.dialled
            if dialled or address == MEMBER_ADDRESS:
                return dialled and claim.tracker is (address == MEMBER_ADDRESS)
        elif not principal.startswith("noise:"):
            return False
        elif address == MEMBER_ADDRESS:
            return identity in self._tracker_identities
        elif self.admits(identity):
            return True
        name = (parse_overlay_address(address) or ("",))[0]
        return {"push", "subscribe"} <= verbs_of(streams.access, origin, name)

    @cached_property
    def _tracker_identities(self) -> frozenset[str]:
        table = self._table
        names = () if table is None else table.trackers
        return frozenset(
            key.hex()
            for peer in self._config.peers
            if peer.name in names and peer.identity is not None
            for key in parse_identities(peer.identity)
        )


LINK_PREFIX: Final = b"overlay_link/"
"""Begins the local address of each link; whose it is follows. Only this node sends to it."""


def _is_own(_: bytes, origin: Origin) -> bool:
    return origin.principal == NODE_PRINCIPAL


@dataclass(slots=True)
class _Held:
    """A link that is kept open while `holders` is not 0, and a while longer."""

    route: Route
    status: PeerStatus
    holders: int = 0


class OverlayLinks:
    """Links to the nodes that trackers have named, dialled when there is something to send."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        context: PeerContext,
        clock: Clock,
        released: "StreamrNetwork | None" = None,
    ) -> None:
        self._identity = identity
        self._context = context
        self._clock = clock
        self._released = released
        self._held: dict[AnyAddress, _Held] = {}
        self._peers = PeerDirectory(context, LINK_PREFIX, _is_own)
        dialling = config.dialling
        self._dialer = TcpDialer(
            transport_name="noise",
            clock=clock,
            limits=noise_limits(config.noise, dialling.links_max),
            connect_seconds=dialling.connect_seconds_max,
        )

    def hold(self, node: AnyAddress) -> Route:
        """The way to a node, for as long as it is not released as often as it was held."""
        held = self._held.get(node)
        if held is None:
            held = self._held[node] = self._open(node)
        held.holders += 1
        return held.route

    def release(self, node: AnyAddress) -> None:
        """It is not needed any more: the link is closed, unless it is soon needed again."""
        held = self._held[node]
        held.holders -= 1
        if not held.holders:
            self._clock.call_later(RELEASE_SECONDS, partial(self._close_unused, node))

    async def close(self) -> None:
        """Close all links and wait for them."""
        await self._dialer.close("the node is stopping")

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Each link's state, by the node's identity."""
        return {node.identity: asdict(held.status) for node, held in self._held.items()}

    def _open(self, node: AnyAddress) -> _Held:
        if isinstance(node, ReleasedAddress):
            assert self._released is not None, "without it no such node is asked for"
            status = PeerStatus(node.url, "streamr_network")
            dial, prefix, name = self._released.dialer(node.url), b"SN_O_", node.url
        else:
            status = PeerStatus(f"{node.host}:{node.port}", "noise")
            dial, prefix, name = partial(self._dial, node), b"NX_O_", node.identity[:16]
        settings = PeerSettings(name=name, prefix=prefix, dial=dial, kept=False)
        address = local(LINK_PREFIX + str(node).encode())
        self._peers.add(address.value, settings, status)
        return _Held((address,), status)

    def _dial(
        self, node: NodeAddress, events: LinkEvents, on_failure: Callable[[RillnodeError], None]
    ) -> Dialling:
        codec = NoiseLink.initiator(
            self._identity, node_identity=node.identity, ephemeral=self._context.entropy(DH_BYTES)
        )
        return self._dialer.dial(node.host, node.port, codec, events, on_failure)

    def _close_unused(self, node: AnyAddress) -> None:
        held = self._held.get(node)
        if held is not None and not held.holders:
            del self._held[node]
            self._peers.remove(held.route[0].value)
