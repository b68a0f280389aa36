"""The records of streams: looked up and changed by one at a time, for each name.

Who wants something of a stream waits until those before have what they want. Those who wait while
the store is asked about a name share its answer: a thousand clients that open one stream at once
cost one look, and where the store is away they need not wait for it one after the other.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from rillnode.actors.core.orders import Orders
from rillnode.actors.core.streams.context import StreamContext, StreamRemoved, tell_removed
from rillnode.actors.log import (
    FindStream,
    LogExtent,
    PutStream,
    RemoveStream,
    StreamRecord,
    Trim,
    WriteOperation,
    log_id,
)
from rillnode.actors.log.waiting import read, write
from rillnode.codecs.errors import RequestError, RillnodeError, StoreError

Changed = Callable[[StreamRecord | StreamRemoved], None]
"""Told of every stream that is looked at, as it is then, and of each that is removed."""

Wanted = Callable[[StreamRecord | None], StreamRecord | None]
"""What a stream's record is to be, out of what it is; None: there is no stream, or shall be none.

It raises a RequestError to refuse, and is called again where another node was first.
"""


Step = FindStream | PutStream | RemoveStream
"""What brings a stream's record to what is wanted."""


class Found(NamedTuple):
    """A stream as it is: None where there is none, and the extents of its partitions."""

    record: StreamRecord | None
    extents: Sequence[LogExtent] = ()


@dataclass(slots=True)
class _Name:
    """What those share who ask for one name.

    Attributes:
        asking: how many there are.
        asked: the number of the last.
        known: what the store has told last; None: it is not true any more.
        told: the number of the last for whom that is no older than the question.
    """

    asking: int = 0
    asked: int = 0
    known: Found | StoreError | None = None
    told: int = 0


class Records:
    """The records of all streams of a node, for the one actor that changes them.

    Attributes:
        doubtful: streams whose removal has failed, by name: they may be gone all the same.
    """

    def __init__(self, context: StreamContext, changed: Changed) -> None:
        self.context = context
        self.changed = changed
        self.names: dict[str, _Name] = {}
        self.orders = Orders()
        self.doubtful: dict[str, StreamRecord] = {}

    def of(self, name: str) -> "Named":
        """A stream's record, within an `async with`; see `Named`."""
        return Named(self, name)

    async def change_all(
        self, wanted: Sequence[tuple["Named", Wanted]]
    ) -> list[Found | RillnodeError]:
        """Bring several streams to what is wanted of each, step by step together.

        Returns:
            For each how it is then, or why it could not be brought there; see `Named.change`.
        """
        outcomes: dict[int, Found | RillnodeError] = {}
        left = {number: named.steps(what) for number, (named, what) in enumerate(wanted)}
        while left:
            finds: list[FindStream] = []
            writes: list[PutStream | RemoveStream] = []
            for number, steps in tuple(left.items()):
                try:
                    step = next(steps)
                except StopIteration as done:
                    outcomes[number] = done.value
                except RillnodeError as error:
                    outcomes[number] = error
                else:
                    if isinstance(step, FindStream):
                        finds.append(step)
                    else:
                        writes.append(step)
                    continue
                del left[number]
            with suppress(StoreError):  # each has its own
                if finds:
                    await read(self.context.store, *finds)
            with suppress(StoreError):
                if writes:
                    await write(self.context.store, *writes, done=self.written)
        return [outcomes[number] for number in range(len(wanted))]

    def written(self, operation: WriteOperation) -> None:
        """What follows from a write, whether or not somebody still waits for it."""
        match operation:
            case PutStream(error=None, record=record):
                self.changed(record)
            case PutStream(token=True, record=record):
                self.context.quotas.not_created(record.owner, record.name)
            case RemoveStream(error=None, record=StreamRecord() as record):
                self.doubtful.pop(record.name, None)
                self._removed(record)
            case RemoveStream(error=StoreError(code=code), token=record) if code != "store.unknown":
                self.doubtful[record.name] = record
            case Trim(error=None, token=owner, log=log, extent=extent):
                self.context.quotas.keeps(owner, log, extent)
            case _:
                pass

    def found(self, name: str, record: StreamRecord | None) -> None:
        """A stream was looked for: what was there before may have been removed."""
        before = self.doubtful.get(name)
        if before is not None and (record is None or record.id != before.id):
            del self.doubtful[name]
            self._removed(before)

    def _removed(self, record: StreamRecord) -> None:
        self.context.quotas.removed(record)
        self.changed(tell_removed(self.context, record))


