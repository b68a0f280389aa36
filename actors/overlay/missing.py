"""Fetches missed messages from neighbours and storage nodes, and gives them to those that ask.

A gap in a chain is asked of one node after the other, first neighbours, then storage nodes. What
was missed while a link was gone is told in both directions as soon as there is one again.
"""

from collections.abc import Sequence
from functools import partial

from thespian.actors import ActorAddress

from rillnode.actors.core.delivery import Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StreamRecord
from rillnode.actors.overlay.announcing import LogReader
from rillnode.actors.overlay.answering import Answer, Push
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.dialect import Dialect
from rillnode.actors.overlay.limits import OVERLAY_RESENDS_MAX
from rillnode.actors.overlay.linking import Neighbour, Neighbourhood
from rillnode.actors.overlay.resending import Last, Range, Receiver, ResendingActor, Since
from rillnode.actors.streamr.requests import LAST
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.streamr.control_messages import (
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
)
from rillnode.codecs.streamr.limits import STREAMR_RESEND_MESSAGES_MAX
from rillnode.codecs.streamr.node_address import AnyAddress
from rillnode.codecs.streamr.ordering import GapFound
from rillnode.codecs.streamr.stream_message import MessageRef


class Missing:
    """The resends of one stream partition, asked for and answered.

    Args:
        context: the node's parts.
        record: the stream.
        partition: the partition.
        links: the neighbours.
        reader: knows which own entries there are.
        owner: the actor whose children answer.
    """

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        links: Neighbourhood,
        reader: LogReader,
        owner: Cell,
    ) -> None:
        self._context = context
        self._record = record
        self._partition = partition
        self._links = links
        self._reader = reader
        self._owner = owner
        self._storage: Sequence[AnyAddress] = ()
        self._asked = 0
        self._resends: dict[ActorAddress, None] = {}

    def close(self) -> None:
        """End all answers."""
        for cell in tuple(self._resends):
            self._context.streams.system.exit(cell)

    def ended(self, cell: ActorAddress) -> None:
        """An answer is over, or has failed."""
        self._resends.pop(cell, None)

    def everything_since(self, since_ms: int) -> ResendFromRequest:
        """The request for all that has come to a node since then."""
        return ResendFromRequest(
            stream_id=self._record.name,
            partition=self._partition,
            from_ref=MessageRef(since_ms, 0),
            request_id="missed",
        )

    def ask_for(self, gap: GapFound) -> None:
        """Ask for a gap: another node each time, neighbours before storage nodes."""
        request = ResendRangeRequest(
            stream_id=self._record.name,
            partition=self._partition,
            from_ref=MessageRef(*gap.first),
            to_ref=MessageRef(*gap.last),
            publisher_id=gap.publisher_id,
            chain_id=gap.chain_id,
            request_id="gap",
        )
        self._context.counters["gaps"] += 1
        neighbours = list(self._links.linked.values())
        count = len(neighbours) + len(self._storage)
        if not count:
            return
        nth = self._asked % count
        self._asked += 1
        if nth < len(neighbours):
            self._links.tell(neighbours[nth], request)
        else:
            self._links.ask_storage(self._storage[nth - len(neighbours)], request)

    def storage_found(self, nodes: Sequence[AnyAddress], since_ms: int | None) -> None:
        """Remember who keeps the stream, and ask one of them for what was missed, if anything."""
        own = self._context.settings.identity
        self._storage = [node for node in nodes if node.identity != own]
        if since_ms is not None:
            for node in self._storage[:1]:
                if node.identity not in self._links.linked:
                    self._links.ask_storage(node, self.everything_since(since_ms))

    def push(self, one: Neighbour, since_ms: int) -> None:
        """Send a neighbour all that has come here since then."""
        send = partial(self._links.send, one.route)
        self._spawn(Since(since_ms), Push(one.origin, one.dialect, send))

    def answer(
        self,
        origin: Origin,
        route: Route,
        dialect: Dialect,
        request: ResendFromRequest | ResendRangeRequest | ResendLastRequest,
    ) -> None:
        """Answer a node that has missed something; refused when too many are answered already."""
        answer = Answer(request, origin, dialect, partial(self._links.send, route))
        if len(self._resends) >= OVERLAY_RESENDS_MAX:
            answer.refuse("RESEND_FAILED", "Too many resends at one time")
            return
        asked: Since | Last | Range
        match request:
            case ResendLastRequest(number_last=count):
                asked = Last(min(count, STREAMR_RESEND_MESSAGES_MAX))
            case ResendFromRequest(publisher_id=None):
                asked = Since(request.from_ref.timestamp)
            case _:
                first = (request.from_ref.timestamp, request.from_ref.sequence or 0)
                last = request.to_ref if isinstance(request, ResendRangeRequest) else LAST
                until = (last.timestamp, last.sequence)
                asked = Range(request.publisher_id, request.chain_id, first, until)
        self._spawn(asked, answer)

    def _spawn(self, asked: Since | Last | Range, receiver: Receiver) -> None:
        factory = partial(
            ResendingActor,
            self._context,
            self._record,
            self._partition,
            self._reader,
            asked,
            receiver,
        )
        cell = self._context.streams.system.spawn(factory, parent=self._owner)
        self._resends[cell] = None
