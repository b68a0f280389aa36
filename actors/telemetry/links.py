"""Links and peers on a node with a tracer: trace contexts ride along from node to node.

They do so on rillnode's own links only, in the field that Ockam's wire messages have for them since
version 2. Elsewhere nothing is added to what is said, and nothing believed: what comes from there
begins a trace of its own.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.links.connection import ConnectionActor, PeerContext
from rillnode.actors.core.links.dialling import Opened, PeerActor, PeerSettings, PeerStatus
from rillnode.actors.engine.system import Cell
from rillnode.actors.ports import Link, Tracer
from rillnode.actors.telemetry.messages import TracedMessage, contexts_of, span_of
from rillnode.actors.telemetry.store import counts
from rillnode.codecs.routing.routes import WireMessage
from rillnode.codecs.routing.trace_context import ADDED_BYTES, context_of, with_context
from rillnode.codecs.routing.wire import WireCodec


class Forwarding:
    """The parts that connections and peers of one node share to trace forwarding.

    Attributes:
        peers: names of the configured peers that links have been opened to, by their connections.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.peers: dict[Cell, str] = {}
        self._tracer = tracer

    def begin(self, delivery: Delivery, peer: str) -> Delivery:
        """A batch for a peer, with a span that lasts until it is written to a link, or lost."""
        parents = contexts_of(delivery.messages)
        span = self._tracer.begin("forward", f"peer/{peer}", parents=parents)
        messages = [TracedMessage.of(message, "", span) for message in delivery.messages]
        return replace(delivery, messages=messages)


class TracedConnection(ConnectionActor):
    """A connection that hands trace contexts on, and ends the span of what it has sent on."""

    stands_for = ConnectionActor

    def __init__(
        self,
        forwarding: Forwarding,
        context: PeerContext,
        link: Link,
        prefix: bytes,
        strict: bool,
    ) -> None:
        super().__init__(context, link, prefix, strict)
        self._forwarding = forwarding
        self._carries = link.info.transport == "noise"
        if self._carries:
            self._wire = _TracedWire(self._wire)

    def stopped(self) -> None:
        """Give the address back, and the peer's name with it."""
        self._forwarding.peers.pop(self.address, None)
        super().stopped()

    def _trace(self, message: WireMessage) -> WireMessage:
        traced = super()._trace(message)
        if isinstance(message, TracedMessage):
            return TracedMessage.of(traced, message.context)
        return traced

    def _send(self, delivery: Delivery) -> None:
        span = span_of(delivery)
        if span is None and delivery.origin is not self._origin:  # else it is an answer
            # Who has the way to a worker of the peer's node sends along it, past the peer's name.
            peer = self._forwarding.peers.get(self.address)
            if peer is not None:
                delivery = self._forwarding.begin(delivery, peer)
                span = span_of(delivery)
        begin = len(self._outgoing)
        super()._send(delivery)
        if span is None:
            return
        sent = self._outgoing[begin:]
        if self._carries and self._outgoing:
            room = self._origin.message_bytes_max - ADDED_BYTES
            carrying = [
                with_context(frame, span.context) if len(frame) <= room else frame for frame in sent
            ]
            self._outgoing[begin:] = carrying
            self._outgoing_bytes += sum(map(len, carrying)) - sum(map(len, sent))
        span.end(counts(len(sent), sum(map(len, sent))))


class _TracedWire:
    """Another codec, whose messages keep the trace contexts that they came with."""

    def __init__(self, wire: WireCodec) -> None:
        self._wire = wire
        self.encode_header = wire.encode_header
        self.encode_with_header = wire.encode_with_header
        self.encode = wire.encode

    def decode(self, frames: Iterable[bytes]) -> Iterator[WireMessage]:
        """Decode frames."""
        kept = list(frames)
        for frame, message in zip(kept, self._wire.decode(kept), strict=False):
            context = context_of(frame)
            yield message if context is None else TracedMessage.of(message, context)


class TracedPeer(PeerActor):
    """A configured peer, whose batches have spans."""

    stands_for = PeerActor

    def __init__(
        self,
        forwarding: Forwarding,
        context: PeerContext,
        settings: PeerSettings,
        status: PeerStatus,
    ) -> None:
        super().__init__(context, settings, status)
        self._forwarding = forwarding

    def _take(self, delivery: Delivery) -> None:
        super()._take(self._forwarding.begin(delivery, self._settings.name))

    def _opened(self, opened: Opened) -> None:
        super()._opened(opened)
        if opened.connection is self._connection:
            self._forwarding.peers[opened.connection] = self._settings.name
