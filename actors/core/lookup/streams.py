"""Looks up streams and saved positions: what lies in the store, whether anybody is awake for it.

A stream's address is made of its name and partition, so nothing is kept for one that is idle. A
saved position has no actor at all, as a node may have millions: the index service answers for it,
and at its address.
"""

import asyncio
from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from rillnode.actors.core.lookup.found import Asker, Found, Wanted, blank, shown
from rillnode.actors.core.router import Resolve
from rillnode.actors.core.streams.context import (
    ADDRESS_PREFIX,
    StreamContext,
    parse_stream_address,
    stream_address,
)
from rillnode.actors.core.streams.index_service import ADDRESSES
from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import (
    FindStream,
    ListIndexes,
    ListStreams,
    LoadIndex,
    SavedIndexKey,
    StreamRecord,
)
from rillnode.actors.log.waiting import read
from rillnode.codecs.native import RouteInfo

INDEX_PREFIX: Final = b"IX_"

PAGE_ITEMS: Final = 100
"""Streams, or positions, that are read from the store and looked through in one turn."""

_SAFE: Final = "/.-:@"


class StreamSource:
    """The partitions of all streams, in the order of the streams' names."""

    kinds: frozenset[str] = frozenset(("stream",))

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    async def find(self, address: bytes, asker: Asker) -> Found | None:
        """The partition of an address; no actor is woken for it."""
        parsed = parse_stream_address(address) if address.startswith(ADDRESS_PREFIX) else None
        if parsed is None or not self._verbs(asker, parsed[0]):
            return None
        name, partition = parsed
        lookup = FindStream(name=name)
        await read(self._context.store, lookup)
        record = lookup.record
        if record is None or partition >= record.partitions:
            return None
        info = self._info(record, partition, asker)
        return Found(info, stop=partial(self._rest, address))

    async def page(self, after: bytes, asker: Asker, wanted: Wanted, room: int) -> list[RouteInfo]:
        """The next partitions."""
        name, first = parse_stream_address(after) or ("", -1)
        rows: list[RouteInfo] = []
        if name:
            lookup = FindStream(name=name)
            await read(self._context.store, lookup)
            if lookup.record is not None:
                self._add(rows, lookup.record, first + 1, asker, wanted, room)
        more = True
        while more and len(rows) < room:
            page = ListStreams(after=name, limit=PAGE_ITEMS)
            await read(self._context.store, page)
            for record in page.records:
                self._add(rows, record, 0, asker, wanted, room)
            more = page.more
            name = page.records[-1].name if page.records else name
            await asyncio.sleep(0)  # what a store has at hand it tells at once
        return rows

    def _add(
        self,
        rows: list[RouteInfo],
        record: StreamRecord,
        first: int,
        asker: Asker,
        wanted: Wanted,
        room: int,
    ) -> None:
        """Add what is wanted of a stream, as far as there is room."""
        if len(rows) < room and self._verbs(asker, record.name):
            for partition in range(first, record.partitions):
                info = self._info(record, partition, asker)
                if wanted(info):
                    rows.append(info)
                    if len(rows) == room:
                        return

    def _verbs(self, asker: Asker, name: str) -> bool:
        return asker.administers or bool(self._context.access.verbs(asker.principal, name))

    def _info(self, record: StreamRecord, partition: int, asker: Asker) -> RouteInfo:
        address = stream_address(record.name, partition)
        name = f"{record.name}/{partition}"
        info = blank(address, "stream", name, record.owner, record.created_at)
        info.stoppable = self._context.access.allows(asker.principal, "admin", record.name)
        return shown(info, self._context.router.lookup(address))

    def _rest(self, address: bytes) -> None:
        """End a partition's actor; what is under way has its outcome, the next message another."""
        router = self._context.router
        cell = router.lookup(address)
        if cell is not None:
            router.unregister(address)
            self._context.system.exit(cell)


class IndexSource:
    """All saved positions, in the order in which the store has them."""

    kinds: frozenset[str] = frozenset(("index",))

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    async def find(self, address: bytes, asker: Asker) -> Found | None:
        """The saved position of an address."""
        key = parse_index_address(address)
        if key is None or not self._may_pull(asker, key.stream):
            return None
        lookup = LoadIndex(key=key)
        await read(self._context.store, lookup)
        if lookup.index is None:
            return None
        kept = "it is a number in the store: `rillnode stream rm` removes it with its stream"
        return Found(self._info(key, lookup.index), kept=kept)

    async def page(self, after: bytes, asker: Asker, wanted: Wanted, room: int) -> list[RouteInfo]:
        """The next positions."""
        key = parse_index_address(after)
        rows: list[RouteInfo] = []
        while len(rows) < room:
            page = ListIndexes(after=key, limit=PAGE_ITEMS)
            await read(self._context.store, page)
            for key, position in page.indexes:
                if self._may_pull(asker, key.stream):
                    info = self._info(key, position)
                    if wanted(info) and len(rows) < room:
                        rows.append(info)
            if len(page.indexes) < page.limit:
                break
            await asyncio.sleep(0)
        return rows

    def _may_pull(self, asker: Asker, stream: str) -> bool:
        return asker.administers or self._context.access.allows(asker.principal, "pull", stream)

    def _info(self, key: SavedIndexKey, position: int) -> RouteInfo:
        name = f"{key.client_id} at {position} of {key.stream}/{key.partition}"
        info = blank(index_address(key), "index", name)
        info.parent = ADDRESSES[0]
        return shown(info, None)


def index_stand_in(service: Cell) -> Resolve:
    """Have the index service answer at the addresses of positions; it sees to who may ask."""
    return lambda address, _: None if parse_index_address(address) is None else service


def index_address(key: SavedIndexKey) -> bytes:
    """The address of a saved position: prefix, partition, client and stream, quoted as streams'."""
    client = quote(key.client_id, safe=_SAFE).replace("_", "%5F")
    return b"%s%d_%s_%s" % (
        INDEX_PREFIX, key.partition, client.encode(), quote(key.stream, safe=_SAFE).encode(),
    )  # fmt: skip


def parse_index_address(address: bytes) -> SavedIndexKey | None:
    """The key that an address was made of, or None where it was not."""
    if not address.startswith(INDEX_PREFIX) or not address.isascii():
        return None
    parts = address[len(INDEX_PREFIX) :].decode().split("_", 2)
    if len(parts) != 3 or not parts[0].isdigit() or len(parts[0]) > 10:
        return None
    try:
        client, stream = (unquote(part, errors="strict") for part in parts[1:])
    except UnicodeDecodeError:
        return None
    key = SavedIndexKey(stream, int(parts[0]), client)
    return key if index_address(key) == address else None
