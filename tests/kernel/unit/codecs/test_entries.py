"""Blocks of entries: layout, limits and hostile bodies."""

import sys

import msgspec
import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.entries import (
    FLAG_HEADERS,
    FLAG_KEYS,
    FLAG_META,
    HEADER_BYTES,
    Block,
    Entry,
    EntryKind,
    NewEntry,
    Run,
    check_body,
    data_bytes,
    decode_header,
    encode_block,
    entries_of,
    flags_of,
    items_of,
    pack_body,
    sizes_of,
    split_entries,
    split_items,
    table_bytes,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import encode_headers
from rillnode.codecs.limits import (
    BLOCK_BYTES_MAX,
    BLOCK_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
)

HEADERS = st.dictionaries(st.sampled_from(["a", "ä", "trace"]), st.binary(max_size=9), max_size=3)
"""Headers as they are encoded; none are no bytes."""


def block_of(
    items: list[bytes],
    first_index: int = 0,
    metas: list[bytes] | None = None,
    keys: list[bytes | None] | None = None,
    headers: list[bytes] | None = None,
) -> Block:
    flags = flags_of(metas, keys, headers)
    body = pack_body(items, metas, keys, headers)
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


def test_a_body_without_keys_is_its_lengths_and_its_data() -> None:
    run = Run()
    for data in (b"ab", b"", b"c"):
        run.add(NewEntry(data))
    plain = pack_body([b"ab", b"", b"c"])
    assert plain == bytes.fromhex("020000000000000001000000") + b"abc"
    assert run.pack() == (plain, 0)


def test_keys_and_headers_are_columns_of_their_own() -> None:
    run = Run()
    headers = encode_headers({"n": b"v"})
    for entry in (NewEntry(b"ab", b"k"), NewEntry(b"", None), NewEntry(b"c", b"", headers)):
        run.add(entry)
    body, flags = run.pack()
    assert flags == FLAG_KEYS | FLAG_HEADERS
    assert body == (
        bytes.fromhex("020000000000000001000000")
        + bytes.fromhex("020000000000000001000000")
        + bytes.fromhex("000000000000000006000000")
        + b"abc" + b"k" + b"\x81\xa1n\xc4\x01v"
    )  # fmt: skip


@given(
    rows=st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.binary(max_size=5),
            st.none() | st.binary(max_size=9),
            HEADERS,
        ),
        min_size=1,
        max_size=9,
    ),
    columns=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    first=st.integers(0, 10),
)
def test_every_set_of_columns_comes_back(
    rows: list[tuple[bytes, bytes, bytes | None, dict[str, bytes]]],
    columns: tuple[bool, bool, bool],
    first: int,
) -> None:
    has_metas, has_keys, has_headers = columns
    items = [row[0] for row in rows]
    block = block_of(
        items,
        metas=[row[1] for row in rows] if has_metas else None,
        keys=[row[2] for row in rows] if has_keys else None,
        headers=[encode_headers(row[3]) for row in rows] if has_headers else None,
    )
    wanted = [
        (
            data,
            meta if has_metas else b"",
            key if has_keys else None,
            headers if has_headers else {},
        )
        for data, meta, key, headers in rows
    ]
    entries = entries_of(block, first=first)
    found = [(entry.data, entry.meta, entry.key, entry.headers) for entry in entries]
    assert found == wanted[first:]
    assert items_of(block.value) == items
    sizes = [
        len(data) + len(key or b"") + len(encode_headers(headers))
        for data, _, key, headers in wanted
    ]
    header, body = decode_header(block.value), block.value[HEADER_BYTES:]
    assert list(sizes_of(block.value)) == sizes
    assert data_bytes(header.count, body, header.flags) == sum(sizes)
    assert table_bytes(header.count, header.flags) == 4 * len(rows) * (1 + sum(columns))


@given(count=st.integers(1, 4), body=st.binary(max_size=90), flags=st.integers(0, 9))
def test_any_bytes_are_a_body_with_columns_or_an_error(count: int, body: bytes, flags: int) -> None:
    try:
        check_body(count, body, flags)
    except CodecError:
        return
    value = encode_block(
        count=count, kind=EntryKind.BYTES, received_at=0, position=0, body=body, flags=flags
    )
    entries = entries_of(Block(0, value))
    assert len(entries) == count
    assert all(isinstance(entry.headers, dict) for entry in entries)
    whole = sum(
        len(e.data) + len(e.meta) + len(e.key or b"") + len(e.encoded_headers) for e in entries
    )
    assert whole == len(body) - table_bytes(count, flags)


