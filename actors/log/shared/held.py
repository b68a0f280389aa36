"""Decides which streams of the log this node serves, and which views it never closes."""

import asyncio

from rillnode.actors.log import (
    Append,
    FindStream,
    ListIndexes,
    ListKeys,
    ListRecords,
    ListStreams,
    LoadIndex,
    Locate,
    OpenProducer,
    Operation,
    PutStream,
    Read,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    Trim,
)
from rillnode.actors.log.nodes import NODES
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.frames import PutListing
from rillnode.actors.log.shared.holding import Holding, elsewhere
from rillnode.actors.log.shared.placement import CATALOGUE
from rillnode.actors.log.shared.shards import Shards
from rillnode.codecs.errors import StoreError

NODES_MAX = 256
"""Nodes of which it is known what they serve."""


class Held:
    """The streams and views that one node holds, as its configuration says.

    Args:
        shards: the store's.

    Attributes:
        always: shards whose views are never closed.
    """

    def __init__(self, shards: Shards) -> None:
        rules = shards.options.serve
        self.always = {CATALOGUE}
        self._shards = shards
        # None: whatever is used, as nothing else is said.
        self._holding = Holding(rules) if rules else None
        # Names of streams that are never held, by id.
        self._never: dict[int, str] = {}

    async def open(self) -> None:
        """Learn what is held always, and never, and open the views of the first."""
        holding, shards = self._holding, self._shards
        if holding is None:
            return
        for number in range(shards.place.shards):
            if holding.of_shard(number):
                self.always.add(number)
                shards[number].ensure()
        page = ListStreams(more=holding.names_streams)
        while page.more:
            after = page.records[-1].name if page.records else ""
            page = ListStreams(after=after, names_only=True)
            try:
                await shards.ask(CATALOGUE, page)
            except StoreError:
                await asyncio.sleep(shards.options.retry_seconds)
                page = ListStreams(more=True)
            for record in page.records:
                self._learn(holding, record)

    def landed(self, frame: ApplyFrame) -> None:
        """A frame was carried out, of which nobody else has heard yet."""
        if self._holding is None:
            return
        for operation in frame.operations:
            if operation.error is None and isinstance(operation, PutListing | PutStream):
                record = operation.record
                if record is not None:
                    self._learn(self._holding, record)

    def _learn(self, holding: Holding, record: StreamRecord) -> None:
        number = self._shards.place.of_stream_id(record.id)
        holds = holding.of_stream(record.name, number)
        if holds:
            self.always.add(number)
            self._shards[number].ensure()
        elif holds is not None:
            self._never[record.id] = record.name

    def serves(self, operation: Operation, number: int) -> bool:
        """Whether this node may answer, or carry out, what lies in a shard."""
        if self._holding is None:
            return True
        name = self._named(operation)
        if name is None:
            return self._holding.of_shard(number) is not False
        return self._holding.of_stream(name, number) is not False

    async def refuse(self, operation: Operation, number: int) -> None:
        """Refuse what this node does not serve, naming the nodes that do.

        Raises:
            StoreError: `store.elsewhere`, or that the catalogue cannot be read.
        """
        told = ListRecords(prefix=NODES, limit=NODES_MAX)
        await self._shards.ask(CATALOGUE, told)
        raise elsewhere(self._named(operation), number, told.records)

    def _named(self, operation: Operation) -> str | None:
        """The stream that an operation is about, where that is known."""
        match operation:
            case PutStream(record=StreamRecord(name=name)) | RemoveStream(name=name):
                return name
            case FindStream(name=name, id=stream_id):
                return name or self._never.get(stream_id)
            case SaveIndex(key=key) | LoadIndex(key=key):
                return key.stream
            case ListIndexes(stream=name):
                return name or None
            case (
                Append(log=log)
                | OpenProducer(log=log)
                | Read(log=log)
                | Locate(log=log)
                | ListKeys(log=log)
                | Trim(log=log)
            ):
                return self._never.get(log >> 32)
            case _:
                return None
