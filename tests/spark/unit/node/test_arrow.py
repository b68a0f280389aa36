import datetime
import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pipeline_samples import make_block, streamr_text
from rillnode.codecs.entries import Block, EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import encode_headers
from rillnode.node.entries import TIME_MS_MAX, TIME_MS_MIN
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.tables import BRONZE_SCHEMA

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def rows_of(builder: BatchBuilder) -> list[dict[str, Any]]:
    batch = builder.finish()
    batch.validate(full=True)
    assert batch.schema == BRONZE_SCHEMA
    return batch.to_pylist()


def test_a_block_becomes_rows() -> None:
    builder = BatchBuilder()
    builder.add_block("s", 3, make_block(10, [b"one", b"", b"three"]), 10, 13)
    assert (builder.rows, builder.data_bytes) == (3, 8)
    rows = rows_of(builder)
    assert [row["data"] for row in rows] == [b"one", b"", b"three"]
    assert [row["index"] for row in rows] == [10, 11, 12]
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    first = {name: value for name, value in rows[0].items() if value is not None}
    assert first == {
        "stream": "s",
        "partition": 3,
        "index": 10,
        "received_at": at,
        "kind": "bytes",
        "data": b"one",
    }


def test_a_block_is_cut_at_both_ends() -> None:
    builder = BatchBuilder()
    builder.add_block("s", 0, make_block(10, [b"a", b"bb", b"ccc", b"dddd"]), 11, 13)
    rows = rows_of(builder)
    assert [(row["index"], row["data"]) for row in rows] == [(11, b"bb"), (12, b"ccc")]


@pytest.mark.needs("streamr")
def test_blocks_of_several_streams_share_a_batch() -> None:
    builder = BatchBuilder()
    builder.add_block("a", 0, make_block(0, [b"1", b"2"]), 0, 2)
    builder.add_block("b", 5, make_block(7, [b"3"], kind=EntryKind.STREAMR, received_at=5), 7, 8)
    builder.add_block("a", 0, make_block(2, [b"4"]), 2, 3)
    rows = rows_of(builder)
    keys = [(row["stream"], row["partition"], row["index"], row["kind"]) for row in rows]
    assert keys == [("a", 0, 0, "bytes"), ("a", 0, 1, "bytes"), ("b", 5, 7, "streamr"),
                    ("a", 0, 2, "bytes")]  # fmt: skip
    assert [row["data"] for row in rows] == [b"1", b"2", b"3", b"4"]
    assert rows[2]["received_at"].timestamp() == 0.005


def test_metadata_is_kept_and_null_where_there_is_none() -> None:
    builder = BatchBuilder()
    builder.add_block("a", 0, make_block(0, [b"1"]), 0, 1)
    builder.add_block("a", 0, make_block(1, [b"2", b"3", b"4"], metas=[b"m", b"", b"nn"]), 2, 4)
    rows = rows_of(builder)
    assert [row["node_meta"] for row in rows] == [None, b"", b"nn"]
    assert [row["data"] for row in rows] == [b"1", b"3", b"4"]


def test_keys_and_headers_are_columns_null_where_there_are_none() -> None:
    headers = encode_headers({"sender": b"hall", "raw": b"\xff"})
    builder = BatchBuilder()
    builder.add_block("a", 0, make_block(0, [b"1"]), 0, 1)
    block = make_block(
        1,
        [b"2", b"3", b"4", b"5"],
        metas=[b"m"] * 4,
        keys=[b"no", None, b"", b"lamp"],
        headers=[headers, b"", headers, b""],
    )
    builder.add_block("a", 0, block, 2, 5)
    builder.add_gap("a", 0, 5, 9)
    builder.add_block("a", 0, make_block(9, [b"9"], keys=[b"k"]), 9, 10)
    rows = rows_of(builder)
    assert [row["data"] for row in rows] == [b"1", b"3", b"4", b"5", None, b"9"]
    assert [row["key"] for row in rows] == [None, None, b"", b"lamp", None, b"k"]
    assert [row["headers"] for row in rows] == [
        None,
        None,
        [("sender", b"hall"), ("raw", b"\xff")],
        None,
        None,
        None,
    ]
    assert [row["node_meta"] for row in rows] == [None, b"m", b"m", b"m", None, None]


