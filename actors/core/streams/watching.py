"""Tells a link which streams there are of a pattern, and which come and go."""

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, assert_never

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.patterns import literal_prefix, matcher
from rillnode.actors.core.rights import RightsChanged, RightsGained
from rillnode.actors.core.streams.answering import Answering
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext
from rillnode.actors.core.streams.describe import stream_info
from rillnode.actors.core.streams.watches import Gone, Known, StreamWatch
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import NO_ENTRIES, ListStreams, LogExtent, StreamRecord
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FOLLOWED_MAX, NAME_BYTES_MAX
from rillnode.codecs.routing.routes import Route

logger = event_logger("rillnode.actors.core.streams.watching")

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not list streams."""


@dataclass(frozen=True, slots=True)
class _List:
    """Time to list what there is."""


Message = Known | Gone | Delivery | RightsChanged | RightsGained | _List


class StreamWatchActor(Answering):
    """A link's watch for streams of a pattern; it ends with the link, or on request.

    It lists them first, and then tells of each that is made, that has more partitions, or that its
    link may follow by now. Where they are too many it says so, and ends.
    """

    spare: ClassVar = {Known: STREAM_CHANGES_MAX, Gone: STREAM_CHANGES_MAX}
    prefix = b"WS_"
    called = "watch"
    anew = "watch anew"

    def __init__(
        self,
        context: StreamContext,
        origin: Origin,
        return_route: Route,
        request: native.WatchStreamsRequest,
    ) -> None:
        super().__init__(context, origin, return_route, request.request_id)
        self._pattern = request.pattern
        self._matches = matcher(request.pattern)
        self._told: dict[str, tuple[int, int]] = {}
        self._partitions = 0

    def started(self) -> None:
        """Take an address, hear of what comes from now on, and list what there is."""
        super().started()
        self._context.watches.add(StreamWatch(self.address, self._matches, self._told))
        self._context.access.rights.hope(self.address)
        self.send(self.address, _List())

    def handle(self, message: Message, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """List, and take news."""
        if self._ended:
            return None
        match message:
            case _List():
                return self._list()
            case Known(record=record):
                extents = [NO_ENTRIES] * record.partitions
                self._tell(list(self._new([(record, extents)])))
            case Gone(record=record):
                known = self._told.get(record.name)
                if known is not None and known[0] == record.id:
                    self._forget(record.name)
            case RightsChanged():
                for name in [name for name in self._told if not self._may_follow(name)]:
                    self._forget(name)
            case RightsGained(name=name):
                if name is None:
                    return self._list()
                if self._matches(name) and self._may_follow(name) and name not in self._told:
                    return self._look(name)
            case Delivery():
                self._requests(message)
            case _:
                assert_never(message)
        return None

    def stopped(self) -> None:
        """Give the address back; tell the watcher if nobody has."""
        super().stopped()
        self._context.watches.remove(self.address)
        self._context.access.rights.give_up(self.address)
        for name in list(self._told):
            self._forget(name)
        self._context.watches.links.drop(self._origin.account)

    def described(self, address: bytes) -> Described:
        """The watch, which its link and administrators may end."""
        return self._described(f"streams of {self._pattern}")

    def _stop(self) -> None:
        self._end("subscription.stopped", "This watch was stopped at its address")

    async def _list(self) -> None:
        """Tell of the streams that there are, page by page; others have their turns between."""
        page = ListStreams(prefix=literal_prefix(self._pattern), more=True)
        while page.more and not self._ended:
            after = page.records[-1].name if page.records else ""
            page = ListStreams(after=after, prefix=page.prefix)
            try:
                await read(self._context.store, page)
            except StoreError as error:
                logger.info("streams_not_listed", extra={"code": error.code})
                self.wake_after(RETRY_SECONDS, _List())
                return
            found = zip(page.records, page.extents, strict=True)
            self._tell(list(self._new(found)))
        self._tell((), listed=True)

    async def _look(self, name: str) -> None:
        """Tell of one stream, if it is there."""
        page = ListStreams(prefix=name, limit=1)  # it is before all that begin with its name
        try:
            await read(self._context.store, page)
        except StoreError:
            self.wake_after(RETRY_SECONDS, _List())
            return
        self._tell(list(self._new(zip(page.records, page.extents, strict=True))))

    def _may_follow(self, name: str) -> bool:
        return self._context.access.allows(self._origin.principal, "subscribe", name)

    def _forget(self, name: str) -> None:
        """Tell of a stream anew when it is there, or may be followed, again."""
        known = self._told.pop(name, None)
        if known is not None:
            self._partitions -= known[1]
            self._context.access.rights.unwatch(name, self.address)

    def _new(
        self, found: "Iterator[tuple[StreamRecord, list[LogExtent]]] | Sequence[Any]"
    ) -> Iterator[native.StreamInfo]:
        """Those of streams that the link may follow and was not told of as they are."""
        for record, extents in found:
            name, now = record.name, (record.id, record.partitions)
            if not self._may_follow(name) or not self._matches(name):
                self._forget(name)
            elif self._told.get(name) != now:
                self._forget(name)
                self._told[name] = now
                self._partitions += record.partitions
                self._context.access.rights.watch(name, self.address)
                yield stream_info(record, extents)

    def _tell(self, streams: Sequence[native.StreamInfo], *, listed: bool = False) -> None:
        if self._ended:
            return
        if self._partitions > FOLLOWED_MAX:
            text = (
                f"Streams of the pattern have more than {FOLLOWED_MAX:,} partitions together: "
                "follow a narrower one"
            )
            self._end("follow.limit", text)
        elif streams or listed:
            response = native.WatchStreamsResponse(self._id, list(streams), listed)
            self._reply(native.encode(response))


def check_pattern(pattern: str) -> None:
    """See that a pattern of streams can be one.

    Raises:
        RequestError: `follow.invalid`.
    """
    if not 0 < len(pattern.encode()) <= NAME_BYTES_MAX:
        text = f"A pattern of streams has 1 to {NAME_BYTES_MAX} bytes"
        raise RequestError("follow.invalid", text)
