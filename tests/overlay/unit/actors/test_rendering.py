"""Entries as other nodes see them, and other nodes' messages as entries."""

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.log import StreamRecord
from rillnode.actors.overlay.rendering import CHAIN, Renderer, is_carried, item_of
from rillnode.codecs.entries import Entry, EntryKind, NewEntry
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import encode_headers
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import BroadcastMessage
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage

RECORD = StreamRecord(name="s", id=7, created_at=1_000)
HERE, THERE = Renderer(RECORD, 2, "a" * 64), Renderer(RECORD, 2, "b" * 64)


def carried(data: bytes, index: int = 5, previous: int | None = 3) -> StreamMessage:
    message = HERE.message(Entry(2, index, 2_000, EntryKind.BYTES, data), previous)
    assert message is not None
    return message


@given(st.binary(max_size=100) | st.sampled_from([b'{"data":"aGk="}', b'{"data":1}', b"1e999"]))
def test_bytes_travel_exactly(data: bytes) -> None:
    text = encode_control(BroadcastMessage(message=carried(data), request_id=""), 2, 32)
    read = decode_control(text.encode())[1]
    assert isinstance(read, BroadcastMessage)
    item = item_of(read.message, read.message_text)
    assert (item.kind, item.entry.data) == (EntryKind.BYTES, data)
    assert item.meta


@given(
    data=st.binary(max_size=40) | st.sampled_from([b'{"a":1}', b'{"data":"aGk=","key":"aGk="}']),
    key=st.none() | st.binary(max_size=20),
    headers=st.dictionaries(st.sampled_from(["a", "trace"]), st.binary(max_size=9)),
)
def test_keys_and_headers_travel_with_the_bytes(
    data: bytes, key: bytes | None, headers: dict[str, bytes]
) -> None:
    encoded = encode_headers(headers)
    entry = Entry(2, 5, 2_000, EntryKind.BYTES, data, b"", key, encoded)
    message = HERE.message(entry)
    assert message is not None
    text = encode_control(BroadcastMessage(message=message, request_id=""), 2, 32)
    read = decode_control(text.encode())[1]
    assert isinstance(read, BroadcastMessage)
    item = item_of(read.message, read.message_text)
    assert item.entry == NewEntry(data, key, encoded)
    at_others = Entry(2, 99, 3_000, item.kind, data, item.meta, key, encoded)
    assert THERE.message(at_others) == message


def test_a_carried_entry_names_its_stream_its_node_and_the_one_before() -> None:
    message = carried(b"x")
    assert message.id == MessageId("s", 2, 1_000, 5, "a" * 64, CHAIN)
    assert message.previous == MessageRef(1_000, 3)
    assert carried(b"x", previous=None).previous is None
    assert is_carried(message)


def test_a_node_that_has_it_from_another_hands_on_the_same_message() -> None:
    message = carried(b"\x00")
    item = item_of(message, None)
    again = THERE.message(Entry(2, 99, 3_000, item.kind, item.entry.data, item.meta))
    assert again == message


def test_messages_of_streamrs_clients_stay_as_they_are() -> None:
    name = MessageId("s", 2, 5, 0, "0xAb", "c")
    message = StreamMessage(id=name, content='{"a":1}')
    text = encode_control(BroadcastMessage(message=message, request_id=""), 2, 32).encode()[8:-1]
    item = item_of(message, text)
    assert (item.kind, item.entry.data, item.meta) == (EntryKind.STREAMR, text, b"")
    assert not is_carried(message)
    assert HERE.message(Entry(2, 0, 0, item.kind, item.entry.data)) == message


def test_what_has_no_message_is_left_out() -> None:
    assert HERE.message(Entry(2, 0, 0, EntryKind.NEXTGRAPH, b"x")) is None
    assert HERE.message(Entry(2, 0, 0, EntryKind.STREAMR, b"no message")) is None


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        '{"data":"?"}',
        '{"data":"","key":"?"}',
        '{"data":"","key":"%s"}' % ("AAAA" * 400),
        f'"{"x" * ENTRY_BYTES_MAX}"',
        '{"data":"%s"}' % ("AAAA" * (ENTRY_BYTES_MAX // 3 + 1)),
        '{"data":"","headers":"gaDEAA=="}',
        '{"data":"","headers":"%s"}' % ("AAAA" * 9_999),
    ],
)
def test_content_that_no_node_has_written_is_refused(content: str) -> None:
    name = MessageId("s", 2, 5, 0, "a" * 64, CHAIN)
    with pytest.raises(CodecError):
        item_of(StreamMessage(id=name, content=content), None)


def test_a_message_that_is_larger_than_an_entry_may_be_is_refused() -> None:
    name = MessageId("s", 2, 5, 0, "0xAb", "c")
    with pytest.raises(CodecError, match=r"entries\.size"):
        item_of(StreamMessage(id=name, content="x" * ENTRY_BYTES_MAX), None)
