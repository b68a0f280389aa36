"""Looks up work queues: what lies in the store, whether or not an actor is awake for it."""

import asyncio
from functools import partial
from typing import Final

from rillnode.actors.core.lookup.found import Asker, Found, Wanted, blank, shown
from rillnode.actors.core.queues.names import (
    listed_record,
    parse_queue_address,
    queue_address,
)
from rillnode.actors.core.queues.service import listed_queues
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.log import FindStream, GetRecord
from rillnode.actors.log.waiting import read
from rillnode.codecs.native import RouteInfo

_KIND: Final = "queue"


class QueueSource:
    """The work queues of all streams, in the order in which they are listed."""

    kinds: frozenset[str] = frozenset((_KIND,))

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    async def find(self, address: bytes, asker: Asker) -> Found | None:
        """The queue of an address; no actor is woken for it."""
        parsed = parse_queue_address(address)
        if parsed is None or not self._may_pull(asker, parsed[0]):
            return None
        stream = FindStream(name=parsed[0])
        listed = GetRecord(key=listed_record(*parsed))
        await read(self._context.store, stream)
        await read(self._context.store, listed)
        record = stream.record
        if record is None or listed.value != b"%d" % record.id:
            return None
        info = self._info(*parsed, record.owner, asker)
        return Found(info, stop=partial(self._rest, address))

    async def page(self, after: bytes, asker: Asker, wanted: Wanted, room: int) -> list[RouteInfo]:
        """The next queues."""
        rows: list[RouteInfo] = []
        place: tuple[str, str] | None = parse_queue_address(after) or ("", "")
        while place is not None and len(rows) < room:
            found, place = await listed_queues(self._context, "", place)
            for stream, queue, owner in found:
                if self._may_pull(asker, stream):
                    info = self._info(stream, queue, owner, asker)
                    if wanted(info) and len(rows) < room:
                        rows.append(info)
            await asyncio.sleep(0)
        return rows

    def _may_pull(self, asker: Asker, stream: str) -> bool:
        return asker.administers or self._context.access.allows(asker.principal, "pull", stream)

    def _info(self, stream: str, queue: str, owner: str, asker: Asker) -> RouteInfo:
        address = queue_address(stream, queue)
        info = blank(address, _KIND, f"{queue} of {stream}", owner)
        info.stoppable = self._context.access.allows(asker.principal, "admin", stream)
        return shown(info, self._context.router.lookup(address))

    def _rest(self, address: bytes) -> None:
        """End a queue's actor; its workers ask anew, and what they have they keep."""
        cell = self._context.router.lookup(address)
        if cell is not None:
            self._context.system.exit(cell)
