from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from chained_tables import Pipeline
from pipeline_samples import TIME, make_block
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.events import EVENT, EventContent, sign_event
from rillnode.codecs.nextgraph.types import ForwardedPeer
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.node.entries import TIME_MS_MAX
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.silver import (
    decode_entry,
    decode_rows,
)
from rillnode.node.spark.tables import SILVER_SCHEMA
from streamr_samples import KEY, START_MS, make_message


def bronze(*entries: tuple[EntryKind, bytes]) -> pa.RecordBatch:
    builder = BatchBuilder()
    for at, (kind, data) in enumerate(entries):
        builder.add_block("s", 0, make_block(at, [data], kind=kind), at, at + 1)
    builder.add_gap("s", 0, len(entries), len(entries) + 3)
    return builder.finish()


def test_rows_keep_their_place_and_get_what_their_bytes_say() -> None:
    message = make_message(5, previous=2, signed=True)
    rows = decode_rows(
        bronze(
            (EntryKind.BYTES, b'{"a":1}'),
            (EntryKind.STREAMR, message),
            (EntryKind.STREAMR, b"[32,"),
        ),
        TIME + 1,
    )
    assert rows.schema.equals(SILVER_SCHEMA)
    plain, decoded, malformed, gap = rows.to_pylist()
    assert [row["index"] for row in rows.to_pylist()] == [0, 1, 2, 3]
    assert (plain["event_id"], plain["format"], plain["content"]) == ("#0", "json", '{"a":1}')
    assert plain["data"] is None
    assert decoded["publisher"] == KEY.address.lower()
    assert decoded["event_id"] == f"{KEY.address.lower()}/c/{START_MS + 5}/0"
    assert (decoded["signature"], decoded["message_type"]) == ("valid", 27)
    assert (decoded["content"], decoded["encryption"]) == ('{"n":1}', "none")
    assert decoded["data_bytes"] == len(message)
    assert decoded["ts"].timestamp() * 1000 == START_MS + 5
    assert decoded["prev_ts"].timestamp() * 1000 == START_MS + 2
    assert decoded["landed_at"].timestamp() * 1000 == pytest.approx(TIME + 1)
    assert malformed["error"].endswith("[codec.json]")
    assert malformed["data"] == b"[32,"
    assert (gap["kind"], gap["gap_until"], gap["received_at"]) == ("gap", 6, None)
    assert gap["error"] == "entries were trimmed or removed before they were landed"


def test_no_rows_have_every_column() -> None:
    assert decode_rows(bronze().slice(0, 0), TIME).schema.equals(SILVER_SCHEMA)


def test_rows_of_an_older_bronze_schema_are_decoded() -> None:
    rows = bronze((EntryKind.BYTES, b"x"))
    names = ("stream", "partition", "index", "received_at", "kind", "data")
    old = pa.RecordBatch.from_arrays(
        [rows.column(name) for name in names], schema=pa.schema(map(rows.schema.field, names))
    )
    assert decode_rows(old, TIME).to_pylist()[0]["content"] == "x"


@pytest.mark.parametrize(
    ("data", "form", "content"),
    [
        (b'{"a":1}', "json", '{"a":1}'),
        (b"12", "json", "12"),
        (b"twelve", "text", "twelve"),
        (b"", "text", ""),
        (b"\xff\x00", "binary", None),
    ],
)
def test_bytes_are_told_by_what_they_hold_and_not_wrong(
    data: bytes, form: str, content: str | None
) -> None:
    row = decode_entry("bytes", data)
    assert (row.format, row.content, row.error) == (form, content, None)
    assert row.data == (data if form == "binary" else None)


@pytest.mark.parametrize("data", [b"[" * 5_000, b'{"id":1', b" [1,2", b"{]", b'{"a":1}}'])
def test_json_that_breaks_off_is_told_of_plain_clients_too(data: bytes) -> None:
    row = decode_entry("bytes", data)
    assert (row.format, row.content) == ("text", data.decode())
    assert row.error == "the content begins as JSON does, and is none"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "valid"),
        ({"content": '{"n":2}'}, "not signed by its publisher"),
        ({"signature": "0x12"}, "malformed signature or publisher"),
        ({"signature_type": 0, "signature": None}, "unsigned"),
    ],
)
def test_the_signatures_verdict_is_told(changes: dict[str, object], verdict: str) -> None:
    signed = make_message(5, signed=True)
    changed = encode_message(replace(decode_message(signed), **changes), 32).encode()
    assert decode_entry("streamr", changed).signature == verdict


def test_an_encrypted_content_stays_as_it_is() -> None:
    row = decode_entry("streamr", make_message(5, content="abcd", encryption_type=2))
    assert (row.format, row.content, row.encryption, row.error) == (
        "encrypted",
        "abcd",
        "aes",
        None,
    )


def test_a_content_that_is_no_json_is_kept_with_the_reason() -> None:
    row = decode_entry("streamr", make_message(5, content="{"))
    assert (row.content, row.error) == ("{", "the message's content is no JSON")


def test_a_time_that_no_reader_can_show_is_malformed() -> None:
    data = make_message(TIME_MS_MAX - START_MS)
    assert decode_entry("streamr", data).ts == TIME_MS_MAX
    data = make_message(TIME_MS_MAX - START_MS + 1)
    row = decode_entry("streamr", data)
    assert (row.ts, row.data) == (None, data)
    assert row.error is not None
    assert "9999" in row.error


def test_a_nextgraph_event_is_opaque_but_for_its_names() -> None:
    topic, publisher = Identity.from_seed(b"\x01" * 32), Identity.from_seed(b"\x02" * 32)
    names = [bytes.fromhex(one.public_hex) for one in (topic, publisher)]
    content = EventContent(names[0], ForwardedPeer(names[1]), 7, [], [], b"key")
    data = EVENT.encode(sign_event(content, topic, publisher))
    row = decode_entry("nextgraph", data)
    assert (row.chain, row.publisher, row.seq) == (topic.public_hex, publisher.public_hex, 7)
    assert (row.format, row.data, row.error) == ("binary", data, None)
    assert decode_entry("nextgraph", data[:-1]).error is not None


def test_a_kind_of_a_newer_version_is_kept() -> None:
    row = decode_entry("later", b"x")
    why = "kind 'later' is of a newer version, or of a plug-in that is not installed"
    assert (row.data, row.error) == (b"x", why)


def test_events_are_decoded_once_and_what_is_wrong_is_kept(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    first, second = make_message(1, signed=True), make_message(2, previous=1)
    pipeline.land(first, second, first, b"[32,")
    pipeline.land(b'{"a":1}', kind=EntryKind.BYTES)
    pipeline.run()
    pipeline.land(second, make_message(3, previous=2), make_message(2, content='{"n":2}'))
    pipeline.run()
    found = pipeline.rows()
    assert [row["index"] for row in found] == [0, 1, 3, 4, 6, 7]
    assert [row["signature"] for row in found[:2]] == ["valid", "unsigned"]
    assert (found[2]["data"], found[2]["error"] is None) == (b"[32,", False)
    assert (found[3]["format"], found[3]["content"]) == ("json", '{"a":1}')
    # Of two messages under one id that differ, neither is lost.
    assert [row["event_id"] for row in found].count(found[1]["event_id"]) == 2
