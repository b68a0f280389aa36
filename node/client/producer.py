"""A producer: gathers what is pushed to one partition in one turn of the loop into one append."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from rillnode.codecs.entries import pack_body, split_items
from rillnode.codecs.errors import RequestError, RillnodeError
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
        self._futures: list[asyncio.Future[int]] = []

    def push(self, data: Data) -> asyncio.Future[int]:
        """Push one entry; the future gets its index once it is durable.

        Raises:
            TypeError: `data` is no bytes.
            RequestError: the entry is too large.
        """
        data = _as_bytes(data)
        _check(data)
        future: asyncio.Future[int] = self._loop.create_future()
        if not self._items:
            self._appends.gather(self._flush)
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
        window: deque[tuple[int, asyncio.Future[int]]] = deque()
        unconfirmed = next_index = 0
        for block in split_items(items):
            _check(max(block, key=len))
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

    def _flush(self) -> list[Block]:
        items, self._items = self._items, []
        futures, self._futures = self._futures, []
        if len(items) == 1:  # as mostly, where many streams are pushed to
            return [Block(self._partition, 1, pack_body(items), _settle_each(futures))]
        blocks: list[Block] = []
        start = 0
        for run in split_items(items):
            settle = _settle_each(futures[start : start + len(run)])
            blocks.append(Block(self._partition, len(run), pack_body(run), settle))
            start += len(run)
        return blocks

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

        self._appends.send([Block(self._partition, len(items), pack_body(items), settle)])
        return future


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
