"""A producer: gathers what is pushed to one partition in one turn of the loop into one append."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rillnode.codecs.entries import NewEntry, Run, pack_body, split_entries, split_items
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.keyed import Headers, Key, encode_headers, encode_key
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.node.client.appends import Block, Partition, Settle
from rillnode.node.client.session import Session

WINDOW_BYTES: Final = 8_388_608
"""Bytes that `push_all` leaves unconfirmed."""

Data = bytes | bytearray | memoryview
"""What an entry may be given as; what its owner may change is copied at once."""


class Producer:
    """Pushes to one partition, in order."""

    def __init__(self, session: Session, address: bytes) -> None:
        self._appends = session.appends
        self._partition = Partition(address)
        self._loop = asyncio.get_running_loop()
        self._items: list[bytes] = []
        self._keyed: dict[int, NewEntry] = {}  # those of them with a key or headers, by place
        self._futures: list[asyncio.Future[int]] = []

    def push(self, data: Data, keyed: NewEntry | None = None) -> asyncio.Future[int]:
        """Push one entry; the future gets its index once it is durable.

        Args:
            data: the entry's.
            keyed: the entry, where it has a key or headers.

        Raises:
            TypeError: `data` is no bytes.
            RequestError: the entry is too large.
        """
        data = _as_bytes(data)
        _check(data)
        future: asyncio.Future[int] = self._loop.create_future()
        if not self._items:
            self._appends.gather(self._flush)
        if keyed is not None:
            self._keyed[len(self._items)] = keyed
        self._items.append(data)
        self._futures.append(future)
        return future

    async def push_all(self, items: Iterable[bytes]) -> int:
        """Push entries in whole blocks; return the index after the last, once all are durable.

        Nothing is read ahead of what the window takes, so `items` may be endless.

        Raises:
            RequestError: an entry is too large, or the node refused one; earlier ones may be
                stored.
        """
        window = _Window()
        for block in split_items(items):
            _check(max(block, key=len))
            size = sum(map(len, block))
            await window.add(0, size, self._append(len(block), pack_body(block), 0))
        return (await window.settled()).get(0, 0)

    def append(self, run: Run) -> asyncio.Future[int]:
        """Append one block; the future gets the index after its last entry."""
        return self._append(len(run.entries), *run.pack())

    def _flush(self) -> list[Block]:
        items, self._items = self._items, []
        futures, self._futures = self._futures, []
        if self._keyed:
            return self._keyed_blocks(items, futures)
        if len(items) == 1:  # as mostly, where many streams are pushed to
            return [Block(self._partition, 1, pack_body(items), _settle_each(futures))]
        blocks: list[Block] = []
        start = 0
        for run in split_items(items):
            settle = _settle_each(futures[start : start + len(run)])
            blocks.append(Block(self._partition, len(run), pack_body(run), settle))
            start += len(run)
        return blocks

    def _keyed_blocks(
        self, items: Sequence[bytes], futures: Sequence[asyncio.Future[int]]
    ) -> list[Block]:
        keyed, self._keyed = self._keyed, {}
        blocks: list[Block] = []
        start = 0
        for run in split_entries(
            keyed.get(place) or NewEntry(data) for place, data in enumerate(items)
        ):
            count = len(run.entries)
            settle = _settle_each(futures[start : start + count])
            body, flags = run.pack()
            blocks.append(Block(self._partition, count, body, settle, flags))
            start += count
        return blocks

    def _append(self, count: int, body: bytes, flags: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()

        def settle(result: int | RillnodeError) -> None:
            if future.done():
                return
            if isinstance(result, RillnodeError):
                future.set_exception(result)
            else:
                future.set_result(result + count)

        self._appends.send([Block(self._partition, count, body, settle, flags)])
        return future


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
        run = runs.pop(partition)
        await window.add(partition, run.size, producer(partition).append(run))
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


def new_entry(data: Data, key: Key | None, headers: Headers | None) -> NewEntry:
    """An entry as its parts say.

    Raises:
        TypeError: one of them is of another type.
        RequestError: one of them is over its limit, or a header's name is no text.
    """
    item = _as_bytes(data)
    _check(item)
    try:
        encoded = None if key is None else encode_key(key)
        return NewEntry(item, encoded, b"" if headers is None else encode_headers(headers))
    except CodecError as error:
        raise RequestError(error.code, error.text) from None


def _as_bytes(data: object) -> bytes:
    """The same, or a copy of what its owner may change before it is sent."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray):
        return bytes(data)
    if isinstance(data, memoryview):
        return data.tobytes()
    text = f"an entry is bytes, not {type(data).__name__}: encode it"
    raise TypeError(text)


def _check(data: bytes) -> None:
    if len(data) > ENTRY_BYTES_MAX:
        raise RequestError(
            "entries.size", f"an entry holds at most {ENTRY_BYTES_MAX} bytes, not {len(data)}"
        )


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
