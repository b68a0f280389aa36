"""Producers: gather what is pushed to one partition in one turn of the loop into one append."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.entries import pack_body, split_items
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.limits import ENTRY_BYTES_MAX, SEQUENCE_MAX
from rillnode.node.client.appends import Block, Partition, Settle
from rillnode.node.client.session import Session

WINDOW_BYTES: Final = 8_388_608
"""Bytes that `push_all` leaves unconfirmed."""

Data = bytes | bytearray | memoryview
"""What an entry may be given as; what its owner may change is copied at once."""


UNNUMBERED: Final = -1
"""In the place of a number: it gets the partition's next one when it is sent."""


@dataclass(slots=True, eq=False)
class _Run:
    """Entries that wait to be sent, and whose numbers follow that of the first one."""

    sequence: int
    items: list[bytes]
    futures: list["asyncio.Future[int]"]


class Producer:
    """Pushes to one partition, in order.

    Args:
        session: asks the node.
        address: of the partition.
        partition: None: the one that the session's own id appends to.
    """

    def __init__(
        self, session: Session, address: bytes, partition: Partition | None = None
    ) -> None:
        self._appends = session.appends
        self._partition = partition or session.appends.partition(address)
        self._loop = asyncio.get_running_loop()
        self._sequence = UNNUMBERED
        self._items: list[bytes] = []
        self._futures: list[asyncio.Future[int]] = []
        # What had no room, or had to be parted from these.
        self._before: deque[_Run] = deque()

    def push(self, data: Data) -> asyncio.Future[int]:
        """Push one entry; the future gets its index once it is durable.

        Raises:
            TypeError: `data` is no bytes.
            RequestError: the entry is too large.
        """
        data = _as_bytes(data)
        _check(data)
        return self._add(data)

    async def push_all(self, items: Iterable[bytes]) -> int:
        """Push entries in whole blocks; return the index after the last, once all are durable.

        Nothing is read ahead of what the window takes, so `items` may be endless.

        Raises:
            RequestError: an entry is too large, or the node refused one; earlier ones may be
                stored.
        """
        window: deque[tuple[int, asyncio.Future[int]]] = deque()
        unconfirmed = next_index = 0
        for block in split_items(items):
            _check(max(block, key=len))
            while self._partition.room <= 0:
                freed: asyncio.Future[None] = self._loop.create_future()
                self._partition.waiting.append(partial(_free, freed))
                await freed
            size = sum(map(len, block))
            window.append((size, self._append_block(block)))
            unconfirmed += size
            while unconfirmed > WINDOW_BYTES:
                size, confirm = window.popleft()
                next_index = await confirm
                unconfirmed -= size
        while window:
            next_index = await window.popleft()[1]
        return next_index

    def _add(self, data: bytes) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        if not self._items and not self._before:
            self._gather()
        self._items.append(data)
        self._futures.append(future)
        return future

    def _part(self) -> None:
        """Have what was pushed so far not sent in one block with what comes."""
        if self._items:
            self._before.append(_Run(self._sequence, self._items, self._futures))
            self._items, self._futures = [], []

    def _gather(self) -> None:
        """Have what waits sent at the end of this turn, or when there is room for it."""
        if self._partition.room > 0:
            self._appends.gather(self._flush)
        else:
            self._partition.waiting.append(self._gather)

    def _flush(self) -> list[Block]:
        """As much of what waits as there is room for."""
        room, items, before = self._partition.room, self._items, self._before
        if len(items) == 1 and room > 0 and not before:  # as mostly, for who pushes to many streams
            settle = _settle_each(self._futures)
            self._items, self._futures = [], []
            return [self._block(items, settle, self._sequence)]
        self._part()
        blocks: list[Block] = []
        while before and len(blocks) < room:
            self._cut(before[0], blocks, room)
            if not before[0].items:
                before.popleft()
        if before:
            self._partition.waiting.append(self._gather)
        return blocks

    def _cut(self, run: _Run, blocks: list[Block], room: int) -> None:
        """Make blocks of a run, until they are so many; what is left stays there."""
        done = 0
        for items in split_items(run.items):
            settle = _settle_each(run.futures[done : done + len(items)])
            blocks.append(self._block(items, settle, run.sequence))
            done += len(items)
            if run.sequence != UNNUMBERED:
                run.sequence += len(items)
            if len(blocks) == room:
                break
        del run.items[:done], run.futures[:done]

    def _append_block(self, items: Sequence[bytes]) -> asyncio.Future[int]:
        """Append one block; the future gets the index after its last entry."""
        future: asyncio.Future[int] = self._loop.create_future()

        def settle(result: int | RillnodeError) -> None:
            if future.done():
                return
            if isinstance(result, RillnodeError):
                future.set_exception(result)
            else:
                future.set_result(result + len(items))

        self._appends.send([self._block(items, settle, UNNUMBERED)])
        return future

    def _block(self, items: Sequence[bytes], settle: Settle, sequence: int) -> Block:
        partition = self._partition
        if sequence == UNNUMBERED:
            sequence = partition.sequence
            partition.sequence = sequence + len(items)
        return Block(partition, len(items), pack_body(items), settle, sequence)


