"""The tracker: it hears how nodes are linked, and tells each whom to be linked to.

A node is whom its link has proved it to be, so nobody speaks for another. Released nodes prove
nothing: one is whom it says it is, unless a node of this kind is called so. What a node may neither
push to nor subscribe to is not there for it. Storage nodes are put into every stream's overlay. The
tracker's own node stands between nodes of its kind and released ones, which are not linked else.

Source: streamr-network 22.1.0, Tracker; docs/protocols/streamr.md.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.access import NODE_PRINCIPAL, Access
from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.rights import Key, RightsChanged
from rillnode.actors.core.router import Router
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.overlay.context import claim_of, verbs_of
from rillnode.actors.overlay.dialect import Dialect, decode
from rillnode.actors.overlay.generations import GENERATIONS
from rillnode.actors.overlay.graphs import OWN, Graphs
from rillnode.actors.overlay.limits import OVERLAY_NODES_MAX, OVERLAY_STREAMS_MAX
from rillnode.actors.overlay.stream_keys import parse_stream_key, stream_key
from rillnode.actors.overlay.topology import Topology
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Frame,
    Instruction,
    Message,
    Status,
    StatusMessage,
    StorageNodes,
    StreamStatus,
)
from rillnode.codecs.streamr.node_address import (
    NodeAddress,
    ReleasedPeer,
    parse_node_address,
)

logger = event_logger("rillnode.actors.overlay.tracker")

ADDRESS: Final = b"tracker"

QUIET_SECONDS: Final = 0.1
GATHERED_SECONDS_MAX: Final = 1.0
"""How long statuses are gathered before nodes are told of neighbours: until no more come, but not
longer than this. Where many nodes join at once, links are made that stay, and not for each of
them some that the next one splits."""

DIAL_SECONDS: Final = 1.0
"""How long a released node that others were just told to dial is not told of its neighbours. Own
choice: they have come by then, mostly, and it takes the links that there are."""

SLICE_NODES: Final = 32
"""Nodes of streams that are brought to their neighbours in one turn, and as many more as a single
stream has: each takes some 20 us, and 50 for every neighbour that is told. Own choice."""

UNHEARD_SECONDS: Final = 5.0
"""After this a node that does not know its last instruction has not got it, and is instructed once
more. Own choice: longer than any way takes, shorter than nodes repeat their statuses."""

_UNCOUNTED: Final = frozenset(one.name for one in GENERATIONS.values() if not one.counted)
"""Nodes that cannot tell which instructions they have heard."""


_DIALECT: Final = Dialect("tracker")


@dataclass(frozen=True, slots=True)
class _Form:
    """Perhaps time to tell nodes of their neighbours."""


@dataclass(frozen=True, slots=True)
class _Late:
    """Time to tell a node of its neighbours, if it does not know them yet."""

    key: str
    name: str


@dataclass(slots=True)
class _Node:
    """A node while its link is there.

    Attributes:
        kinds: of nodes that it can be linked to.
        route: leads to it.
        streams: the overlays that it is in, by stream key.
    """

    address: NodeAddress | ReleasedPeer
    kinds: tuple[str, ...]
    origin: Origin
    route: Route
    dialect: Dialect
    streams: dict[str, None] = field(default_factory=dict[str, None])

    def reached(self, kind: str) -> str:
        """Where nodes of a kind find it."""
        if isinstance(self.address, NodeAddress) and kind == OWN:
            return str(self.address._replace(url=""))
        return self.address.url


class TrackerActor(Worker):
    """The tracker of an overlay, at `tracker`.

    Args:
        router: the way to nodes.
        access: who may take part in what.
        degree: neighbours of each node.
        random: decides what is left to chance.
    """

    mailbox_messages_max = 16_384
    spare: ClassVar = {LinkLost: CONNECTIONS_MAX}
    essential = True

    def __init__(
        self, router: Router, access: Access, *, degree: int, random: Callable[[], Random]
    ) -> None:
        self._router = router
        self._access = access
        self._degree = degree
        self._random = random()
        self._own: Route = (local(ADDRESS),)
        self._nodes: dict[str, _Node] = {}
        self._overlays: dict[str, Graphs] = {}
        self._gathered: dict[str, dict[str, None]] = {}  # who has said something, by stream key
        self._forming: deque[tuple[str, dict[str, None]]] = deque()  # those whose time has come
        self._gathered_since = self._gathered_last = 0.0
        self.counters: Counter[str] = Counter()

    def stopped(self) -> None:
        """Look after nothing any more. Nodes repeat what they say, and are known again by that.

        Released ones do not: they are cut off, and say it when they come again.
        """
        for key in self._overlays:
            self._access.rights.unwatch(parse_stream_key(key)[0], self.address)
        for node in self._nodes.values():
            node.origin.unwatch(self.address)
            if isinstance(node.address, ReleasedPeer) and node.origin.link is not None:
                node.origin.link.close("the tracker begins anew")

    def handle(
        self, message: Delivery | LinkLost | RightsChanged | _Form | _Late, sender: Cell | None
    ) -> None:
        """Take what nodes say, and the ends of their links."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    self._take(origin, wire)
            case RightsChanged(key=stream_id):
                self._revoke(stream_id)
            case LinkLost(origin=origin):
                for name, node in list(self._nodes.items()):
                    if node.origin is origin:
                        self._leave(name)
            case _Form():
                self._form()
            case _Late(key=key, name=name):
                overlay = self._overlays.get(key)
                if overlay is None or key not in self._streams_of(name):
                    return
                if overlay.known.get(name) != overlay.names(name):
                    self._instruct(key, name)
            case _:
                assert_never(message)

    def _take(self, origin: Origin, wire: WireMessage) -> None:
        try:
            frame = decode(wire.payload)
            match frame.message:
                case StatusMessage(status=Status() as status):
                    self._status(origin, wire.return_route, frame, status)
                case FindStorageNodes():
                    self._find(origin, wire.return_route, frame, frame.message)
                case _:
                    raise CodecError("network.type", "nodes do not send this to a tracker")
        except CodecError as error:
            self.counters[error.code] += 1
            logger.info("bad_message", extra={"code": error.code, "peer": origin.principal[:22]})

    # Statuses --------------------------------------------------------------------------------

    def _status(self, origin: Origin, route: Route, frame: Frame, status: Status) -> None:
        node = self._node(origin, route, frame)
        name = node.address.name
        keys = {key: said for key, said in status.streams.items() if self._may(origin, key)}
        for key in [key for key in node.streams if key not in keys and not node.address.storage]:
            self._leave_stream(name, node, key)
        for key, said in keys.items():
            self._take_stream(name, node, key, said)

    def _node(self, origin: Origin, route: Route, frame: Frame) -> _Node:
        """The node that has sent a status; a new one where its link is new.

        Raises:
            CodecError: it claims to be another, or there are too many.
        """
        address = claim_of(origin) or parse_node_address(frame.source)
        known = self._nodes.get(address.name)
        if isinstance(address, ReleasedPeer):
            if known is not None and isinstance(known.address, NodeAddress):
                raise CodecError("network.source", "another node has this name")
        elif origin.principal not in (f"noise:{address.identity}", NODE_PRINCIPAL):
            raise CodecError("network.source", "a node names itself, and nobody else")
        if known is not None and known.origin is origin and known.address == address:
            known.route = route
            return known
        if known is not None:
            self._leave(address.name)
        if len(self._nodes) >= OVERLAY_NODES_MAX:
            raise CodecError("network.full", f"a tracker takes {OVERLAY_NODES_MAX:,} nodes")
        dialect = _DIALECT.answering(frame)
        origin.watch(self.address)
        kinds = _kinds(origin, address)
        node = self._nodes[address.name] = _Node(address, kinds, origin, route, dialect)
        logger.info("node_joined", extra={"node": address.name[:16]})
        if address.storage:
            for key, overlay in self._overlays.items():
                if self._may(origin, key):
                    self._put(address.name, node, key, overlay)
        return node

    def _take_stream(self, name: str, node: _Node, key: str, said: StreamStatus) -> None:
        overlay = self._overlays.get(key)
        if overlay is None:
            if len(self._overlays) >= OVERLAY_STREAMS_MAX:
                raise CodecError("network.full", "too many stream partitions for one tracker")
            overlay = self._overlays[key] = Graphs(partial(Topology, self._degree, self._random))
            self._access.rights.watch(parse_stream_key(key)[0], self.address)
            for other, its in list(self._nodes.items()):
                if its.address.storage and other != name and self._may(its.origin, key):
                    self._put(other, its, key, overlay)
        last = overlay.counters.get(name)
        counted = OWN in node.kinds or _UNCOUNTED.isdisjoint(node.kinds)
        if last is not None and counted and (said.counter or 0) < last:
            # Said before it had heard the last instruction, or it never has.
            now = self.system.timing.monotonic()
            if now - overlay.told_at.get(name, now) > UNHEARD_SECONDS:
                self._instruct(key, name)
            return
        overlay.counters[name] = max(last or 0, said.counter or 0)
        node.streams[key] = None
        neighbours = dict.fromkeys((*said.inbound_nodes, *said.outbound_nodes))
        overlay.update(name, node.kinds, list(neighbours), awaits=OWN not in node.kinds)
        self._gather(key, name)

    def _put(self, name: str, node: _Node, key: str, overlay: Graphs) -> None:
        """Put a storage node into an overlay that it has not asked for."""
        node.streams[key] = None
        overlay.counters.setdefault(name, 0)
        overlay.update(name, node.kinds, [other for _, other in overlay.neighbours(name)])
        self._gather(key, name)

    def _gather(self, key: str, name: str) -> None:
        """Form a node's links soon, together with those of others."""
        self._gathered_last = self.system.timing.monotonic()
        if not self._gathered:
            self._gathered_since = self._gathered_last
            if not self._forming:
                self.wake_after(QUIET_SECONDS, _Form())
        self._gathered.setdefault(key, {})[name] = None

    def _form(self) -> None:
        """Form the links of those that were gathered, some streams in each turn.

        Unless more may come soon.
        """
        if not self._forming:
            now = self.system.timing.monotonic()
            until = min(
                self._gathered_last + QUIET_SECONDS, self._gathered_since + GATHERED_SECONDS_MAX
            )
            if now < until:
                self.wake_after(until - now, _Form())
                return
            self._forming.extend(self._gathered.items())
            self._gathered = {}
        room, some = SLICE_NODES, list[tuple[str, dict[str, None]]]()
        while self._forming and room > 0:
            some.append(self._forming.popleft())
            room -= len(some[-1][1])
        if self._forming:
            self.send(self.address, _Form())
        elif self._gathered:
            self.wake_after(QUIET_SECONDS, _Form())
        for key, names in some:
            there = [name for name in names if key in self._streams_of(name)]
            together = {
                name: node.kinds for name in there if OWN in (node := self._nodes[name]).kinds
            }
            # Which end of a link is to dial follows, between released nodes, from who is told: one
            # is formed and told after the other.
            for name in there:
                if name not in together:
                    self._form_links(key, {name: self._nodes[name].kinds})
            if together:
                self._form_links(key, together)

    def _streams_of(self, name: str) -> Mapping[str, None]:
        node = self._nodes.get(name)
        return {} if node is None else node.streams

    def _form_links(self, key: str, nodes: Mapping[str, Iterable[str]]) -> None:
        """Form the links of nodes, and tell everybody whose links have changed."""
        overlay = self._overlays[key]
        for name in overlay.form(nodes):
            node = self._nodes.get(name)
            if node is None or (name not in nodes and self._awaits(node, name, overlay)):
                continue
            if self._is_dialled(node, name, overlay):
                self.wake_after(DIAL_SECONDS, _Late(key, name))
            else:
                self._instruct(key, name)

    def _instruct(self, key: str, name: str) -> None:
        """Tell a node of its neighbours."""
        node, overlay = self._nodes[name], self._overlays[key]
        now = overlay.told_at[name] = self.system.timing.monotonic()
        if OWN not in node.kinds:
            new = overlay.names(name) - overlay.known.get(name, frozenset())
            overlay.named_at |= dict.fromkeys(new, now)
        overlay.known[name] = overlay.names(name)
        counter = overlay.counters[name] = overlay.counters.get(name, 0) + 1
        addresses = tuple(
            self._nodes[other].reached(kind)
            for kind, other in overlay.neighbours(name)
            if other in self._nodes
        )
        self._tell(node, key, counter, addresses)

    def _tell(self, node: _Node, key: str, counter: int, addresses: tuple[str, ...]) -> None:
        stream_id, partition = parse_stream_key(key)
        instruction = Instruction(
            stream_id=stream_id,
            stream_partition=partition,
            node_addresses=addresses,
            counter=counter,
        )
        self._send(node.origin, node.route, node.dialect, instruction)
        self.counters["instructions"] += 1

    def _awaits(self, node: _Node, name: str, overlay: Graphs) -> bool:
        """Whether a node will be dialled by all who are new to it, and so need not be told.

        Released nodes dial whom they are told of. Where both ends of a link are told, they open two
        connections, and may lose both.
        """
        known, now = overlay.known.get(name, frozenset[str]()), overlay.names(name)
        if OWN in node.kinds or not known <= now:
            return False
        return all(OWN not in self._nodes[new].kinds for new in now - known if new in self._nodes)

    def _is_dialled(self, node: _Node, name: str, overlay: Graphs) -> bool:
        """Whether released nodes have just been told to dial this one.

        Told of them now it would dial them as well: where several come at once, say.
        """
        named_at = overlay.named_at.get(name)
        now = self.system.timing.monotonic()
        return OWN not in node.kinds and named_at is not None and now - named_at < DIAL_SECONDS

    # Ends ------------------------------------------------------------------------------------

    def _leave(self, name: str) -> None:
        node = self._nodes.pop(name)
        node.origin.unwatch(self.address)
        logger.info("node_left", extra={"node": name[:16]})
        for key in list(node.streams):
            self._leave_stream(name, node, key)

    def _leave_stream(self, name: str, node: _Node, key: str) -> None:
        node.streams.pop(key, None)
        overlay = self._overlays[key]
        overlay.leave(name)
        if not len(overlay):
            del self._overlays[key]
            self._access.rights.unwatch(parse_stream_key(key)[0], self.address)

    def _revoke(self, stream_id: Key | None) -> None:
        """Take nodes out of overlays that they may be in no longer, and tell all concerned at once.

        They hear of an instruction without neighbours, and their neighbours of one without them.
        """
        for key in list(self._overlays):
            if stream_id not in (None, parse_stream_key(key)[0]):
                continue
            for name, node in list(self._nodes.items()):
                if key not in node.streams or self._may(node.origin, key):
                    continue
                overlay = self._overlays[key]
                counter, neighbours = overlay.counters.get(name, 0), overlay.names(name)
                self._leave_stream(name, node, key)
                self._tell(node, key, counter + 1, ())
                for other in sorted(neighbours & self._nodes.keys()):
                    self._instruct(key, other)

    # Storage ---------------------------------------------------------------------------------

    def _find(self, origin: Origin, route: Route, frame: Frame, request: FindStorageNodes) -> None:
        key = stream_key(request.stream_id, request.stream_partition or 0)
        if not self._may(origin, key):
            raise CodecError("network.refused", "no such stream for this node")
        claim = claim_of(origin)
        kind = OWN if claim is None else claim.generation
        found = [
            node.reached(kind)
            for node in self._nodes.values()
            if node.address.storage and kind in node.kinds
        ]
        answer = StorageNodes(
            stream_id=request.stream_id,
            stream_partition=request.stream_partition,
            node_addresses=tuple(found),
        )
        dialect = _DIALECT.answering(frame)
        self._send(origin, route, dialect, answer, frame.request_id)

    def _may(self, origin: Origin, key: str) -> bool:
        try:
            stream_id, _ = parse_stream_key(key)
        except CodecError:
            return False
        return bool(verbs_of(self._access, origin, stream_id) & {"push", "subscribe"})

    def _send(
        self,
        origin: Origin,
        route: Route,
        dialect: Dialect,
        message: Message,
        request_id: str = "",
    ) -> None:
        payload = dialect.encode(message, request_id)
        self._router.route(origin, [WireMessage(route, self._own, payload)])


def _kinds(origin: Origin, address: NodeAddress | ReleasedPeer) -> tuple[str, ...]:
    """The kinds of nodes that a node can be linked to."""
    if isinstance(address, ReleasedPeer):
        return (address.generation,)
    if address.url and origin.principal == NODE_PRINCIPAL:
        return (OWN, *GENERATIONS)
    return (OWN,)