class Named:
    """One who asks for a name; nobody else changes its record within an `async with` of this.

    Turns are had in the order of asking. What follows from a write does so although nobody waits
    for it any more.
    """

    __slots__ = ("_name", "_number", "_records", "_shared")

    def __init__(self, records: Records, name: str) -> None:
        self._records = records
        self._name = name
        shared = records.names.get(name)
        if shared is None:
            shared = records.names[name] = _Name()
        shared.asking += 1
        shared.asked += 1
        self._shared = shared
        self._number = shared.asked

    async def __aenter__(self) -> "Named":
        """Wait for one's turn."""
        try:
            await self._records.orders.enter(self._name)
        except BaseException:
            self._gone()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self._records.orders.leave(self._name)
        self._gone()

    def _gone(self) -> None:
        shared = self._shared
        shared.asking -= 1
        if not shared.asking:
            del self._records.names[self._name]

    async def change(self, wanted: Wanted) -> Found:
        """Bring the stream to what is wanted; that is durable then.

        Raises:
            RequestError: `quota.streams`, or what `wanted` raises.
            StoreError: it could not be read, or stored.
        """
        (outcome,) = await self._records.change_all([(self, wanted)])
        if isinstance(outcome, RillnodeError):
            raise outcome
        return outcome

    def steps(self, wanted: Wanted) -> Generator[Step, None, Found]:
        """Operations that bring it there, each complete before the next is asked for; see above."""
        context, shared = self._records.context, self._shared
        another_was_first = False
        while True:
            found = self._known()
            if found is None:
                shared.known, shared.told = None, shared.asked
                find = FindStream(name=self._name)
                yield find
                if find.error is not None:
                    shared.known = find.error
                    raise find.error
                self._records.found(self._name, find.record)
                found = shared.known = Found(find.record, find.extents)
            if another_was_first and found.record is not None:
                context.quotas.found(found.record, found.extents)
            record = wanted(found.record)
            if record == found.record:
                if record is not None:
                    self._records.changed(record)
                return found
            is_new = found.record is None
            operation: PutStream | RemoveStream
            if record is None:
                operation = RemoveStream(token=found.record, name=self._name)
            elif is_new and not context.quotas.admit_stream(record.owner, self._name):
                text = "You own as many streams as your quota allows: remove one"
                raise RequestError("quota.streams", text)
            else:
                operation = PutStream(token=is_new, record=record)
            shared.known = None
            yield operation
            error = operation.error
            if error is not None:
                if error.code != "store.exists":
                    shared.known, shared.told = error, shared.asked
                    raise error
                # What is asked for is asked of the other's stream.
                another_was_first = True
                continue
            if record is None:
                return Found(None)
            if is_new:
                return Found(operation.record, [LogExtent()] * record.partitions)
            another_was_first, wanted = False, _as_it_is

    async def look(self) -> None:
        """See what has become of the stream.

        Raises:
            StoreError: it could not be read.
        """
        await self.change(_as_it_is)

    async def trim(self, record: StreamRecord, partition: int, before: int) -> int:
        """Drop entries of a partition; return the index of the first that is left.

        Raises:
            StoreError: that could not be done.
        """
        self._shared.known = None
        trim = Trim(token=record.owner, log=log_id(record.id, partition), before=before)
        await write(self._records.context.store, trim, done=self._records.written)
        self._records.context.followers.trimmed(trim.log, trim.extent.first_index)
        return trim.extent.first_index

    def _known(self) -> Found | None:
        """What others have learnt since this was asked for; None: the store is to be asked.

        Raises:
            StoreError: they have learnt that it cannot answer.
        """
        known = self._shared.known
        if known is None or self._shared.told < self._number:
            return None
        if isinstance(known, StoreError):
            # Another for each: one exception that several raise gathers what all of them went
            # through.
            raise StoreError(known.code, known.text, retryable=known.retryable, **known.context)
        return known


def _as_it_is(record: StreamRecord | None) -> StreamRecord | None:
    return record
