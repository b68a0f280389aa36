"""Blocks of entries: layout, limits and hostile bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillnode.codecs.entries import (
    FLAG_META,
    HEADER_BYTES,
    Block,
    Entry,
    EntryKind,
    check_body,
    data_bytes,
    decode_header,
    encode_block,
    entries_of,
    items_of,
    pack_body,
    split_items,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, ENTRY_BYTES_MAX


def block_of(items: list[bytes], first_index: int = 0, metas: list[bytes] | None = None) -> Block:
    flags = 0 if metas is None else FLAG_META
    body = pack_body(items, metas)
    check_body(len(items), body, flags)
    value = encode_block(
        count=len(items),
        kind=EntryKind.BYTES,
        received_at=1_700_000_000_000,
        position=77,
        body=body,
        flags=flags,
    )
    return Block(first_index, value)


def test_layout_is_little_endian_lengths_then_data() -> None:
    value = block_of([b"ab", b"", b"c"]).value
    assert value[:HEADER_BYTES].hex() == "03000000000000000068e5cf8b010000" + ("4d00000000000000")
    assert value[HEADER_BYTES:] == bytes.fromhex("020000000000000001000000") + b"abc"


def test_header_tells_count_kind_time_and_position() -> None:
    header = decode_header(block_of([b"ab", b"c"]).value)
    assert (header.count, header.kind) == (2, EntryKind.BYTES)
    assert (header.received_at, header.position) == (1_700_000_000_000, 77)


@given(
    items=st.lists(st.binary(max_size=50), min_size=1, max_size=40),
    first=st.integers(0, 60),
    length=st.integers(0, 60),
)
def test_entries_in_a_range_are_those_of_the_list(
    items: list[bytes], first: int, length: int
) -> None:
    block = block_of(items, first_index=10)
    entries = entries_of(block, partition=3, first=first, until=first + length)
    wanted = [
        (index, data) for index, data in enumerate(items, 10) if first <= index < first + length
    ]
    assert [(entry.index, entry.data) for entry in entries] == wanted
    assert all(entry.partition == 3 for entry in entries)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=9)), min_size=1, max_size=9))
def test_meta_column_comes_back_beside_the_data(rows: list[tuple[bytes, bytes]]) -> None:
    items, metas = [row[0] for row in rows], [row[1] for row in rows]
    block = block_of(items, metas=metas)
    assert [(entry.data, entry.meta) for entry in entries_of(block)] == rows
    body = block.value[HEADER_BYTES:]
    assert data_bytes(len(rows), body, FLAG_META) == sum(map(len, items))


def test_entry_holds_where_and_when() -> None:
    assert entries_of(block_of([b"x"], first_index=5), partition=2) == [
        Entry(2, 5, 1_700_000_000_000, EntryKind.BYTES, b"x", b"")
    ]


@pytest.mark.parametrize(
    ("count", "body", "code"),
    [
        (0, b"", "entries.count"),
        (BLOCK_ENTRIES_MAX + 1, b"", "entries.count"),
        (2**63, b"", "entries.count"),
        (2, b"\x00\x00\x00\x00\x00", "codec.truncated"),
        (1, b"\x02\x00\x00\x00a", "entries.lengths"),
        (1, b"\x00\x00\x00\x00a", "entries.lengths"),
        (1, b"\xff\xff\xff\xff", "entries.size"),
        (1, (ENTRY_BYTES_MAX + 1).to_bytes(4, "little"), "entries.size"),
    ],
)
def test_body_that_does_not_add_up_is_refused(count: int, body: bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        check_body(count, body)
    assert caught.value.code == code


@given(count=st.integers(0, 10), body=st.binary(max_size=60))
def test_any_bytes_are_a_body_or_an_error(count: int, body: bytes) -> None:
    try:
        check_body(count, body)
    except CodecError:
        return
    value = encode_block(count=count, kind=EntryKind.BYTES, received_at=0, position=0, body=body)
    assert b"".join(items_of(value)) == body[4 * count :]


def test_kind_of_a_newer_version_is_an_error_with_its_offset() -> None:
    value = bytearray(block_of([b"x"]).value)
    value[4] = 9
    with pytest.raises(CodecError) as caught:
        decode_header(bytes(value))
    assert (caught.value.code, caught.value.offset) == ("entries.kind", 4)


@pytest.mark.parametrize("metas", [None, [b"m", b""]])
def test_a_block_that_is_cut_anywhere_is_no_block(metas: list[bytes] | None) -> None:
    value = block_of([b"ab", b"c"], metas=metas).value
    for end in range(len(value)):
        with pytest.raises(CodecError) as caught:
            entries_of(Block(0, value[:end]))
        assert caught.value.code == "codec.truncated"


def test_split_keeps_order_and_limits() -> None:
    items = [bytes(100_000)] * 7 + [b""] * (BLOCK_ENTRIES_MAX + 5) + [bytes(ENTRY_BYTES_MAX), b"z"]
    runs = list(split_items(iter(items)))
    assert [item for run in runs for item in run] == items
    for run in runs:
        assert len(run) <= BLOCK_ENTRIES_MAX
        assert len(run) == 1 or sum(map(len, run)) <= BLOCK_BYTES_MAX


def test_split_of_nothing_is_nothing() -> None:
    assert list(split_items([])) == []