class NamedProducer:
    """A producer that has a name, and numbers its entries itself; made by `Stream.producer`.

    Its numbers go on where it stopped, also in another process: what it has pushed and does not
    know to be stored is pushed again with the same number, and not stored again. Whoever opens the
    name later fences it: what it pushes then is refused with `producer.fenced`.

    Attributes:
        name: its name.
        partition: where it pushes to.
        last_sequence: the highest number of what is stored; None: there is nothing.
        last_index: the index that this has; None: it is not known.
    """

    def __init__(
        self,
        session: Session,
        address: bytes,
        partition: int,
        name: str,
        opened: native.ProducerResponse,
    ) -> None:
        self.name = name
        self.partition = partition
        self.last_sequence: int | None = opened.next_sequence - 1 if opened.next_sequence else None
        self.last_index: int | None = opened.last_index
        self._next = opened.next_sequence
        to = Partition(address, 0, name.encode(), opened.epoch)
        self._producer = _Numbering(session, address, to, self._stored)

    async def push(self, data: Data, *, sequence: int | None = None) -> int:
        """Push one entry; return its index once it is durable.

        Args:
            data: bytes, bytearray or memoryview.
            sequence: its number, from 0 on; None: the one after the highest that was pushed.
                Numbers go up, and may leave gaps. One that this object has pushed before is
                answered with the index that it has, whatever the data.

        Raises:
            TypeError: `data` is no bytes, or `sequence` no int.
            RequestError: `producer.stale`, the number was used before the producer was opened, or
                lies in a gap; `index` of the error's context is the one that it has, where that
                is known. `producer.fenced`, the name was opened once more since.
                `producer.sequence`, it is no number. Or as of `Stream.push`.
        """
        return await self.push_nowait(data, sequence=sequence)

    def push_nowait(self, data: Data, *, sequence: int | None = None) -> asyncio.Future[int]:
        """Push one entry without waiting; the future gets its index once it is durable.

        Arguments and errors are those of `push`.
        """
        number = _checked_number(self._next if sequence is None else sequence)
        future = self._producer.push_numbered(data, number, is_new=number >= self._next)
        self._next = max(self._next, number + 1)
        return future

    def _stored(self, number: int, index: int) -> None:
        if self.last_sequence is None or number > self.last_sequence:
            self.last_sequence, self.last_index = number, index


class _Numbering(Producer):
    """A producer of entries that come with their numbers.

    Args:
        session, address, partition: as those of `Producer`.
        stored: told of the last number of what is stored, and its index.
    """

    def __init__(
        self,
        session: Session,
        address: bytes,
        partition: Partition,
        stored: Callable[[int, int], None],
    ) -> None:
        super().__init__(session, address, partition)
        self._stored = stored

    def push_numbered(self, data: Data, number: int, *, is_new: bool) -> asyncio.Future[int]:
        """Push one entry; one that comes again is alone in its block, as a refusal is of all."""
        data = _as_bytes(data)
        _check(data)
        if not is_new or number != self._sequence + len(self._items):
            self._part()
        if not self._items:
            self._sequence = number
        future = self._add(data)
        if not is_new:
            self._part()
        return future

    def _block(self, items: Sequence[bytes], settle: Settle, sequence: int) -> Block:
        def settled(result: int | RillnodeError) -> None:
            if isinstance(result, int):
                self._stored(sequence + len(items) - 1, result + len(items) - 1)
            settle(result)

        return super()._block(items, settled, sequence)


def _free(freed: "asyncio.Future[None]") -> None:
    if not freed.done():
        freed.set_result(None)


def _as_bytes(data: Data) -> bytes:
    """The same, or a copy of what its owner may change before it is sent."""
    if not isinstance(data, Data):
        text = f"an entry is bytes, not {type(data).__name__}: encode it"
        raise TypeError(text)
    return bytes(data)


def _check(data: bytes) -> None:
    if len(data) > ENTRY_BYTES_MAX:
        raise RequestError(
            "entries.size", f"an entry holds at most {ENTRY_BYTES_MAX} bytes, not {len(data)}"
        )


def _checked_number(sequence: int) -> int:
    if not isinstance(sequence, int):
        text = f"a producer's number is an int, not {type(sequence).__name__}"
        raise TypeError(text)
    if not 0 <= sequence < SEQUENCE_MAX:
        text = f"a producer's number is from 0 to {SEQUENCE_MAX - 1}, not {sequence}"
        raise RequestError("producer.sequence", text)
    return sequence


def _settle_each(futures: Sequence[asyncio.Future[int]]) -> Settle:
    def settle(result: int | RillnodeError) -> None:
        if isinstance(result, RillnodeError):
            for future in futures:
                if not future.done():
                    future.set_exception(result)
            return
        for index, future in enumerate(futures, result):
            if not future.done():
                future.set_result(index)

    return settle
