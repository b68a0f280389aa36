"""Cuts stored blocks between any two entries, and joins what was cut to new blocks.

Who only passes entries on need not read each of them: the words and the bytes of neighbours stand
side by side in their block, and are copied as two slices.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from rillnode.codecs.entries import (
    HEADER_BYTES,
    Block,
    BlockHeader,
    Entry,
    block_of,
    decode_header,
    entries_of,
    join_block,
    sizes_of,
    table_bytes,
)
from rillnode.codecs.errors import CodecError


class CutBlock:
    """A stored block, and where its entries end.

    Attributes:
        block: the block.
        header: its header.
        ends: how many bytes clients have given of all entries before each one, and of all.
        next_index: the index behind its last entry.

    Raises:
        CodecError: the block's kind is unknown, or it is shorter than its lengths say.
    """

    __slots__ = ("_data", "block", "ends", "header", "next_index")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.header: BlockHeader = decode_header(block.value)
        count, flags = self.header.count, self.header.flags
        self.next_index = block.first_index + count
        self.ends = list(accumulate(sizes_of(block.value), initial=0))
        self._data = HEADER_BYTES + table_bytes(count, flags)
        if self._data + self.ends[-1] > len(block.value):
            at = len(block.value)
            raise CodecError("codec.truncated", "block ends inside its entries", offset=at)

    def words(self, start: int, stop: int) -> memoryview:
        """The words of entries of a block that has data and no other column."""
        return memoryview(self.block.value)[HEADER_BYTES + 4 * start : HEADER_BYTES + 4 * stop]

    def data(self, start: int, stop: int) -> memoryview:
        """Their bytes, likewise."""
        ends, begin = self.ends, self._data
        return memoryview(self.block.value)[begin + ends[start] : begin + ends[stop]]


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Neighbours in a block: its entries number `start` to before `stop`, counted from 0."""

    block: CutBlock
    start: int
    stop: int

    @property
    def first_index(self) -> int:
        """The index of the first of them."""
        return self.block.block.first_index + self.start

    @property
    def count(self) -> int:
        """How many they are."""
        return self.stop - self.start

    @property
    def size(self) -> int:
        """How many bytes clients have given of them."""
        ends = self.block.ends
        return ends[self.stop] - ends[self.start]

    @classmethod
    def at(cls, block: Block, index: int) -> "Cut | None":
        """One entry; None: the block has not got it."""
        number = index - block.first_index
        return cls(CutBlock(block), number, number + 1) if 0 <= number < block.count else None

    def entries(self, partition: int = 0) -> list[Entry]:
        """Read them; raises as `entries_of` does."""
        first = self.first_index
        block = self.block.block
        return entries_of(block, partition=partition, first=first, until=first + self.count)

    def within(self, size: int, more: int = 0) -> "Cut":
        """As many of them, from the first on, as fit into so many bytes, but at least that one.

        Args:
            size: bytes for all.
            more: bytes that each takes beside what clients have given of it.
        """
        if self.size + more * self.count <= size:
            return self
        ends, start = self.block.ends, self.start
        numbers = range(start + 1, self.stop + 1)
        fit = bisect_right(
            numbers, size, key=lambda stop: ends[stop] - ends[start] + more * (stop - start)
        )
        return Cut(self.block, start, start + max(1, fit))

    def after(self, cut: "Cut") -> "Cut":
        """Those of them that are behind some that they begin with."""
        return Cut(self.block, cut.stop, self.stop)


def join_cuts(cuts: Sequence[Cut]) -> bytes:
    """A block of entries of one kind, without notes, with the time when the first came.

    Raises:
        CodecError: a block is damaged.
    """
    words: list[memoryview] = []
    data: list[memoryview] = []
    count = 0
    for cut in cuts:
        block, start, stop = cut.block, cut.start, cut.stop
        if block.header.flags:
            return block_of([entry for one in cuts for entry in one.entries()])
        words.append(block.words(start, stop))
        data.append(block.data(start, stop))
        count += stop - start
    header = cuts[0].block.header
    return join_block((*words, *data), count, header.kind, 0, header.received_at, 0)


def arrivals_of(cuts: Sequence[Cut]) -> list[int]:
    """How many milliseconds after the first each entry came; empty: all came with it."""
    first = cuts[0].block.header.received_at
    if len({cut.block.header.received_at for cut in cuts}) == 1:
        return []
    return [cut.block.header.received_at - first for cut in cuts for _ in range(cut.count)]