MANY = msgspec.msgpack.encode({str(number): b"" for number in range(200)})
LARGE = msgspec.msgpack.encode({"a": bytes(HEADERS_BYTES_MAX)})


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


@each_row(
    [
        (words(0, 1_048_577) + bytes(1_048_576), FLAG_KEYS, "entries.key"),
        (words(0, KEY_BYTES_MAX + 2) + bytes(KEY_BYTES_MAX + 1), FLAG_KEYS, "entries.key"),
        (words(0, 3) + b"k", FLAG_KEYS, "entries.lengths"),
        (words(0, 1) + b"k", FLAG_KEYS, "entries.lengths"),
        (words(0), FLAG_KEYS, "codec.truncated"),
        (words(0, len(MANY)) + MANY, FLAG_HEADERS, "entries.headers"),
        (words(0, len(LARGE)) + LARGE, FLAG_HEADERS, "entries.headers"),
        (words(0, 6) + b"\x81\xa2\xc3\x28\xc4\x00", FLAG_HEADERS, "entries.header_name"),
        (words(0, 2) + b"\x01\x05", FLAG_HEADERS, "entries.headers"),
        (words(0), 8, "entries.flags"),
        (words(0), 2**40, "entries.flags"),
    ]
)
def test_a_column_beyond_its_limits_is_refused(body: bytes, flags: int, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        check_body(1, body, flags)
    assert caught.value.code == code


def test_a_column_of_a_newer_version_is_an_error_with_its_offset() -> None:
    value = bytearray(block_of([b"x"]).value)
    value[5] = 8
    with pytest.raises(CodecError) as caught:
        decode_header(bytes(value))
    assert (caught.value.code, caught.value.offset) == ("entries.flags", 5)


@given(
    st.lists(
        st.builds(
            NewEntry,
            st.integers(0, BLOCK_BYTES_MAX).map(bytes),
            st.none() | st.binary(max_size=KEY_BYTES_MAX),
            HEADERS.map(encode_headers),
        ),
        max_size=9,
    )
)
def test_split_of_entries_keeps_order_and_limits(entries: list[NewEntry]) -> None:
    runs = list(split_entries(iter(entries)))
    assert [entry for run in runs for entry in run.entries] == entries
    for run in runs:
        assert run.size == sum(entry.size for entry in run.entries)
        assert len(run.entries) == 1 or run.size <= BLOCK_BYTES_MAX


def test_entry_holds_where_and_when() -> None:
    assert entries_of(block_of([b"x"], first_index=5), partition=2) == [
        Entry(2, 5, 1_700_000_000_000, EntryKind.BYTES, b"x", b"")
    ]


@each_row(
    [
        (0, b"", "entries.count"),
        (BLOCK_ENTRIES_MAX + 1, b"", "entries.count"),
        (2**63, b"", "entries.count"),
        (2, b"\x00\x00\x00\x00\x00", "codec.truncated"),
        (1, b"\x02\x00\x00\x00a", "entries.lengths"),
        (1, b"\x00\x00\x00\x00a", "entries.lengths"),
        (1, b"\xff\xff\xff\xff", "entries.size"),
        (1, (ENTRY_BYTES_MAX + 1).to_bytes(4, "little"), "entries.size"),
    ]
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
@pytest.mark.parametrize("keys", [None, [None, b"k"]])
def test_a_block_that_is_cut_anywhere_is_no_block(
    metas: list[bytes] | None, keys: list[bytes | None] | None
) -> None:
    value = block_of([b"ab", b"c"], metas=metas, keys=keys).value
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


@pytest.mark.parametrize("kind", [one for one in EntryKind if one is not EntryKind.BYTES])
def test_a_key_that_only_a_plug_in_knows_is_none_where_that_is_not_installed(
    kind: EntryKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"rillnode.codecs.{kind.name.lower()}.entry_key", None)
    block = Block(
        0, encode_block(count=1, kind=kind, received_at=0, position=0, body=pack_body([b"x"]))
    )
    (entry,) = entries_of(block)
    assert entry.key is None
