"""NextGraph: values come back; any bytes give a message or end the connection."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import given, strategies as st

from nextgraph_support import (
    BROKER,
    CONVERGENCE_KEY,
    LOGIN,
    PEER,
    broker,
    joined,
    make_event,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import (
    BLOCK,
    Block,
    BlockContent,
    HeaderId,
    RandomAccess,
    block_id,
)
from rillnode.codecs.nextgraph.bloom import KnownDigests, make_filter
from rillnode.codecs.nextgraph.bootstrap import parse_invitation
from rillnode.codecs.nextgraph.broker_dialogue import BrokerDialogue
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue
from rillnode.codecs.nextgraph.commits import CommitHeader, commit_header
from rillnode.codecs.nextgraph.events import EVENT, Event, EventContent, check_event
from rillnode.codecs.nextgraph.messages import decode_message, encode_message
from rillnode.codecs.nextgraph.objects import join_object, split_object
from rillnode.codecs.nextgraph.requests import BlocksPut, ClientRequest, TopicSyncReq
from rillnode.codecs.nextgraph.results import NextGraphError
from rillnode.codecs.nextgraph.text_ids import format_id, from_base64url, parse_id, to_base64url
from rillnode.codecs.nextgraph.types import (
    NIL_OVERLAY,
    DirectPeer,
    ForwardedPeer,
    ObfuscatedPeer,
)

T = TypeVar("T")

KEYS = st.binary(min_size=32, max_size=32)
SIGNATURES = st.binary(min_size=64, max_size=64)
IDS = st.lists(KEYS, max_size=4)
HEADERS = st.one_of(
    st.none(), st.binary(max_size=99), st.builds(HeaderId, KEYS), st.builds(RandomAccess)
)
BLOCKS = st.builds(
    Block,
    st.none() | KEYS,
    st.builds(BlockContent, HEADERS, IDS, st.binary(max_size=300)),
)
EVENTS = st.builds(
    Event,
    st.builds(
        EventContent,
        KEYS,
        st.one_of(*(st.builds(kind, KEYS) for kind in (DirectPeer, ForwardedPeer, ObfuscatedPeer))),
        st.integers(0, 2**64 - 1),
        st.lists(BLOCKS, max_size=3),
        IDS,
        st.binary(max_size=40),
    ),
    SIGNATURES,
    SIGNATURES,
)
MESSAGES = st.builds(
    ClientMessage,
    st.just(NIL_OVERLAY),
    st.one_of(
        EVENTS,
        BLOCKS,
        st.builds(
            ClientRequest,
            st.integers(-(2**63), 2**63 - 1),
            st.one_of(
                EVENTS,
                st.builds(BlocksPut, st.lists(BLOCKS, max_size=3)),
                st.builds(TopicSyncReq, KEYS, IDS, IDS, st.none()),
            ),
        ),
    ),
    st.binary(max_size=9),
)


def attempt(decode: Callable[[bytes], T], data: bytes) -> T | None:
    """Decode; a CodecError that says where is None, all else that is raised is a failure."""
    try:
        return decode(data)
    except CodecError as error:
        if not 0 <= error.offset <= len(data):
            raise
        return None


def written_back(data: bytes) -> None:
    """What is read is written in one form, however it was padded."""
    message = attempt(decode_message, data)
    if message is not None:
        form = encode_message(message)
        assert len(form) <= len(data)
        assert decode_message(form) == message


def close_code(side: ClientDialogue | BrokerDialogue, frame: bytes) -> int:
    """What a frame makes a side close with; 4000 if it takes it."""
    try:
        side.receive(frame)
    except NextGraphError as error:
        return error.closing.close_code
    return 4_000


@given(MESSAGES)
def test_messages_come_back(message: ClientMessage) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.integers(0, 17), st.binary(max_size=300))
def test_any_bytes_give_a_message_or_a_codec_error(tag: int, data: bytes) -> None:
    written_back(data)
    written_back(bytes([tag]) + data)
    written_back(b"\x0e\x00\x02\x00\x00" + data)


@given(MESSAGES, st.data())
def test_changed_messages_give_a_message_or_a_codec_error(
    message: ClientMessage, data: st.DataObject
) -> None:
    changed = bytearray(encode_message(message))
    for _ in range(3):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    written_back(bytes(changed))


@given(st.binary(max_size=300))
def test_any_bytes_give_a_block_or_an_event_or_a_codec_error(data: bytes) -> None:
    attempt(BLOCK.decode, data)
    attempt(EVENT.decode, data)


@given(st.lists(st.binary(max_size=200), max_size=6), st.data())
def test_any_frames_are_taken_or_end_the_connection(
    frames: list[bytes], data: st.DataObject
) -> None:
    client = ClientDialogue(PEER, BROKER.public_key, LOGIN)
    near, far = joined()
    sides: list[ClientDialogue | BrokerDialogue] = [client, broker(), near, far]
    side = data.draw(st.sampled_from(sides))
    for frame in frames:
        for sent in (frame, b"\x06\x00" + bytes([len(frame) % 128]) + frame):
            assert 4_000 <= close_code(side, sent) < 5_000


@given(st.binary(max_size=200))
def test_any_sealed_bytes_are_taken_or_end_the_connection(data: bytes) -> None:
    near, far = joined()
    for side, frame in ((far, near.seal(data)), (near, far.seal(data))):
        assert 4_000 <= close_code(side, frame) < 5_000


@given(st.binary(max_size=40), st.integers(0, 400), st.none() | st.binary(max_size=5_000))
def test_objects_come_back(piece: bytes, times: int, header: bytes | None) -> None:
    content = piece * times
    made = split_object(content, CONVERGENCE_KEY, header=header)
    blocks = {block_id(block): block for block in made.blocks}
    assert len(blocks) == len(made.blocks)
    assert join_object(made.reference, blocks, content_bytes_max=len(content)) == content


@given(st.builds(CommitHeader, IDS, IDS, st.booleans(), IDS, IDS, IDS, IDS))
def test_headers_come_back_in_events(header: CommitHeader) -> None:
    event, _ = make_event(header=header)
    again = EVENT.decode(EVENT.encode(event))
    check_event(again)
    assert commit_header(again.content.blocks) == header


@given(st.lists(BLOCKS, max_size=3))
def test_any_blocks_have_a_header_or_give_a_codec_error(blocks: list[Block]) -> None:
    try:
        commit_header(blocks)
    except CodecError:
        return
    assert blocks


@given(st.sets(KEYS, max_size=30), st.integers(0, 40))
def test_filters_contain_what_was_put_in(digests: set[bytes], keys: int) -> None:
    known = KnownDigests(make_filter(digests, keys))
    assert all(digest in known for digest in digests)


@given(KEYS, st.binary(max_size=50))
def test_text_forms_come_back(key: bytes, data: bytes) -> None:
    assert parse_id(format_id(key)) == key
    assert from_base64url(to_base64url(data)) == data


@given(st.text(max_size=60))
def test_any_text_gives_an_id_and_an_invitation_or_a_codec_error(text: str) -> None:
    for parse in (parse_id, parse_invitation):
        try:
            parse(text)
        except CodecError:
            continue
