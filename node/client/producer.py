"""Producers: gather what is pushed to one partition in one turn of the loop into one append."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Final

from rillnode.actors.core.streams.context import parse_stream_address
from rillnode.codecs import arguments, native
from rillnode.codecs.entries import NewEntry, Run, fits_block, pack_body, split_entries, split_items
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.keyed import Headers, Key, encode_headers, encode_key
from rillnode.codecs.limits import ENTRY_BYTES_MAX, SEQUENCE_MAX
from rillnode.node.client.appends import Appends, Block, Partition, Settle
from rillnode.node.client.session import Session

_WINDOW_ENTRIES: Final = 10_000
WINDOW_BYTES: Final = 8_388_608
"""Bytes that `push_all` leaves unconfirmed."""

Data = bytes | bytearray | memoryview
"""What an entry may be given as; what its owner may change is copied at once."""

Note = Callable[[Sequence["asyncio.Future[int]"], RillnodeError], None]
"""Takes futures that have failed."""

UNNUMBERED: Final = -1
"""In the place of a number: it gets the partition's next one when it is sent."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Entries that wait to be sent, and whose numbers follow that of the first one.

    Attributes:
        keyed: those of them with a key or headers, by place.
        unheard: takes those that have failed.
    """

    sequence: int
    items: list[bytes]
    keyed: dict[int, NewEntry]
    futures: list["asyncio.Future[int]"]
    unheard: Note

    def __call__(self, result: int | RillnodeError) -> None:
        """All were sent in one block, and have this outcome (`Settle`)."""
        settle_each(self.futures, self.unheard, result)

    def drop(self, count: int) -> None:
        """The first ones are sent."""
        del self.items[:count], self.futures[:count]
        self.keyed = {place - count: entry for place, entry in self.keyed.items() if place >= count}
        if self.sequence != UNNUMBERED:
            self.sequence += count


class Producer:
    """Pushes to one partition, in order.

    Args:
        session: asks the node.
        address: of the partition.
        partition: None: the one that the session's own id appends to.
    """

    # An application may have as many as streams, of which most wait for nothing.
    __slots__ = ("_appends", "_before", "_loop", "_partition", "_waiting")

    def __init__(
        self, session: Session, address: bytes, partition: Partition | None = None
    ) -> None:
        self._appends = session.appends
        self._partition = partition or session.appends.partition(address)
        self._loop = asyncio.get_running_loop()
        # What was pushed in this turn, or since there was no room.
        self._waiting: _Waiting | None = None
        # What had no room, or had to be parted from that; None: there was no such thing yet.
        self._before: deque[_Waiting] | None = None

    def push(
        self, data: Data, keyed: NewEntry | None = None, sequence: int = UNNUMBERED
    ) -> asyncio.Future[int]:
        """Push one entry; the future gets its index once it is durable.

        Args:
            data: the entry's.
            keyed: the entry, where it has a key or headers.
            sequence: its number, the one after that of what waits already.

        Raises:
            ArgumentError: `data` is no bytes.
            RequestError: the entry is too large.
        """
        data = _as_bytes(data)
        _check(data)
        future: asyncio.Future[int] = self._loop.create_future()
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = _Waiting(sequence, [], {}, [], self._note)
            if not self._before:
                self._gather()
        if keyed is not None:
            waiting.keyed[len(waiting.items)] = keyed
        waiting.items.append(data)
        waiting.futures.append(future)
        return future

    async def push_all(self, items: Iterable[bytes]) -> int:
        """Push entries in whole blocks; return the index after the last, once all are durable.

        Nothing is read ahead of what the window takes, so `items` may be endless.

        Raises:
            RequestError: an entry is too large, or the node refused one; earlier ones may be
                stored.
        """
        window = _Window()
        for block in split_items(arguments.several("items", items)):
            _check(max(block, key=len))
            await self.has_room()
            size = sum(map(len, block))
            try:
                body = pack_body(block)
            except TypeError:
                list(map(_as_bytes, block))  # says which of them is no data
                raise
            await window.add(0, size, self._append(len(block), body, 0))
        return (await window.settled()).get(0, 0)

    async def has_room(self) -> None:
        """Wait until a block more may be under way to the partition."""
        while self._partition.room <= 0:
            freed: asyncio.Future[None] = self._loop.create_future()
            self._partition.when_free(partial(_free, freed))
            await freed

    def append(self, run: Run) -> asyncio.Future[int]:
        """Append one block, for which there is room; the future gets the index after its end."""
        return self._append(len(run.entries), *run.pack())

    def _part(self) -> deque[_Waiting]:
        """Have what was pushed so far not sent in one block with what comes; return all of it."""
        before = self._before
        if before is None:
            before = self._before = deque()
        if self._waiting is not None:
            before.append(self._waiting)
            self._waiting = None
        return before

    def _note(self, futures: Sequence[asyncio.Future[int]], error: RillnodeError) -> None:
        """These have failed."""
        note_unheard(self._appends, self._partition, futures, error)

    def _gather(self) -> None:
        """Have what waits sent at the end of this turn, or when there is room for it."""
        if self._partition.room > 0:
            self._appends.gather(self._flush)
        else:
            self._partition.when_free(self._gather)

    def _flush(self) -> list[Block]:
        """As much of what waits as there is room for."""
        room, waiting = self._partition.room, self._waiting
        if room > 0 and not self._before and waiting is not None and not waiting.keyed:
            items = waiting.items
            if fits_block(items):  # as mostly
                self._waiting = None
                return [self._block(len(items), pack_body(items), waiting, 0, waiting.sequence)]
        before = self._part()
        blocks: list[Block] = []
        while before and len(blocks) < room:
            self._cut(before[0], blocks, room)
            if not before[0].items:
                before.popleft()
        if before:
            self._partition.when_free(self._gather)
        return blocks

    def _cut(self, waiting: _Waiting, blocks: list[Block], room: int) -> None:
        """Make blocks of what waits, until they are so many; what is left stays there."""
        done = 0
        for count, body, flags in _packed(waiting):
            settle = partial(settle_each, waiting.futures[done : done + count], self._note)
            sequence = waiting.sequence
            if sequence != UNNUMBERED:
                sequence += done
            blocks.append(self._block(count, body, settle, flags, sequence))
            done += count
            if len(blocks) == room:
                break
        waiting.drop(done)

    def _append(self, count: int, body: bytes, flags: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()

        def settle(result: int | RillnodeError) -> None:
            if future.done():
                return
            if isinstance(result, RillnodeError):
                future.set_exception(result)
            else:
                future.set_result(result + count)

        self._appends.send([self._block(count, body, settle, flags, UNNUMBERED)])
        return future

    def _block(self, count: int, body: bytes, settle: Settle, flags: int, sequence: int) -> Block:
        partition = self._partition
        if sequence == UNNUMBERED:
            sequence = partition.sequence
            partition.sequence = sequence + count
        return Block.to(partition, count, body, settle, sequence, flags)


class NamedProducer:
    """A producer that has a name, and numbers its entries itself; made by `Stream.producer`.

    What is pushed while others are under way is stored only behind them: when one of them is
    refused, so is what was pushed since. So no entry up to `last_sequence` is missing that was
    not given up: who goes on behind it leaves nothing out.

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
        self._producer = _Numbering(session, address, to, opened.next_sequence, self._stored)

    async def push(
        self,
        data: Data,
        *,
        sequence: int | None = None,
        key: Key | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Push one entry; return its index once it is durable.

        Args:
            data: bytes, bytearray or memoryview.
            sequence: its number, from 0 on; None: the one after the highest that was pushed.
                Numbers go up, and may leave gaps. One that this object has pushed before is
                answered with the index that it has, whatever the data.
            key: as of `Stream.push`; it does not decide the partition.
            headers: likewise.

        Raises:
            ArgumentError: something is of another type.
            ProducerStale: the number was used before the producer was opened, or lies in a gap;
                `index` is the one that it has, where that is known.
            ProducerOutOfOrder: what was pushed before, and was under way, is not stored.
            ProducerFenced: the name was opened once more since.
            RequestError: `producer.sequence`, it is no number; or as of `Stream.push`.
        """
        return await self.push_nowait(data, sequence=sequence, key=key, headers=headers)

    def push_nowait(
        self,
        data: Data,
        *,
        sequence: int | None = None,
        key: Key | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[int]:
        """Push one entry without waiting; the future gets its index once it is durable.

        Arguments and errors are those of `push`.
        """
        number = _checked_number(self._next if sequence is None else sequence)
        keyed = None if key is None and headers is None else new_entry(data, key, headers)
        future = self._producer.push_numbered(data, keyed, number, is_new=number >= self._next)
        self._next = max(self._next, number + 1)
        return future

    async def push_all(
        self,
        items: Iterable[Data],
        sequence: int,
        *,
        keys: Iterable[Key | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
    ) -> None:
        """Push entries that are numbered one after the other; all are durable when it returns.

        Those up to `last_sequence` are stored, and left out.

        Args:
            items: the data of each.
            sequence: the number of the first.
            keys: the key of each, or None; at least as many as items.
            headers: the headers of each, or None; likewise.

        Raises:
            ArgumentError: there are fewer keys or headers than items, or something is of another
                type.
            RequestError: as `push`; entries before the one that was refused may be stored.
        """
        entries = (new_entry(*parts) for parts in beside(items, keys, headers))
        await push_numbered(self, entries, sequence)

    def _push_new(self, entry: NewEntry, number: int) -> asyncio.Future[int]:
        """Push an entry whose number is higher than all before."""
        keyed = entry if entry.key is not None or entry.headers else None
        future = self._producer.push_numbered(entry.data, keyed, number, is_new=True)
        self._next = max(self._next, number + 1)
        return future

    def _stored(self, number: int, index: int) -> None:
        if self.last_sequence is None or number > self.last_sequence:
            self.last_sequence, self.last_index = number, index


async def push_numbered(
    producer: NamedProducer, entries: Iterable[NewEntry], sequence: int
) -> None:
    """Push entries whose keys and headers are encoded already; as `NamedProducer.push_all`."""
    stored = -1 if producer.last_sequence is None else producer.last_sequence
    waiting: deque[asyncio.Future[int]] = deque()
    size = 0
    try:
        for number, entry in enumerate(entries, _checked_number(sequence)):
            if number <= stored:
                continue
            waiting.append(producer._push_new(entry, number))
            size += entry.size
            if size > WINDOW_BYTES or len(waiting) >= _WINDOW_ENTRIES:
                await asyncio.gather(*waiting)
                waiting.clear()
                size = 0
        await asyncio.gather(*waiting)
    finally:
        # Of several that fail, the first is raised.
        await asyncio.gather(*waiting, return_exceptions=True)


class _Numbering(Producer):
    """A producer of entries that come with their numbers.

    Args:
        session, address, partition: as those of `Producer`.
        following: the number after the last one that is stored.
        stored: told of the last number of what is stored, and its index.
    """

    def __init__(
        self,
        session: Session,
        address: bytes,
        partition: Partition,
        following: int,
        stored: Callable[[int, int], None],
    ) -> None:
        super().__init__(session, address, partition)
        self._following = following
        self._stored = stored
        self._under_way = 0
        # The number after that of what was sent last, and is not known to be stored.
        self._sent = following

    def push_numbered(
        self, data: Data, keyed: NewEntry | None, number: int, *, is_new: bool
    ) -> asyncio.Future[int]:
        """Push one entry; one that comes again is alone in its block, as a refusal is of all."""
        waiting = self._waiting
        if waiting is not None and (not is_new or number != waiting.sequence + len(waiting.items)):
            self._part()
        future = self.push(data, keyed, number)
        if not is_new:
            self._part()
        return future

    def _block(self, count: int, body: bytes, settle: Settle, flags: int, sequence: int) -> Block:
        def settled(result: int | RillnodeError) -> None:
            self._under_way -= 1
            if isinstance(result, int):
                self._following = max(self._following, sequence + count)
                self._stored(sequence + count - 1, result + count - 1)
            settle(result)

        if not self._under_way:  # whoever pushes knows what has failed before
            self._sent = self._following
        block = super()._block(count, body, settled, flags, sequence)
        # What comes again goes behind all that has lower numbers.
        block.after = min(self._sent, sequence) if self._under_way else self._following
        self._sent = max(self._sent, sequence + count)
        self._under_way += 1
        return block


async def push_keyed(
    producer: Callable[[int], Producer], entries: Iterable[tuple[int, NewEntry]]
) -> int:
    """Push entries to their partitions in whole blocks; return the index after the last, in its.

    Nothing is read ahead of what the window takes. Raises as `Producer.push_all` does.
    """
    window = _Window()
    runs: dict[int, Run] = {}
    gathered = partition = 0

    async def send(partition: int) -> int:
        run, to = runs.pop(partition), producer(partition)
        await to.has_room()
        await window.add(partition, run.size, to.append(run))
        return run.size

    for partition, entry in entries:
        run = runs.get(partition)
        if run is not None and not run.takes(entry):
            gathered -= await send(partition)
            run = None
        if run is None:
            run = runs[partition] = Run()
        run.add(entry)
        gathered += entry.size
        if gathered > WINDOW_BYTES:
            for one in tuple(runs):
                gathered -= await send(one)
    for one in tuple(runs):
        await send(one)
    return (await window.settled()).get(partition, 0)


class _Window:
    """Blocks under way, of no more than `WINDOW_BYTES`, and how far each partition is confirmed."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[int, int, asyncio.Future[int]]] = deque()
        self._bytes = 0
        self._next: dict[int, int] = {}

    async def add(self, partition: int, size: int, confirm: asyncio.Future[int]) -> None:
        """Note one, and wait while it is too much."""
        # After the first error, and after a cancellation, nobody asks what comes of the others.
        confirm.add_done_callback(_outcome_seen)
        self._under_way.append((partition, size, confirm))
        self._bytes += size
        while self._bytes > WINDOW_BYTES:
            await self._settle()

    async def settled(self) -> dict[int, int]:
        """Wait for all; return the index after the last entry of each partition."""
        while self._under_way:
            await self._settle()
        return self._next

    async def _settle(self) -> None:
        partition, size, confirm = self._under_way.popleft()
        self._next[partition] = await confirm
        self._bytes -= size


def beside(
    items: Iterable[Data],
    keys: Iterable[Key | None] | None,
    headers: Iterable[Headers | None] | None,
) -> Iterator[tuple[Data, Key | None, Headers | None]]:
    """Items with what belongs to each; what follows them is not looked at."""
    their_keys = repeat(None) if keys is None else iter(arguments.several("keys", keys))
    their_headers = repeat(None) if headers is None else iter(arguments.several("headers", headers))
    for item in arguments.several("items", items):
        try:
            yield item, next(their_keys), next(their_headers)
        except StopIteration:
            text = "there are fewer keys or headers than items"
            raise RequestError("client.argument", text) from None


def new_entry(data: Data, key: Key | None, headers: Headers | None) -> NewEntry:
    """An entry as its parts say.

    Raises:
        ArgumentError: one of them is of another type.
        RequestError: one of them is over its limit, or a header's name is no text.
    """
    item = _as_bytes(data)
    _check(item)
    try:
        encoded = None if key is None else encode_key(key)
        return NewEntry(item, encoded, b"" if headers is None else encode_headers(headers))
    except CodecError as error:
        raise RequestError(error.code, error.text) from None


def _packed(waiting: _Waiting) -> Iterable[tuple[int, bytes, int]]:
    """Blocks of what waits: number of entries, body and flags of each."""
    if not waiting.keyed:
        for items in split_items(waiting.items):
            yield len(items), pack_body(items), 0
        return
    keyed = waiting.keyed
    entries = (keyed.get(place) or NewEntry(data) for place, data in enumerate(waiting.items))
    for run in split_entries(entries):
        yield len(run.entries), *run.pack()


def _outcome_seen(done: "asyncio.Future[int]") -> None:
    if not done.cancelled():
        done.exception()


def _free(freed: "asyncio.Future[None]") -> None:
    if not freed.done():
        freed.set_result(None)


def _as_bytes(data: object) -> bytes:
    """The same, or a copy of what its owner may change before it is sent."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray):
        return bytes(data)
    if isinstance(data, memoryview):
        return data.tobytes()
    text = f"an entry is bytes, not {type(data).__name__}: encode it"
    raise RequestError("client.argument", text)


def _check(data: bytes) -> None:
    if len(data) > ENTRY_BYTES_MAX:
        raise RequestError(
            "entries.size", f"an entry holds at most {ENTRY_BYTES_MAX} bytes, not {len(data)}"
        )


def _checked_number(sequence: object) -> int:
    if not isinstance(sequence, int) or isinstance(sequence, bool):
        raise arguments.refused("sequence", "is a whole number", sequence)
    if not 0 <= sequence < SEQUENCE_MAX:
        text = f"a producer's number is from 0 to {SEQUENCE_MAX - 1}, not {sequence}"
        raise RequestError("producer.sequence", text)
    return sequence


def note_unheard(
    appends: Appends, to: Partition, futures: Sequence[asyncio.Future[int]], error: RillnodeError
) -> None:
    """Have it told in one line what has failed of all that nobody waits for."""
    name, _ = parse_stream_address(to.address) or ("", 0)
    appends.unheard.add(name, futures, error)


def settle_each(
    futures: Sequence[asyncio.Future[int]], note: Note, result: int | RillnodeError
) -> None:
    """Give each entry of a block its index, or why it has none; `note` is told of the latter."""
    if isinstance(result, RillnodeError):
        for future in futures:
            if not future.done():
                future.set_exception(result)
        note(futures, result)
        return
    for index, future in enumerate(futures, result):
        if not future.done():
            future.set_result(index)