@pytest.mark.needs("streamr")
def test_what_a_protocol_knows_is_the_key_beside_those_that_were_pushed() -> None:
    builder = BatchBuilder()
    builder.add_block("a", 0, make_block(0, [b"1", b"2"], keys=[b"k", None]), 0, 2)
    builder.add_block("a", 0, make_block(2, [streamr_text()], kind=EntryKind.STREAMR), 2, 3)
    assert [row["key"] for row in rows_of(builder)] == [b"k", None, b"0xabcd/chain"]


def test_a_gap_is_a_row_of_its_own_kind() -> None:
    builder = BatchBuilder()
    builder.add_block("a", 0, make_block(0, [b"1"]), 0, 1)
    builder.add_gap("a", 0, 1, 9)
    builder.add_block("a", 0, make_block(9, [b"2"]), 9, 10)
    rows = rows_of(builder)
    assert [(row["index"], row["kind"], row["gap_until"]) for row in rows] == [
        (0, "bytes", None),
        (1, "gap", 9),
        (9, "bytes", None),
    ]
    assert [row["data"] for row in rows] == [b"1", None, b"2"]
    assert rows[1]["received_at"] is None


def test_an_empty_batch_has_the_schema() -> None:
    assert rows_of(BatchBuilder()) == []


@given(
    st.lists(
        st.tuples(
            st.lists(st.binary(max_size=9), min_size=1, max_size=9), st.booleans(), st.booleans()
        ),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_any_range_of_any_blocks_comes_out_unchanged(
    contents: list[tuple[list[bytes], bool, bool]], data: st.DataObject
) -> None:
    items = [item for part, _, _ in contents for item in part]
    start = data.draw(st.integers(0, len(items) - 1))
    until = data.draw(st.integers(start + 1, len(items)))
    builder = BatchBuilder()
    first = 0
    for part, with_meta, with_keys in contents:
        keys = [item or None for item in part] if with_keys else None
        block = make_block(first, part, metas=part if with_meta else None, keys=keys)
        if block.next_index > start and first < until:
            builder.add_block("s", 0, block, start, until)
        first = block.next_index
    rows = rows_of(builder)
    assert [row["data"] for row in rows] == items[start:until]
    assert [row["index"] for row in rows] == list(range(start, until))
    assert all(row["node_meta"] in (None, row["data"]) for row in rows)
    assert all(row["key"] in (None, row["data"]) for row in rows)


@pytest.mark.parametrize("with_meta", [False, True])
def test_damaged_lengths_are_refused(with_meta: bool) -> None:
    items = [b"abc", b"defg"]
    good = make_block(0, items, metas=items if with_meta else None).value
    damaged = [
        good[:-1],
        good + b"x",
        good[:30],
        struct.pack("<I", 1 << 31) + good[4:],
        good[:24] + struct.pack("<I", 0xFFFF_FFFF) + good[28:],
    ]
    if with_meta:  # the sums agree, but the data reaches over the metadata
        damaged.append(good[:24] + struct.pack("<IIII", 100, 4, 0, 0) + good[40:])
    for value in damaged:
        with pytest.raises(CodecError):
            BatchBuilder().add_block("s", 0, Block(0, value), 0, 1)


@pytest.mark.parametrize("ms", [-(2**62), TIME_MS_MIN - 1, -1, 0, TIME_MS_MAX + 1, 2**62])
def test_a_clock_that_was_anywhere_gives_a_time_that_readers_have(ms: int) -> None:
    builder = BatchBuilder()
    builder.add_block("s", 0, make_block(0, [b"1"], received_at=ms), 0, 1, created_at=abs(ms))
    (row,) = builder.finish().to_pylist()
    shown = min(max(ms, TIME_MS_MIN), TIME_MS_MAX)
    assert row["received_at"] - EPOCH == datetime.timedelta(milliseconds=shown)
