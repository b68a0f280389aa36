"""Decodes rows of bronze to rows of silver, or says why it cannot.

An entry never stops the pipeline: what cannot be decoded becomes a row that has its bytes and the
reason. Entries of kind `bytes` belong to nobody's protocol, so that nothing about them is wrong but
JSON that breaks off.
"""

from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.nextgraph.events import EVENT
from rillnode.codecs.streamr.json_text import read_json
from rillnode.codecs.streamr.message import EncryptionType, decode_message
from rillnode.codecs.streamr.signing import verify_message
from rillnode.node.spark.metadata import nextgraph_metadata, streamr_metadata
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.silver_table import SILVER_COLUMNS, SILVER_SCHEMA
from rillnode.node.spark.tables import BRONZE_SCHEMA

_JSON: Final = msgspec.json.Decoder(msgspec.Raw)


class Decoded(NamedTuple):
    """One decoded entry: columns of silver, times in milliseconds since 1970."""

    event_id: str | None = None
    ts: int | None = None
    publisher: str | None = None
    chain: str | None = None
    seq: int | None = None
    prev_ts: int | None = None
    prev_seq: int | None = None
    message_type: int | None = None
    encryption: str | None = None
    group_key_id: str | None = None
    signature: str | None = None
    format: str | None = None
    content: str | None = None
    data: bytes | None = None
    error: str | None = None


_TIMES: Final = ("ts", "prev_ts", "landed_at")


def decode_rows(rows: pa.RecordBatch, landed_at_ms: int) -> pa.RecordBatch:
    """Decode rows of bronze, in order.

    Args:
        rows: rows of any version of the bronze schema.
        landed_at_ms: when they were committed, ms since 1970.

    Returns:
        As many rows of the silver schema.
    """
    rows = conform(rows, BRONZE_SCHEMA)
    kinds: list[str] = rows.column("kind").to_pylist()
    items: list[bytes | None] = rows.column("data").to_pylist()
    decoded = [decode_entry(kind, data) for kind, data in zip(kinds, items, strict=True)]
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
            _array(values[column.name], column.arrow)
            if column.name in values
            else rows.column(column.name)
            for column in SILVER_COLUMNS
        ],
        schema=SILVER_SCHEMA,
    )


def decode_entry(kind: str, data: bytes | None) -> Decoded:
    """Decode one entry's bytes as its kind says; what is wrong with them is in `error`."""
    if data is None:
        return Decoded(error="entries were trimmed or removed before they were landed")
    try:
        match kind:
            case "bytes":
                return _decode_bytes(data)
            case "streamr":
                return _decode_streamr(data)
            case "nextgraph":
                return _decode_nextgraph(data)
            case _:
                return Decoded(data=data, error=f"kind {kind!r} is of a newer version")
    except CodecError as error:
        return Decoded(data=data, error=str(error))


def _decode_bytes(data: bytes) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Decoded(format="binary", data=data)
    if _is_json(text):
        return Decoded(format="json", content=text)
    # Plain clients push what they like; but who begins an object or a list has meant JSON.
    broken = text.lstrip().startswith(("{", "["))
    why = "the content begins as JSON does, and is none" if broken else None
    return Decoded(format="text", content=text, error=why)


def _decode_streamr(data: bytes) -> Decoded:
    message = decode_message(data)
    said, name = streamr_metadata(message), message.id
    if said.ts is None or (message.previous is not None and said.prev_ts is None):
        raise CodecError("streamr.time", "a time of the message is after the year 9999")
    encrypted = message.encryption_type != EncryptionType.NONE
    is_json = not encrypted and _is_json(message.content)
    return Decoded(
        event_id=f"{said.publisher}/{said.chain}/{name.timestamp}/{name.sequence}",
        ts=said.ts,
        publisher=said.publisher,
        chain=said.chain,
        seq=said.seq,
        prev_ts=said.prev_ts,
        prev_seq=said.prev_seq,
        message_type=message.message_type,
        encryption=said.enc,
        group_key_id=message.group_key_id,
        signature=verify_message(message).value,
        format="encrypted" if encrypted else "json" if is_json else "text",
        content=message.content,
        error=None if encrypted or is_json else "the message's content is no JSON",
    )


def _decode_nextgraph(data: bytes) -> Decoded:
    event = EVENT.decode(data)
    said = nextgraph_metadata(event)
    return Decoded(
        event_id=f"{said.chain}/{said.publisher}/{event.content.seq}",
        publisher=said.publisher,
        chain=said.chain,
        seq=said.seq,
        format="binary",
        data=data,
    )


def _is_json(text: str) -> bool:
    if not text or len(text) > FRAME_BYTES_MAX:
        return False
    try:
        read_json(_JSON, text)
    except CodecError:
        return False
    return True


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of a silver column; times are given as integers."""
    if isinstance(kind, pa.TimestampType):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
