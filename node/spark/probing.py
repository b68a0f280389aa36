"""Seeks to an index by timestamp or byte offset.

A block tells when its entries were taken and how many bytes its log held before it, so that a
search reads one block per step, and never more than the logarithm of a range's length of them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from rillnode.codecs.entries import decode_header
from rillnode.node.spark.offsets import Ends, Key, Positions, Range
from rillnode.node.spark.ranges import ClientOptions, ask


class Probe(NamedTuple):
    """The findings about one block.

    Attributes:
        first: index of its first entry.
        next: index after its last.
        received_at: when the node took its entries, ms since 1970.
        position: data bytes of the log before it.
        size: bytes of the block.
    """

    first: int
    next: int
    received_at: int
    position: int
    size: int


ProbeBlock = Callable[[Key, int], Probe]
"""Tells of the block with an index. What was trimmed is one block of long ago, without bytes."""


def block_prober(options: ClientOptions) -> ProbeBlock:
    """A `ProbeBlock` that asks the node."""

    def probe(key: Key, index: int) -> Probe:
        kept, blocks = ask(options, lambda client: client.read(Range(*key, index, index + 1), 1))
        for block in blocks:
            if block.first_index <= index < block.next_index:
                header = decode_header(block.value)
                size = len(block.value)
                return Probe(
                    block.first_index, block.next_index, header.received_at, header.position, size
                )
        return Probe(index, max(kept, index + 1), 0, 0, 0)

    return probe


def positions_at(probe: ProbeBlock, ends: Ends, time_ms: int) -> Positions:
    """The first index of every partition that was received at or after a time."""
    return {
        key: _first_block(probe, key, first, until, lambda block: block.received_at >= time_ms)
        for key, (first, until) in ends.items()
    }


def limit_bytes(
    probe: ProbeBlock, start: Mapping[Key, int], end: Positions, bytes_max: int
) -> Positions:
    """Move `end` back so that about `bytes_max` bytes lie between.

    Every partition gets its share in proportion to what it has waiting, in whole blocks and at
    least one, so that none waits for ever; the limit is exceeded by a block of each at most.
    """
    waiting = {key: start.get(key, 0) for key, until in end.items() if until > start.get(key, 0)}
    begins = {key: probe(key, index).position for key, index in waiting.items()}
    sizes: dict[Key, int] = {}
    for key, begin in begins.items():
        last = probe(key, end[key] - 1)
        sizes[key] = max(0, last.position + last.size - begin)
    total = sum(sizes.values())
    if total <= bytes_max:
        return end
    limited = dict(end)
    for key, index in waiting.items():
        bound = begins[key] + sizes[key] * bytes_max // total
        found = _first_block(probe, key, index, end[key], partial(_lies_behind, bound))
        limited[key] = found if found > index else min(probe(key, index).next, end[key])
    return limited


def _lies_behind(position: int, block: Probe) -> bool:
    return block.position >= position


def _first_block(
    probe: ProbeBlock, key: Key, low: int, high: int, wanted: Callable[[Probe], bool]
) -> int:
    """The first index of the first block that is wanted, where all behind it are; else `high`."""
    begin = low
    while low < high:
        block = probe(key, (low + high) // 2)
        if wanted(block):
            high = block.first
        else:
            low = block.next
    return max(begin, min(low, high))
