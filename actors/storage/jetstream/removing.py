"""Removing streams: what waits behind a removal, and deleting what JetStream holds of its logs.

A removal is carried out once all that was submitted for its stream before is done. What comes for
the same stream waits behind it; all other streams go on.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field

from rillnode.actors.storage import (
    Append,
    PutStream,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
    logs_of,
)
from rillnode.actors.storage.jetstream.catalog import prefix_end
from rillnode.actors.storage.jetstream.failures import UnansweredError, failure_of
from rillnode.actors.storage.jetstream.frames import DROPPED_PREFIX, dropped_key
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.jetstream.stamps import Batch
from rillnode.actors.storage.layout import NUMBER, decode_record, stream_key
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")


Incoming = WriteOperation | tuple[int, Batch]
"""What is to be written: by this node, or to a log by another one."""


@dataclass(slots=True, eq=False)
class _Removal:
    operation: RemoveStream
    # Of the stream; 0 while that is not known.
    stream_id: int = 0
    behind: deque[Incoming] = field(default_factory=deque[Incoming])

    def concerns(self, one: Incoming) -> bool:
        """Whether something is about the same stream."""
        name = self.operation.name
        match one:
            case Append(log=log) | Trim(log=log) | (log, _):
                return log >> 32 == self.stream_id
            case PutStream(record=record):
                return record.name == name
            case SaveIndex(key=key):
                return key.stream == name
            case RemoveStream():
                return one.name == name
            case _:
                return False


class Removals:
    """Those under way.

    Args:
        journal: where streams are removed.
        gate: what it refuses is not removed.
        workers: tells what is at work on some logs.
        removed: a stream is no more.
        done: takes a removal that is complete, and what has waited for it.
    """

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        *,
        workers: Callable[[Iterable[int]], set[asyncio.Task[None]]],
        removed: Callable[[StreamRecord], None],
        done: Callable[[RemoveStream, Iterable[Incoming]], None],
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._workers = workers
        self._removed = removed
        self._done = done
        self._under_way: list[_Removal] = []

    def keep(self, one: Incoming) -> bool:
        """Whether something has to wait for a removal, and is kept here until then."""
        for removal in self._under_way:
            if removal.concerns(one):
                removal.behind.append(one)
                return True
        return False

    def take_kept(self) -> list[Incoming]:
        """All that is kept here, which is not any more then."""
        kept = [one for removal in self._under_way for one in removal.behind]
        for removal in self._under_way:
            removal.behind.clear()
        return kept

    def begin(self, operation: RemoveStream) -> Coroutine[None, None, None]:
        """Keep from now on what comes for a stream; returns what removes it."""
        known = self._record(operation.name)
        removal = _Removal(operation, 0 if known is None else known.id)
        self._under_way.append(removal)
        return self._remove(removal)

    async def _remove(self, removal: _Removal) -> None:
        """Remove a stream once all that was submitted for it before is done."""
        operation = removal.operation
        try:
            if self._record(operation.name) is None:
                # It may just be created: by what the journal was to write before this.
                await self._journal.write([])
            known = self._record(operation.name)
            if known is not None:
                removal.stream_id = known.id
                logs = logs_of(known.id, known.partitions)
                while workers := self._workers(logs):
                    await asyncio.wait(workers)
            if self._gate.refusal is not None:
                raise self._gate.refusal
            operation.record = await self._journal.submit(operation)
            if operation.record is not None:
                self._removed(operation.record)
        except Exception as error:
            operation.error = failure_of(error, "removal")
        self._under_way.remove(removal)
        self._done(operation, removal.behind)

    def _record(self, name: str) -> StreamRecord | None:
        stored = self._journal.catalog.value(stream_key(name))
        return None if stored is None else decode_record(stored)


async def drop_removed(server: Server, journal: Journal) -> None:
    """Delete the logs that the journal says are to be dropped; what fails, at the next time."""
    catalog = journal.catalog
    for key in list(catalog.keys(DROPPED_PREFIX, prefix_end(DROPPED_PREFIX))):
        (stream_id,) = NUMBER.unpack(key[len(DROPPED_PREFIX) :])
        (partitions,) = NUMBER.unpack(catalog.value(key) or bytes(NUMBER.size))
        try:
            for log in logs_of(stream_id, partitions):
                await server.drop(server.name_of_log(log))
            await journal.write([(dropped_key(stream_id), None)])
        except (StoreError, UnansweredError) as error:
            logger.warning("store_stream_not_dropped", extra={"reason": str(error)})
