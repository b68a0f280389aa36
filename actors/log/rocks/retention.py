"""Finds where a time lies in a log, and where a trim cuts it; pure, for every store.

Blocks are looked up by index, and each limit is found by halving the range of indexes, so a trim
costs some forty look-ups however large the log. Times are found so because `received_at` ascends.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from rillnode.actors.log import Trim
from rillnode.actors.log.rocks.layout import LogState
from rillnode.codecs.entries import Block, decode_header, sizes_of

BlockAt = Callable[[int], Block]
"""The block that holds the entry of an index, which must be kept."""


def cut_index(trim: Trim, state: LogState, block_at: BlockAt) -> int:
    """The first index to keep: what the tightest limit says, but nothing at or past `hold`."""
    limits = trim.retention
    cut = max(state.first_index, min(trim.before, state.next_index))
    if limits.entries_max is not None:
        cut = max(cut, state.next_index - limits.entries_max)
    # A look-up may read the disk: only where the limit reaches beyond what is cut already.
    if limits.bytes_max is not None and state.next_position - state.first_position > max(
        0, limits.bytes_max
    ):
        position = state.next_position - max(0, limits.bytes_max)
        cut = max(cut, _index_of_position(position, state, block_at))
    if limits.seconds is not None:
        oldest_ms = trim.now_ms - int(limits.seconds * 1000)
        cut = first_since(oldest_ms, cut, state.next_index, block_at)
    if trim.hold is not None:
        cut = min(cut, max(trim.hold, state.first_index))
    return cut


def oldest_ms(trim: Trim, state: LogState, block_at: BlockAt) -> int | None:
    """When the first entry that is left was received, where the trim asks for that."""
    if trim.retention.seconds is None or state.first_index == state.next_index:
        return None
    return decode_header(block_at(state.first_index).value).received_at


def _index_of_position(position: int, state: LogState, block_at: BlockAt) -> int:
    """The first entry before which the log had `position` data bytes; it had less at its start."""
    low, high = state.first_index, state.next_index
    while low < high:
        block = block_at((low + high) // 2)
        start = decode_header(block.value).position
        ends = list(accumulate(sizes_of(block.value), initial=start))
        if position <= start:
            high = block.first_index
        elif position > ends[-1]:
            low = block.next_index
        else:
            return block.first_index + bisect_left(ends, position)
    return low


def first_since(oldest_ms: int, low: int, high: int, block_at: BlockAt) -> int:
    """The first entry from `low` on that was received at `oldest_ms` or later, else `high`."""
    if low < high and decode_header(block_at(low).value).received_at >= oldest_ms:
        return low
    while low < high:
        block = block_at((low + high) // 2)
        if decode_header(block.value).received_at < oldest_ms:
            low = block.next_index
        else:
            high = max(low, block.first_index)
    return low
