"""Picking what meets a condition out of blocks."""

from typing import Any

from hypothesis import given, strategies as st

from rillnode.actors.core.streams.searching import SEARCH_BYTES, SEARCH_ENTRIES, search
from rillnode.codecs.entries import (
    Block,
    Entry,
    EntryKind,
    encode_block,
    entries_of,
    flags_of,
    pack_body,
)
from rillnode.codecs.keyed import encode_headers
from rillnode.codecs.where import Where

END = 2**64 - 1


def blocks_of(counts: list[int], numbers: list[int], *, beside: bool = False) -> list[Block]:
    """Blocks of entries with a number each, received a second apart."""
    blocks: list[Block] = []
    index = 100
    for count in counts:
        mine = [numbers[(index + at) % len(numbers)] for at in range(count)]
        columns: tuple[Any, ...] = ()
        if beside:
            columns = (
                [b"m%d" % one for one in mine],
                [b"k%d" % one if one % 2 else None for one in mine],
                [encode_headers({"n": b"%d" % one}) for one in mine],
            )
        value = encode_block(
            count=count,
            kind=EntryKind.BYTES,
            received_at=1_000 * len(blocks),
            position=0,
            body=pack_body([b'{"n": %d}' % one for one in mine], *columns),
            flags=flags_of(*columns),
        )
        blocks.append(Block(index, value))
        index += count
    return blocks


def entries(blocks: list[Block]) -> list[Entry]:
    return [entry for block in blocks for entry in entries_of(block)]


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    beside=st.booleans(),
    first=st.integers(100, 150),
    length=st.integers(0, 40),
    entries_max=st.integers(0, 12),
)
def test_all_that_matches_comes_once_and_as_it_was(
    counts: list[int],
    numbers: list[int],
    beside: bool,
    first: int,
    length: int,
    entries_max: int,
) -> None:
    blocks = blocks_of(counts, numbers, beside=beside)
    until = first + length
    found = search(blocks, Where("n = 2 or n = 3"), first, until, entries_max)
    wanted = [
        entry
        for entry in entries(blocks)
        if first <= entry.index < until and entry.data[-2:-1] in b"23"
    ]
    assert entries(found.blocks) == wanted[:entries_max]
    if len(wanted) < entries_max:
        assert found.reached == max(first, min(until, 100 + sum(counts)))
    elif entries_max:
        assert found.reached == wanted[entries_max - 1].index + 1
    else:
        assert found.reached == first


def test_one_look_is_bounded_in_entries_and_bytes() -> None:
    many = blocks_of([4_000], [1])
    found = search(many, Where("n = 2"), 100, END, 10)
    assert (found.blocks, found.reached) == ([], 100 + SEARCH_ENTRIES)
    found = search(many, Where("n = 1"), 150, END, 4_000)
    assert len(entries(found.blocks)) == SEARCH_ENTRIES
    costly = Where(" or ".join(["n=5"] * 140))
    assert search(many, costly, 100, END, 1).reached == 100 + SEARCH_ENTRIES * 4 // 140
    body = pack_body([b"x" * (SEARCH_BYTES + 1), b"x", b"x"])
    value = encode_block(count=3, kind=EntryKind.BYTES, received_at=0, position=0, body=body)
    assert search([Block(7, value)], Where("a"), 7, END, 9).reached == 8
    assert search([Block(7, value)], Where("a"), 8, END, 9).reached == 10


def test_a_whole_block_goes_out_as_it_is() -> None:
    (block,) = blocks_of([5], [1])
    (found,) = search([block], Where("n = 1"), 100, END, 9).blocks
    assert found.value is block.value
