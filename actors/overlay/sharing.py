"""Shares messages: from a neighbour or the local log, to neighbours and the log."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from rillnode.actors.core.delivery import Origin
from rillnode.actors.log import StreamRecord
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.dialect import Dialect, broadcast_of
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.keeping import Keeper, Records
from rillnode.actors.overlay.linking import Neighbour, Neighbourhood
from rillnode.actors.overlay.rendering import CHAIN, is_carried
from rillnode.actors.streamr.admission import check_message, check_rules
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.control_messages import BroadcastMessage, UnicastMessage
from rillnode.codecs.streamr.ordering import GapFound, GapSkipped, Ordered, OrderingEvent
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = event_logger("rillnode.actors.overlay.sharing")

TEXTS_KEPT: Final = 4_096
"""Texts of the latest messages known by their digest: a copy is found without reading it."""

_DIGEST_BYTES: Final = 16


class Sharing:
    """The messages of one stream partition.

    Attributes:
        gaps: what is missing and to be asked for; whoever asks takes it away.
    """

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        neighbourhood: Neighbourhood,
        intake: Intake,
        keeper: Keeper,
    ) -> None:
        self._context = context
        self._record = record
        self._partition = partition
        self._neighbourhood = neighbourhood
        self._intake = intake
        self._keeper = keeper
        self._texts: OrderedDict[bytes, None] = OrderedDict()
        self._outbox: list[bytes] = []
        self.gaps: list[GapFound] = []

    def update(self, record: StreamRecord) -> None:
        """Take over what the stream's record says now."""
        self._record = record

    def is_copy(self, text: bytes) -> bool:
        """Whether exactly this control message has come lately; it has from now on."""
        digest = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        if digest in self._texts:
            self._context.counters["copies"] += 1
            return True
        self._texts[digest] = None
        if len(self._texts) > TEXTS_KEPT:
            self._texts.popitem(last=False)
        return False

    def received(self, wrapped: BroadcastMessage | UnicastMessage, origin: Origin) -> None:
        """Take a message of another node: it goes on if it is fresh, and is kept in its order."""
        message, counters = wrapped.message, self._context.counters
        counters["copies"] += 1
        if self._is_own(message):
            return  # from the log, where it stands, and is announced in its turn
        try:
            self._check(message)
            fresh = self._intake.is_fresh(message)
        except RequestError as error:
            counters["refused"] += 1
            logger.info("refused", extra={"code": error.code, "reason": error.text})
            return
        except CodecError as error:
            counters[error.code] += 1
            fresh = False
        if fresh:
            self._outbox.append(broadcast_of(message, wrapped.message_text))
        elif isinstance(wrapped, BroadcastMessage):
            return
        now = self._context.streams.clock.monotonic()
        self._take(self._intake.add(message, now), message, wrapped.message_text, origin)

    def published(self, messages: Iterable[tuple[StreamMessage, bytes | None]]) -> None:
        """Take what local clients have made durable; it goes on unless it has been here."""
        now = self._context.streams.clock.monotonic()
        for message, text in messages:
            self._take(self._intake.begin(message, now), None, None, None)
            try:
                fresh = self._intake.is_fresh(message)
            except CodecError as error:
                self._context.counters[error.code] += 1
                continue
            if fresh:
                self._outbox.append(broadcast_of(message, text))
                self._keeper.took(message)
                events = self._intake.add(message, now)
                rest = [
                    event
                    for event in events
                    if not (isinstance(event, Ordered) and event.message is message)
                ]
                self._take(rest, message, None, None)

    def records(self) -> Records:
        """The last numbers of chains that local clients have published on, to be kept."""
        return self._keeper.records()

    def poll(self) -> None:
        """Do what time brings."""
        events = self._intake.poll(self._context.streams.clock.monotonic())
        self._take(events, None, None, None)

    def flush(self, source: Origin | None) -> Sequence[Neighbour]:
        """Send what goes on to all neighbours but the source, and append what is to be kept.

        Returns those that have too much to take already, and were left out.
        """
        self._keeper.flush()
        if not self._outbox:
            return ()
        texts, self._outbox = self._outbox, []
        left_out: list[Neighbour] = []
        dialect: Dialect | None = None
        encoded: list[bytes] = []
        sent = size = 0
        for one in self._neighbourhood.linked.values():
            origin = one.origin
            if origin is source:
                continue
            if origin.congested:
                left_out.append(one)
                continue
            if one.dialect != dialect:  # they mostly are the same
                dialect = one.dialect
                encoded = dialect.encode_broadcasts(texts)
                size = sum(map(len, encoded))
            room = origin.room(self._context.streams.store)
            if room is not None:
                room.post(size)
            self._neighbourhood.send(one.route, encoded)
            sent += len(encoded)
        self._context.counters["sent"] += sent
        return left_out

    def _is_own(self, message: StreamMessage) -> bool:
        """Whether this node carries it, for an entry of the log that there is now."""
        name = message.id
        return (
            name.publisher_id == self._context.settings.identity
            and name.chain_id == CHAIN
            and name.timestamp == self._record.created_at
        )

    def _check(self, message: StreamMessage) -> None:
        """Check what another node says.

        Raises:
            RequestError: it is not to be taken.
        """
        name = message.id
        if (name.stream_id, name.partition) != (self._record.name, self._partition):
            raise RequestError("INVALID_REQUEST", "it is of another stream partition")
        check_rules(message, self._record)
        if is_carried(message):
            return
        check_message(message, self._context.streams.clock.now_ms())

    def _take(
        self,
        events: Sequence[OrderingEvent],
        message: StreamMessage | None,
        text: bytes | None,
        origin: Origin | None,
    ) -> None:
        for event in events:
            match event:
                case Ordered(message=ordered):
                    exact = text if ordered is message else None
                    try:
                        self._keeper.keep(ordered, exact, origin)
                    except CodecError as error:
                        self._context.counters[error.code] += 1
                case GapFound():
                    self.gaps.append(event)
                case GapSkipped():
                    self._context.counters["gaps_skipped"] += 1
                    logger.warning(
                        "gap_skipped",
                        extra={"stream": self._record.name, "publisher": event.publisher_id[:64]},
                    )
