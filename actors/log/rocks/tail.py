"""The ends of the logs that are read, in memory: what live readers read.

Nothing is kept of a log until somebody has asked for entries that are not here, as whoever follows
it does first of all: most of many logs are only appended to.

One thread commits and any thread reads, without a lock: a reader takes a tail's extent and then
its list of blocks, which only ever grows at its end or is replaced whole.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from rillnode.actors.log import NO_ENTRIES, LogExtent, Read
from rillnode.actors.log.rocks.layout import LogState
from rillnode.codecs.entries import Block

first_index_of = attrgetter("first_index")

BLOCK_OVERHEAD_BYTES: Final = 160
TAIL_OVERHEAD_BYTES: Final = 400
"""Rough sizes of the objects round a block and a tail, so that small entries are bounded too."""


class _Tail(Struct, eq=False, gc=False):
    """The last blocks of one log, dense up to the extent's end."""

    blocks: list[Block]
    extent: LogExtent
    size: int


READ_LOGS_MAX: Final = 65_536
"""Logs of a generation of those that were read. Own choice: 6 MB."""


class TailCache:
    """Recently appended blocks of logs that are read, within a number of bytes; idle ones go first.

    Of the logs that were read there are two generations: when the young one is full it becomes the
    old one, which is forgotten. A log's tail stays beyond that while it is appended to.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._log_bytes_max = bytes_max // 2
        self._bytes = 0
        # In the order of their last commit.
        self._tails: OrderedDict[int, _Tail] = OrderedDict()
        # Changed by who reads, and looked at by who commits.
        self._read: set[int] = set()
        self._read_before: set[int] = set()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def clear(self) -> None:
        """Forget everything: what is durable must be read again."""
        self._tails = OrderedDict()
        self._bytes = 0

    def commit(self, blocks: Mapping[int, list[Block]], states: Mapping[int, LogState]) -> None:
        """Take the blocks that became durable, by log, and the states of the logs that changed."""
        tails, read, read_before = self._tails, self._read, self._read_before
        for log, state in states.items():
            tail, new = tails.get(log), blocks.get(log)
            if tail is not None:
                if new is not None:
                    self._add(tail, new)
                    tails.move_to_end(log)
                self._fit(tail, state)
            elif new is not None and (log in read or log in read_before):
                tail = _Tail([], NO_ENTRIES, TAIL_OVERHEAD_BYTES)
                self._bytes += TAIL_OVERHEAD_BYTES
                self._add(tail, new)
                self._fit(tail, state)
                tails[log] = tail  # whole, as others read meanwhile
        self._evict()

    def forget(self, log: int) -> None:
        """Forget a log that is no more."""
        self._read.discard(log)
        self._read_before.discard(log)
        tail = self._tails.pop(log, None)
        if tail is not None:
            self._bytes -= tail.size

    def read(self, operation: Read) -> bool:
        """Answer a read that lies within a tail; False where the disk must be asked."""
        log = operation.log
        tail = self._tails.get(log)
        if tail is None:
            if len(self._read) >= READ_LOGS_MAX:
                self._read, self._read_before = set(), self._read
            self._read.add(log)
            return False
        extent = tail.extent
        blocks = tail.blocks
        index = max(operation.index, extent.first_index)
        if index > extent.next_index:
            return False
        if index < extent.next_index and (not blocks or index < blocks[0].first_index):
            return False
        operation.extent = extent
        end = min(operation.until, extent.next_index)
        if index < end:
            at = bisect_right(blocks, index, key=first_index_of) - 1
            take_blocks(operation, blocks, at, min(end, index + operation.entries_max))
        return True

    def _add(self, tail: _Tail, blocks: list[Block]) -> None:
        size = len(blocks) * BLOCK_OVERHEAD_BYTES
        for block in blocks:
            size += len(block.value)
        tail.blocks += blocks
        tail.size += size
        self._bytes += size

    def _fit(self, tail: _Tail, state: LogState) -> None:
        """Drop blocks that were trimmed, or are too many for one log; then show the extent."""
        blocks, size, drop = tail.blocks, tail.size, 0
        # Down to three quarters, so that a busy log's list is not copied for each commit.
        room = self._log_bytes_max if size <= self._log_bytes_max else self._log_bytes_max * 3 // 4
        while drop < len(blocks) and (size > room or blocks[drop].next_index <= state.first_index):
            size -= len(blocks[drop].value) + BLOCK_OVERHEAD_BYTES
            drop += 1
        if drop:
            tail.blocks = blocks[drop:]
            self._bytes -= tail.size - size
            tail.size = size
        tail.extent = state.extent()

    def _evict(self) -> None:
        tails = self._tails
        while self._bytes > self._bytes_max and tails:
            # A plain dictionary would pass over all places whose logs have gone before.
            self._bytes -= tails.popitem(last=False)[1].size


def take_blocks(operation: Read, blocks: Sequence[Block], at: int, end: int) -> None:
    """Give a read the blocks from `blocks[at]` on, as far as `end` and the read allow."""
    size = 0
    for number in range(at, len(blocks)):
        block = blocks[number]
        size += len(block.value)
        if operation.blocks and (block.first_index >= end or size > operation.bytes_max):
            return
        operation.blocks.append(block)
