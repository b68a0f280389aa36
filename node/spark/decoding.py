"""Decodes rows of bronze to rows of silver, or says why it cannot.

An entry never stops the pipeline: what cannot be decoded becomes a row that has its bytes and the
reason.
"""

from typing import Any, Final

import pyarrow as pa

from rillnode.codecs.errors import CodecError
from rillnode.node.entries import WITHOUT_KEYS, Decoded, Readers, Unreadable
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import BRONZE_SCHEMA, SILVER_SCHEMA

_TIMES: Final = ("ts", "prev_ts", "landed_at")


def decode_rows(
    rows: pa.RecordBatch, landed_at_ms: int, readers: Readers = WITHOUT_KEYS
) -> pa.RecordBatch:
    """Decode rows of bronze, in order.

    Args:
        rows: rows of any version of the bronze schema.
        landed_at_ms: when they were committed, ms since 1970.
        readers: decode the entries.

    Returns:
        As many rows of the silver schema.
    """
    rows = conform(rows, BRONZE_SCHEMA)
    kinds: list[str] = rows.column("kind").to_pylist()
    items: list[bytes | None] = rows.column("data").to_pylist()
    decoded = [decode_entry(kind, data, readers) for kind, data in zip(kinds, items, strict=True)]
    values: dict[str, list[Any]] = {
        name: [row[at] for row in decoded] for at, name in enumerate(Decoded._fields)
    }
    indexes: list[int] = rows.column("index").to_pylist()
    values["event_id"] = [
        f"#{index}" if name is None else name
        for index, name in zip(indexes, values["event_id"], strict=True)
    ]
    values["landed_at"] = [landed_at_ms] * len(items)
    values["data_bytes"] = [len(data or b"") for data in items]
    for name in _TIMES:
        values[name] = [None if time is None else time * 1000 for time in values[name]]
    return pa.RecordBatch.from_arrays(
        [
            _array(values[column.name], column.type)
            if column.name in values
            else rows.column(column.name)
            for column in SILVER_SCHEMA
        ],
        schema=SILVER_SCHEMA,
    )


def decode_entry(kind: str, data: bytes | None, readers: Readers = WITHOUT_KEYS) -> Decoded:
    """Decode one entry's bytes as its kind says; what is wrong with them is in `error`."""
    if data is None:
        return Decoded(error="entries were trimmed or removed before they were landed")
    try:
        return readers.of(kind).decoded(data)
    except (CodecError, Unreadable) as error:
        return Decoded(data=data, error=str(error))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of a silver column; times are given as integers."""
    if isinstance(kind, pa.TimestampType):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
