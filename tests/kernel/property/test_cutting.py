"""Blocks that are cut and joined hold what reading and packing their entries makes of them."""

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.cutting import Cut, CutBlock, arrivals_of, join_cuts
from rillnode.codecs.entries import (
    Block,
    EntryKind,
    block_of,
    encode_block,
    entries_of,
    flags_of,
    pack_body,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import encode_headers

DATA = st.binary(max_size=5)
COLUMNS = st.sampled_from(("plain", "metas", "keys", "headers", "all"))


@st.composite
def blocks(draw: st.DrawFn, columns: str) -> list[Block]:
    """Blocks that follow each other."""
    made: list[Block] = []
    index = draw(st.integers(0, 9))
    for _ in range(draw(st.integers(1, 4))):
        items = draw(st.lists(DATA, min_size=1, max_size=5))
        count = len(items)
        metas = [b"note"] * count if columns in ("metas", "all") else None
        keys = None
        if columns in ("keys", "all"):
            keys = draw(st.lists(st.none() | DATA, min_size=count, max_size=count))
        headers = None
        if columns in ("headers", "all"):
            headers = [encode_headers({"n": data} if data else {}) for data in items]
        value = encode_block(
            count=count,
            kind=EntryKind(200),
            received_at=draw(st.integers(1_000, 1_003)),
            position=draw(st.integers(0, 99)),
            body=pack_body(items, metas, keys, headers),
            flags=flags_of(metas, keys, headers),
        )
        made.append(Block(index, value))
        index += count
    return made


def cuts_of(found: list[Block], first: int, until: int) -> list[Cut]:
    """The entries from `first` to before `until`."""
    cuts: list[Cut] = []
    for block in found:
        start = max(first, block.first_index) - block.first_index
        stop = min(until, block.next_index) - block.first_index
        if start < stop:
            cuts.append(Cut(CutBlock(block), start, stop))
    return cuts


@given(st.data(), COLUMNS)
def test_what_is_cut_and_joined_is_what_packing_the_entries_makes(
    data: st.DataObject, columns: str
) -> None:
    found = data.draw(blocks(columns))
    entries = [entry for block in found for entry in entries_of(block, partition=3)]
    start = data.draw(st.integers(0, len(entries) - 1))
    stop = data.draw(st.integers(start + 1, len(entries)))
    wanted = entries[start:stop]

    cuts = cuts_of(found, wanted[0].index, wanted[-1].index + 1)

    assert [entry for cut in cuts for entry in cut.entries(3)] == wanted
    assert join_cuts(cuts) == block_of(wanted)
    assert sum(cut.count for cut in cuts) == len(wanted)
    assert sum(cut.size for cut in cuts) == sum(
        len(entry.data) + len(entry.pushed_key or b"") + len(entry.encoded_headers)
        for entry in wanted
    )
    later = [entry.received_at - wanted[0].received_at for entry in wanted]
    assert arrivals_of(cuts) == (later if any(later) else [])


@given(st.data(), COLUMNS, st.integers(-1, 40), st.integers(0, 3))
def test_as_many_as_fit_are_cut_off(
    data: st.DataObject, columns: str, size: int, more: int
) -> None:
    block = data.draw(blocks(columns))[0]
    whole = Cut(CutBlock(block), data.draw(st.integers(0, block.count - 1)), block.count)

    cut = whole.within(size, more)
    rest = whole.after(cut)

    assert cut.entries() + rest.entries() == whole.entries()
    assert cut.count == 1 or cut.size + more * cut.count <= size
    if rest.count:
        assert Cut(cut.block, cut.start, cut.stop + 1).size + more * (cut.count + 1) > size


def test_an_entry_is_cut_out_by_its_index() -> None:
    body = pack_body([b"a", b"bc"])
    value = encode_block(count=2, kind=EntryKind.BYTES, received_at=7, position=0, body=body)
    block = Block(10, value)

    cut = Cut.at(block, 11)

    assert cut is not None
    assert [entry.data for entry in cut.entries()] == [b"bc"]
    assert (cut.first_index, cut.count) == (11, 1)
    assert Cut.at(block, 9) is None
    assert Cut.at(block, 12) is None


@pytest.mark.parametrize("bytes_kept", [0, 23, 24, 30, 32, 34])
def test_a_block_that_is_not_whole_is_not_cut(bytes_kept: int) -> None:
    body = pack_body([b"a", b"bc"])
    value = encode_block(count=2, kind=EntryKind.BYTES, received_at=7, position=0, body=body)
    assert len(value) == 35

    with pytest.raises(CodecError) as caught:
        CutBlock(Block(0, value[:bytes_kept]))

    assert caught.value.code == "codec.truncated"
