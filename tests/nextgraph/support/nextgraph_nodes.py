"""A second node of the store that a NextGraph broker of the tests works with."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from core_support import Core, with_core
from nextgraph_broker import INNER, TOPIC_A, Broker
from rillnode.actors.log import (
    AnyWatch,
    Append,
    FindStream,
    PutRecord,
    Watch,
    WatchValues,
    log_id,
)
from rillnode.actors.nextgraph.history import commit_key
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.entries import EntryKind, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.codecs.nextgraph.commits import commit_header
from rillnode.codecs.nextgraph.events import EVENT, Event

STREAM = topic_stream(INNER.id, TOPIC_A.public_key)


class OtherNode:
    """A second node of the same store, and what the memory store of the tests is then.

    Attributes:
        first: events of which it appends one, the last, before each of ours.
        refused: so many of ours were refused for it.
        watches: who waits for the log to grow.
        values: who waits for named values to change.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._submit = core.store.submit
        self.first: list[tuple[Event, bytes]] = []
        self.refused = 0
        self.watches: list[Watch] = []
        self.values: list[WatchValues] = []
        # Entries of the topic's log, and those up to the last one of this node.
        self._count = self._end = 0
        core.share_store()
        for name in ("watch", "submit"):
            setattr(core.store, name, getattr(self, name))

    def watch(self, operation: AnyWatch) -> None:
        if isinstance(operation, Watch):
            self.watches = [one for one in self.watches if one.log != operation.log]
            self.watches.append(operation)
        elif isinstance(operation, WatchValues):
            self.values.append(operation)

    def submit(self, operation: Any) -> None:
        """Append before ours what is to be, and refuse ours if it does not follow from that."""
        if isinstance(operation, Append) and operation.records:
            if self.first:
                event, commit = self.first.pop()
                self._append(operation.log, EVENT.encode(event), _keys(event, commit))
            if operation.seen is not None and operation.seen < self._end:
                operation.error = StoreError("store.fenced", "another node was first")
                self.refused += 1
                # A store that refuses has read what is new, and shows it.
                asyncio.get_running_loop().call_soon(self._core.complete, operation)
                return
            self._count += 1
        self._submit(operation)

    def _append(self, log: int, data: bytes, keys: Sequence[tuple[bytes, int]] = ()) -> None:
        append = Append(
            reply_to=self._core.streams,
            log=log,
            kind=EntryKind.NEXTGRAPH,
            count=1,
            body=pack_body([data]),
            keys=keys,
        )
        self._submit(append)
        self._count += 1
        self._end = self._count

    async def publish(self, *events: tuple[Event, bytes] | None, tells: bool = True) -> int:
        """Append events, or what is none, and tell who watches; return the log's next index."""
        find = await self.found()
        assert find.record is not None
        log = log_id(find.record.id, 0)
        for one in events:
            if one is None:
                self._append(log, b"garbage")
            else:
                self._append(log, EVENT.encode(one[0]), _keys(*one))
        await self._core.settle()
        end = (await self.found()).extents[0].next_index
        waiting, self.watches = self.watches, []
        for operation in waiting:
            if tells and operation.log == log and operation.index < end:
                operation.next_index = end
                self._core.complete(operation)
            else:
                self.watches.append(operation)
        await self._core.settle()
        return end

    async def put(self, *records: tuple[str, bytes | None]) -> None:
        """Change named values, and tell who watches."""
        for name, value in records:
            self._submit(PutRecord(reply_to=self._core.streams, key=name, value=value))
        await self._core.settle()
        waiting, self.values = self.values, []
        for operation in waiting:
            operation.changed = [one for one in records if one[0].startswith(operation.prefix)]
            if operation.changed:
                self._core.complete(operation)
            else:
                self.values.append(operation)
        await self._core.settle()

    async def found(self) -> FindStream:
        """The topic's stream as it is stored."""
        find = FindStream(reply_to=self._core.streams, name=STREAM)
        self._core.store.look(find)
        return find


def _keys(event: Event, commit: bytes) -> list[tuple[bytes, int]]:
    return [(commit_key(commit, commit_header(event.content.blocks).acks), 0)]


def with_nodes(test: Callable[[Broker, OtherNode], Awaitable[None]]) -> None:
    async def main(core: Core) -> None:
        other = OtherNode(core)
        await test(Broker(core), other)

    with_core(main)
