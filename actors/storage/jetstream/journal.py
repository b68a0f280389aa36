"""The journal: one JetStream stream of all that is no entry, and the catalog it amounts to.

Each group of writes is one message, so it is there whole or not at all. It is published with the
last sequence that the catalog has applied: where another node has written since, nothing is
stored, the catalog catches up, and the group is planned anew. That is a compare-and-set over
everything in the journal.

Messages whose values were all replaced are of no use. When more than half of the journal is in
vain, the rows of its oldest messages that still count are written again at its end, and those
messages are purged.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from rillnode.actors.storage import RemoveStream, SaveIndex, StreamRecord
from rillnode.actors.storage.jetstream.catalog import Catalog, Row
from rillnode.actors.storage.jetstream.failures import (
    UnansweredError,
    WrongLastSequenceError,
    failure_of,
    fenced_error,
    too_large_error,
)
from rillnode.actors.storage.jetstream.frames import (
    JournalFrame,
    corrupt_error,
    decode,
    encode,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.jetstream.plan import JournalOperation, Plan, size_of_operation
from rillnode.actors.storage.jetstream.server import Message, Server
from rillnode.actors.storage.layout import Change, saved_index_key
from rillnode.codecs.errors import StoreError

_CLEANED_MESSAGES: Final = 1_000
"""Messages that one cleaning looks through; its result is one message again."""

_ASKED_ONE_BY_ONE: Final = 8
"""So few messages are there sooner than a consumer."""

_CHANGE_BYTES: Final = 32
"""What MessagePack and a key count for beside the value, roughly."""


class _Work:
    """What is to be written: an operation, or changes that other parts of the store make."""

    __slots__ = ("done", "size", "what")

    def __init__(self, what: JournalOperation | Sequence[Change]) -> None:
        self.what = what
        self.size = 0
        self.done: asyncio.Future[StreamRecord | None] = asyncio.Future()


class Journal:
    """Writes groups one after the other and keeps the catalog as they leave it.

    `written` is told the sequence of each message of this store's, `learning` and `learned` each
    message that was read, before and after the catalog has it.

    Attributes:
        catalog: what is committed.
        patience: how its answers are waited for.
    """

    def __init__(
        self,
        server: Server,
        gate: Gate,
        options: JetStreamOptions,
        token: Callable[[], bytes],
        *,
        written: Callable[[int], None] = lambda sequence: None,
        learning: Callable[[JournalFrame], None] = lambda frame: None,
        learned: Callable[[JournalFrame], None] = lambda frame: None,
    ) -> None:
        self._server = server
        self._options = options
        self._token = token
        self._written = written
        self._learning = learning
        self._learned = learned
        self._name = server.name_of("journal")
        self.patience = Patience(self._name, gate, self.refuse_waiting)
        self.catalog = Catalog(options.value_bytes_max)
        self._catching_up = asyncio.Lock()
        self._waiting: deque[_Work] = deque()
        self._worker: asyncio.Task[None] | None = None
        # Sizes of the messages that are not purged yet, the oldest first.
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes = 0

    @property
    def worker(self) -> asyncio.Task[None] | None:
        """The task that writes; None while nothing waits."""
        return self._worker

    async def open(self) -> None:
        """Create the journal, or read it, be it once the cluster has elected who is to answer.

        Raises:
            StoreError: the cluster refuses it, or holds something else.
            UnansweredError: no answer came.
        """
        deadline = asyncio.get_running_loop().time() + self._options.settle_seconds_max
        while True:
            try:
                await self._server.make_stream(self._name)
                await self.catch_up()
                return
            except UnansweredError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(self._options.repair_seconds_min)
            await self._server.connect()

    async def catch_up(self) -> None:
        """Apply what others have written.

        Raises:
            StoreError: the cluster has lost what it had confirmed.
            UnansweredError: no answer came.
        """
        async with self._catching_up:
            await self._catch_up()

    async def _catch_up(self) -> None:
        # Before the question: while it is answered, this store may write on.
        known = self.catalog.sequence
        end = await self._server.last_sequence(self._name) or 0
        if end < known:
            raise self._server.less(self._name)
        async for sequence, data in self._messages(self.catalog.sequence + 1, end):
            if sequence <= self.catalog.sequence:
                # Our own, acknowledged since: no news, and it may be out of date by now.
                continue
            frame = self._decode(data)
            self._learning(frame)
            self._apply(sequence, data, frame)
            self._learned(frame)

    async def _messages(self, first: int, last: int) -> AsyncGenerator[Message, None]:
        if last - first >= _ASKED_ONE_BY_ONE:
            async for message in self._server.scan(self._name, first, last):
                yield message
            return
        for sequence in range(first, last + 1):
            # What was purged meanwhile is written again behind.
            if (found := await self._server.get(self._name, sequence)) is not None:
                yield found

    def submit(
        self, what: JournalOperation | Sequence[Change]
    ) -> asyncio.Future[StreamRecord | None]:
        """Queue an operation or changes.

        The future is done when they are committed, with the record of the stream that an operation
        is about, or a StoreError: then nothing of it was written.
        """
        work = _Work(what)
        try:
            work.size = _size_of(what) if isinstance(what, Sequence) else size_of_operation(what)
            if work.size > self._server.room_bytes:
                raise too_large_error(self._server.room_bytes)
        except StoreError as error:
            work.done.set_exception(error)
            return work.done
        self._waiting.append(work)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return work.done

    async def write(self, changes: Sequence[Change]) -> None:
        """Write changes.

        Raises:
            StoreError: nothing of them was written.
        """
        await self.submit(changes)

    async def value(self, key: bytes) -> bytes | None:
        """A named value, out of the catalog or the message where it stands.

        Raises:
            StoreError: the message is damaged.
            UnansweredError: no answer came.
        """
        return (await self.versioned(key))[0]

    async def versioned(self, key: bytes) -> tuple[bytes | None, int]:
        """The same, and the version: the message's sequence, 0 where there is no value."""
        while (row := self.catalog.row(key)) is not None:
            if row.value is not None:
                return row.value, row.sequence
            found = await self._server.get(self._name, row.sequence)
            if found is None:
                # Purged meanwhile, after it was written again.
                if self.catalog.row(key) is row:
                    raise corrupt_error(f"the journal's message {row.sequence}")
                continue
            return dict(self._decode(found.data).changes)[key], row.sequence
        return None, 0

    def refuse_waiting(self, error: StoreError) -> None:
        """Answer what is not under way."""
        while self._waiting:
            self._waiting.popleft().done.set_exception(error)

    # The worker ------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    await self._commit(group)
                    await self._clean()
                except Exception as error:
                    _fail(group, failure_of(error, "write"))
        finally:
            self._worker = None

    def _next_group(self) -> list[_Work]:
        group = [self._waiting.popleft()]
        size, room = group[0].size, min(self._options.group_bytes_max, self._server.room_bytes)
        while (
            self._waiting
            and size + self._waiting[0].size <= room
            and not any(isinstance(one.what, RemoveStream) for one in (group[0], self._waiting[0]))
        ):
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    async def _commit(self, group: Sequence[_Work]) -> None:
        known = self.catalog.sequence
        while True:
            results, frame = self._plan(group)
            if frame is None or await self._published(frame):
                break
            await self.patience.surely(self.catch_up)
            self._fence(group, known)
        for work, result in results:
            work.done.set_result(result)

    def _plan(
        self, group: Sequence[_Work]
    ) -> tuple[list[tuple[_Work, StreamRecord | None]], JournalFrame | None]:
        plan = Plan(self.catalog)
        results: list[tuple[_Work, StreamRecord | None]] = []
        for work in group:
            if work.done.done():
                continue
            try:
                if isinstance(work.what, Sequence):
                    plan.change(work.what)
                    results.append((work, None))
                else:
                    results.append((work, plan.run(work.what)))
            except StoreError as error:
                work.done.set_exception(error)
        return results, plan.frame(self._token())

    async def _published(self, frame: JournalFrame) -> bool:
        """Commit a frame; False when another node has written first."""
        data = encode(frame)
        after = self.catalog.sequence
        try:
            sequence = await self.patience.commit(self._server, data, after=after)
        except WrongLastSequenceError:
            return False
        self._apply(sequence, data, frame)
        self._written(sequence)
        return True

    def _fence(self, group: Sequence[_Work], known: int) -> None:
        """Refuse positions that another node has saved meanwhile: this one's may be behind."""
        for work in group:
            if not isinstance(work.what, SaveIndex) or work.done.done():
                continue
            row = self.catalog.row(saved_index_key(work.what.key))
            if row is not None and row.sequence > known:
                work.done.set_exception(fenced_error("saved this position"))

    def _apply(self, sequence: int, data: bytes, frame: JournalFrame) -> None:
        if sequence <= self.catalog.sequence:
            # Our own, found by catching up before its acknowledgement came.
            return
        self.catalog.apply(sequence, frame)
        self._sizes.append((sequence, len(data)))
        self._bytes += len(data)

    def _decode(self, data: bytes) -> JournalFrame:
        return decode(JournalFrame, data, f"the stream {self._name}")

    # Cleaning --------------------------------------------------------------------------------

    async def _clean(self) -> None:
        """Write the oldest messages' live rows again and purge them, if much is in vain.

        What fails here is tried again after another group.
        """
        if self._bytes <= 2 * self.catalog.live_bytes + self._options.spare_bytes:
            return
        try:
            end, changes = await self._oldest()
            frame = JournalFrame(self._token(), [], changes)
            if changes and not await self._published(frame):
                await self.catch_up()
                return
            await self._server.purge(self._name, before=end)
        except (StoreError, UnansweredError):
            return
        while self._sizes and self._sizes[0][0] < end:
            self._bytes -= self._sizes.popleft()[1]

    async def _oldest(self) -> tuple[int, list[Change]]:
        """The rows that count of the oldest messages, and the sequence that these end before.

        The last message stays: it says where the journal ends.
        """
        first, last = self._sizes[0][0], min(self._sizes[0][0] + _CLEANED_MESSAGES, self._last) - 1
        changes: list[Change] = []
        size, room = 0, min(self._options.group_bytes_max, self._server.room_bytes)
        end = first
        async for sequence, data in self._server.scan(self._name, first, last):
            live = [
                (key, value)
                for key, value in dict(self._decode(data).changes).items()
                if value is not None and _stands_in(self.catalog.row(key), sequence)
            ]
            size += sum(len(value) + len(key) + _CHANGE_BYTES for key, value in live)
            if changes and size > room:
                break
            changes += live
            end = sequence + 1
        return end, changes

    @property
    def _last(self) -> int:
        return self._sizes[-1][0]


def _fail(group: Sequence[_Work], error: StoreError) -> None:
    for work in group:
        if not work.done.done():
            work.done.set_exception(error)


def _stands_in(row: Row | None, sequence: int) -> bool:
    return row is not None and row.sequence == sequence


def _size_of(changes: Sequence[Change]) -> int:
    """What changes count for in a message."""
    return sum(len(key) + len(value or b"") + _CHANGE_BYTES for key, value in changes)
