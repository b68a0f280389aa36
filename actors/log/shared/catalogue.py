"""The catalogue: all streams as shard 0 lists them, and lists over all shards.

What became of a stream is decided in its own shard; the node that has done it tells the catalogue.
Where it does not live to do that, the others do, a while later.
"""

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rillnode.actors.log import (
    FindStream,
    ListIndexes,
    ListStreams,
    LogExtent,
    Operation,
    PutStream,
    ReadExtents,
    RemoveStream,
    StreamRecord,
    logs_of,
)
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.frames import PutListing, SharedOperation
from rillnode.actors.log.shared.held import Held
from rillnode.actors.log.shared.placement import CATALOGUE
from rillnode.actors.log.shared.shards import Shards
from rillnode.actors.log.shared.watching import Watching
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

LISTING_SECONDS: Final = 5.0
"""A stream that another node has made or removed must be in the catalogue by then."""


class Catalogue:
    """Keeps the catalogue as the shards are, and lists.

    Args:
        shards: the store's.
        held: what this node holds of them.
        watching: who is told of streams.
    """

    def __init__(self, shards: Shards, held: Held, watching: Watching) -> None:
        self._shards = shards
        self._held = held
        self._watching = watching
        # Views whose removed streams are to be looked for, with the names that were compared.
        self._to_sweep: dict[int, set[str]] = {}
        self._is_sweeping = False

    # What became of streams ------------------------------------------------------------------

    def completed(
        self, shard: int, operations: Sequence[SharedOperation], sequence: int
    ) -> list[Operation]:
        """Tell the catalogue of what this node has done to streams; return what is complete."""
        done: list[Operation] = []
        for operation in operations:
            match operation:
                case PutListing(token=original):
                    if original is not None:
                        done.append(original)
                case PutStream() | RemoveStream() if (
                    shard != CATALOGUE and (listing := _listing(operation, sequence)) is not None
                ):
                    listing.token = operation
                    self._shards[CATALOGUE].submit(listing)
                case _:
                    done.append(operation)
        return done

    def refused(self, listing: PutListing, *, is_open: bool) -> Operation | None:
        """Bring the catalogue up to it later, if it is open; return what it tells of, as done."""
        original: Operation | None = listing.token
        listing.token = None
        if is_open:
            self._shards.begin(self._list_later(replace(listing)))
        return original

    def landed(self, shard: int, frame: ApplyFrame, *, is_news: bool) -> None:
        """Another node's frame was carried out."""
        for operation in frame.operations:
            if shard == CATALOGUE:
                if is_news and isinstance(operation, PutListing) and operation.is_newest:
                    self._listed(operation)
            elif isinstance(operation, PutStream | RemoveStream):
                listing = _listing(operation, frame.sequence)
                if listing is not None:
                    self._shards.begin(self._list_later(listing))

    def _listed(self, listing: PutListing) -> None:
        """Another node has done something to a stream; a view that saw it in its shard has told."""
        shards, record = self._shards, listing.record or listing.was
        if record is None:
            return
        number = shards.place.of_stream_id(record.id)
        if not shards.is_ready(number):
            self._tell(record, listing.record)
        elif listing.generation <= shards[number].news_after:
            self._shards.begin(self._tell_of_view(number, record, listing.record))

    def _tell(self, was: StreamRecord, now: StreamRecord | None) -> None:
        """Tell of a stream, and of which has its name now."""
        if now is None or now.id != was.id:
            self._watching.removed(was)
        if now is not None:
            self._watching.changed(now)

    async def _tell_of_view(
        self, number: int, record: StreamRecord, listed: StreamRecord | None
    ) -> None:
        """Tell of a stream as it is in its shard: the listing may be of long before that.

        Who follows it would leave it for one that is no more, and read it again from its beginning.
        """
        found = FindStream(name=record.name)
        try:
            await self._shards.ask(number, found)
        except StoreError:
            self._tell(record, listed)
        else:
            self._tell(record, found.record)

    async def compare(self, number: int) -> None:
        """Put into the catalogue what became of a view's streams, where nobody has lived to.

        The view is gone through for streams that were made, and the catalogue for removed ones:
        once for all views that are opened meanwhile.
        """
        views: dict[int, set[str]] = {number: set()}
        await asyncio.sleep(LISTING_SECONDS)
        try:
            await self._compare(number, views)
            self._to_sweep |= views
            if not self._is_sweeping:
                self._is_sweeping = True
                await asyncio.sleep(LISTING_SECONDS)
                views, self._to_sweep, self._is_sweeping = self._to_sweep, {}, False
                await self._compare(CATALOGUE, views)
        except StoreError as error:
            extra = {"shards": list(views), "code": error.code}
            logger.warning("listings_not_compared", extra=extra)

    async def _compare(self, source: int, views: Mapping[int, set[str]]) -> None:
        """Compare what one view has of streams with what another has.

        Args:
            source: the view that is gone through: the catalogue, or that of the streams' shard.
            views: the shards whose streams are compared, with the names that were.
        """
        shards, page = self._shards, ListStreams(more=True)
        while page.more and any(shards[number].is_ready for number in views):
            after = page.records[-1].name if page.records else ""
            page = ListStreams(after=after, names_only=True)
            generations = {number: shards[number].follows.applied for number in views}
            await shards.ask(source, page)
            for record in page.records:
                name, number = record.name, shards.place.of_stream_id(record.id)
                if number not in views or name in views[number] or not shards[number].is_ready:
                    continue
                views[number].add(name)
                found = FindStream(name=name)
                await shards.ask(number if source == CATALOGUE else CATALOGUE, found)
                if found.record != record:
                    is_so = found.record if source == CATALOGUE else record
                    listing = PutListing(name=name, record=is_so, generation=generations[number])
                    shards[CATALOGUE].submit(listing)

    async def _list_later(self, listing: PutListing) -> None:
        """Put into the catalogue what who has done it may not have come to put there."""
        await asyncio.sleep(LISTING_SECONDS)
        listed = FindStream(name=listing.name)
        try:
            await self._shards.ask(CATALOGUE, listed)
        except StoreError:
            return  # whoever else has seen it looks, too
        if listed.record != listing.record:
            # Where it is older than what is listed, it is passed over there.
            self._shards[CATALOGUE].submit(listing)

    # Lists -----------------------------------------------------------------------------------

    async def list_streams(self, operation: ListStreams) -> None:
        """A page of the catalogue, with the extents that the streams' own views know."""
        after, more = operation.after, True
        while more and not operation.full:
            room = operation.limit - len(operation.records)
            page = ListStreams(
                after=after, prefix=operation.prefix, limit=room, names_only=operation.names_only
            )
            await self._shards.ask(CATALOGUE, page)
            more = page.more
            if page.records:
                after = page.records[-1].name
            if operation.names_only:
                # No view but the catalogue's is needed for it.
                for record in page.records:
                    operation.take(record, [])
            else:
                await self._take(page.records, operation)
        operation.more = more

    async def _take(self, records: Sequence[StreamRecord], operation: ListStreams) -> None:
        """Put streams into a page of those that this node serves, or has at hand."""
        shards, asked = self._shards, dict[int, ReadExtents]()
        for record in records:
            number = shards.place.of_stream_id(record.id)
            if self._held.serves(FindStream(name=record.name), number) and (
                shards.is_ready(number) or not operation.at_hand
            ):
                logs = asked.setdefault(number, ReadExtents(logs=[])).logs
                logs += logs_of(record.id, record.partitions)
        await asyncio.gather(*(shards.ask(number, one) for number, one in asked.items()))
        known = dict[int, LogExtent]()
        for one in asked.values():
            known.update(zip(one.logs, one.extents, strict=True))
        for record in records:
            logs = logs_of(record.id, record.partitions)
            if logs[0] in known:
                operation.take(record, [known[log] for log in logs])

    async def list_indexes(self, operation: ListIndexes) -> None:
        """The positions of all streams, in order."""
        shards = self._shards
        pages = {
            number: ListIndexes(after=operation.after, limit=operation.limit)
            for number in range(shards.place.shards)
            if self._held.serves(operation, number)
        }
        await asyncio.gather(*(shards.ask(number, page) for number, page in pages.items()))
        merged = heapq.merge(*(page.indexes for page in pages.values()), key=lambda one: one[0])
        operation.indexes = [one for _, one in zip(range(operation.limit), merged, strict=False)]


def _listing(operation: PutStream | RemoveStream, generation: int) -> PutListing | None:
    """What the catalogue is told of a stream; None: nothing was done to it."""
    record = operation.record
    if operation.error is not None or record is None:
        return None
    kept = record if isinstance(operation, PutStream) else None
    return PutListing(name=record.name, record=kept, generation=generation)
