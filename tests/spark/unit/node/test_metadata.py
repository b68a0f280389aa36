import datetime
from typing import Any

import pytest

from pipeline_samples import TIME, make_block, streamr_text
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import EVENT, EventContent, sign_event
from rillnode.codecs.nextgraph.types import DirectPeer, ForwardedPeer, ObfuscatedPeer, PeerId
from rillnode.node.entries import NO_METADATA, Metadata, name_of, reader_of
from rillnode.node.spark.arrow import BatchBuilder


def read_metadata(kind: EntryKind, data: bytes) -> Metadata:
    return reader_of(name_of(kind)).metadata(data)


def event(publisher: PeerId, seq: int) -> bytes:
    content = EventContent(
        topic=Identity.from_seed(bytes(32)).public_key,
        publisher=publisher,
        seq=seq,
        blocks=list[Block](),
        file_ids=[],
        key=b"",
    )
    signer = Identity.from_seed(b"\x01" * 32)
    return EVENT.encode(sign_event(content, signer, signer))


def test_a_stream_message_tells_its_name_chain_and_signature() -> None:
    found = read_metadata(EntryKind.STREAMR, streamr_text())
    key = b"0xabcd/chain"
    assert found == (TIME, "0xabcd", "chain", 3, TIME - 1, 2, b"\x0a\xff", "aes", key)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"previous": None}, {"prev_ts", "prev_seq"}),
        ({"signature": "none of hex"}, {"sig"}),
        ({"signature": None}, {"sig"}),
        ({"id": ["s", 0, 2**50, 3, "0xABcd", "chain"]}, {"ts"}),
    ],
)
def test_what_a_message_lacks_or_no_column_holds_is_null(
    changes: dict[str, Any], missing: set[str]
) -> None:
    found = read_metadata(EntryKind.STREAMR, streamr_text(**changes))._asdict()
    assert {name for name, value in found.items() if value is None} == missing


def test_an_event_tells_its_topic_and_publisher() -> None:
    key = Identity.from_seed(b"\x02" * 32).public_key
    for peer in (DirectPeer(key), ForwardedPeer(key), ObfuscatedPeer(key)):
        found = read_metadata(EntryKind.NEXTGRAPH, event(peer, 7))
        assert (found.publisher, found.seq) == (key.hex(), 7)
        assert found.chain == Identity.from_seed(bytes(32)).public_hex
        assert len(found.sig or b"") == 64
    assert read_metadata(EntryKind.NEXTGRAPH, event(DirectPeer(key), 2**64 - 1)).seq is None


@pytest.mark.parametrize(
    ("kind", "data"), [(EntryKind.STREAMR, streamr_text()), (EntryKind.NEXTGRAPH, b"")]
)
def test_the_key_is_that_which_consumers_see(kind: EntryKind, data: bytes) -> None:
    data = data or event(DirectPeer(bytes(32)), 7)
    found = read_metadata(kind, data)
    assert found.key is not None
    assert Entry(0, 0, 0, kind, data).key == found.key
    wanted = "0xabcd/chain" if kind is EntryKind.STREAMR else found.chain
    assert found.key.decode() == wanted


@pytest.mark.parametrize("kind", list(EntryKind))
@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 40, b"[32]", b"[" * 5_000])
def test_what_is_no_message_has_no_metadata(kind: EntryKind, data: bytes) -> None:
    builder = BatchBuilder()
    builder.add_block("s", 0, make_block(0, [data], kind=kind), 0, 1)
    (row,) = builder.finish().to_pylist()
    assert all(row[name] is None for name in NO_METADATA._fields)
    assert Entry(0, 0, 0, kind, data).key is None


def test_a_batch_has_the_metadata_of_each_row() -> None:
    builder = BatchBuilder()
    messages = [streamr_text(), b"no message"]
    builder.add_gap("s", 0, 0, 5)
    builder.add_block("s", 0, make_block(5, messages, kind=EntryKind.STREAMR), 5, 7)
    builder.add_block("s", 0, make_block(7, [streamr_text()]), 7, 8)
    rows = builder.finish().to_pylist()
    assert [row["chain"] for row in rows] == [None, "chain", None, None]
    assert rows[1]["ts"] == datetime.datetime.fromtimestamp(TIME / 1000, datetime.UTC)
    assert [row["data"] for row in rows] == [None, *messages, streamr_text()]
