"""Whatever an entry holds, it becomes one row of silver that every reader can show."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pipeline_samples import TIME, make_block
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.silver import decode_rows
from rillnode.node.spark.tables import SILVER_SCHEMA
from streamr_samples import make_message

KINDS = st.sampled_from(EntryKind)
TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def decode(kind: EntryKind, *items: bytes) -> list[dict[str, Any]]:
    builder = BatchBuilder()
    builder.add_block("s", 0, make_block(0, list(items), kind=kind), 0, len(items))
    rows = decode_rows(builder.finish(), TIME)
    rows.validate(full=True)
    assert rows.schema.equals(SILVER_SCHEMA)
    return rows.to_pylist()


@given(KINDS, st.lists(st.binary(max_size=64), min_size=1, max_size=8))
def test_any_bytes_become_a_row_and_none_are_lost(kind: EntryKind, items: list[bytes]) -> None:
    rows = decode(kind, *items)
    assert [row["data_bytes"] for row in rows] == list(map(len, items))
    for row, data in zip(rows, items, strict=True):
        if row["format"] in (None, "binary"):
            assert row["data"] == data
        if kind is EntryKind.BYTES and row["format"] != "binary":
            assert row["content"].encode() == data
        if kind is EntryKind.BYTES:
            broken = row["format"] == "text" and row["content"].lstrip().startswith(("{", "["))
            assert (row["error"] is not None) == broken


@pytest.mark.needs("streamr")
@given(st.integers(0, 10), VALUES)
def test_a_message_with_any_value_anywhere_becomes_a_row(position: int, value: object) -> None:
    fields = json.loads(make_message(5, previous=4, signed=True))
    fields[position] = value
    (row,) = decode(EntryKind.STREAMR, json.dumps(fields).encode())
    assert (row["error"] is None) or row["data"] is not None or row["content"] is not None


@pytest.mark.needs("streamr")
@given(st.integers(0, 5), VALUES)
def test_a_message_id_with_any_value_becomes_a_row(position: int, value: object) -> None:
    fields = json.loads(make_message(5, previous=4))
    fields[1][position] = value
    (row,) = decode(EntryKind.STREAMR, json.dumps(fields).encode())
    assert row["kind"] == "streamr"
