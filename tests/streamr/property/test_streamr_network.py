"""Streamr's network layer: frames come back; messages of a chain are told apart and ordered."""

import json
from contextlib import suppress

from hypothesis import given, strategies as st

from rillnode.actors.overlay.translating import Role, Translator
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.wire import wire_codec
from rillnode.codecs.streamr.duplicates import DuplicateDetector
from rillnode.codecs.streamr.network import (
    EXTENDED_VERSION,
    FindStorageNodes,
    Form,
    Frame,
    Instruction,
    Location,
    Message,
    Status,
    StatusMessage,
    StorageNodes,
    StreamStatus,
    Wrapper,
    decode_frame,
    encode_frame,
)
from rillnode.codecs.streamr.ordering import GapFound, GapSkipped, Ordered, OrderedChain
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXTS.filter(bool)
COUNTS = st.integers(0, 2**53 - 1)
NODES = st.lists(TEXTS, max_size=4).map(tuple)
RATIOS = st.none() | st.integers(-1_000, 1_000) | st.floats(-1e6, 1e6)
STATUSES = st.builds(
    Status,
    streams=st.dictionaries(
        TEXTS,
        st.builds(
            StreamStatus,
            inbound_nodes=NODES,
            outbound_nodes=NODES,
            counter=st.none() | COUNTS,
        ),
        max_size=3,
    ),
    started=TEXTS,
    rtts=st.none() | st.dictionaries(TEXTS, RATIOS, max_size=3),
    location=st.none()
    | st.builds(Location, latitude=RATIOS, longitude=RATIOS, country=st.none() | TEXTS),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)
KEYS = st.sampled_from(["version", "code", "payload", "streamId", "streamPartition"])
NEARLY = st.one_of(
    st.tuples(
        st.sampled_from([1, 2, "4.4.3", 1.0, True]), st.integers(-1, 6), st.lists(VALUES)
    ).map(lambda parts: [parts[0], parts[1], *parts[2]]),
    st.dictionaries(KEYS, VALUES | st.integers(0, 4) | st.dictionaries(KEYS, VALUES)),
)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    form: Form = draw(st.sampled_from(Form))
    is_specified = form is Form.SPECIFICATION
    partition = None if is_specified else draw(COUNTS)
    counter = None if is_specified else draw(st.none() | COUNTS)
    name, nodes = draw(NAMES), draw(NODES)
    messages: list[Message] = [
        StatusMessage(status=draw(TEXTS) if is_specified else draw(STATUSES)),
        Instruction(
            stream_id=name, stream_partition=partition, node_addresses=nodes, counter=counter
        ),
        FindStorageNodes(stream_id=name, stream_partition=partition),
        StorageNodes(stream_id=name, stream_partition=partition, node_addresses=nodes),
        Wrapper(payload=json.dumps([2, 9, draw(TEXTS), name])),
    ]
    message = draw(st.sampled_from(messages))
    if form is Form.OBJECT:
        return Frame(message=message, form=form, version=draw(TEXTS))
    if is_specified:
        return Frame(message=message, form=form, version=draw(TEXTS), source=draw(TEXTS))
    if form is Form.EXTENDED:
        version, source = EXTENDED_VERSION, draw(TEXTS)
        return Frame(message=message, form=form, version=version, source=source)
    request_id = "" if isinstance(message, Wrapper) else draw(TEXTS)
    return Frame(message=message, form=form, request_id=request_id)


@given(frames())
def test_frame_comes_back(frame: Frame) -> None:
    assert decode_frame(encode_frame(frame)) == frame


@given(st.binary(max_size=80) | st.text(max_size=80) | NEARLY.map(json.dumps))
def test_any_frame_is_read_or_refused(text: str | bytes) -> None:
    try:
        frame = decode_frame(text)
    except CodecError:
        return
    assert decode_frame(encode_frame(frame)) == frame


@given(st.data(), st.integers(2, 12))
def test_every_message_is_fresh_once(data: st.DataObject, count: int) -> None:
    """Whatever the order, and however often they come."""
    arrivals = data.draw(st.lists(st.integers(1, count), min_size=1, max_size=40))
    detector = DuplicateDetector()
    seen = set(range(arrivals[0]))
    for number in arrivals:
        assert detector.check((number - 1, 0), (number, 0)) == (number not in seen)
        seen.add(number)
    gaps = detector.gaps
    assert all(lower < upper for lower, upper in gaps)
    assert all(gaps[n][1] <= gaps[n + 1][0] for n in range(len(gaps) - 1))


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.integers(1, 3),
)
def test_detector_stays_whole_whatever_it_is_told(
    pairs: list[tuple[int | None, int]], gaps_max: int
) -> None:
    detector = DuplicateDetector(gaps_max=gaps_max)
    for previous, number in pairs:
        before = detector.gaps
        fresh = False
        with suppress(CodecError):
            fresh = detector.check(None if previous is None else (previous, 0), (number, 0))
        gaps = detector.gaps
        assert fresh or gaps == before
        assert len(gaps) <= gaps_max
        assert all(lower < upper for lower, upper in gaps)
        assert all(gaps[n][1] <= gaps[n + 1][0] for n in range(len(gaps) - 1))


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 12), st.integers(0, 12)), max_size=40),
    st.integers(0, 2),
    st.integers(1, 4),
)
def test_chain_is_ordered_whatever_comes(
    arrivals: list[tuple[int | None, int]], requests_max: int, messages_max: int
) -> None:
    chain = OrderedChain(requests_max=requests_max, messages_max=messages_max)
    delivered: list[int] = []
    now = 0.0
    for previous, number in arrivals:
        message = StreamMessage(
            id=MessageId("s", 0, number, 0, "p", "c"),
            content="{}",
            previous=None if previous is None else MessageRef(previous, None),
        )
        events = chain.add(message, now)
        delivered += [e.message.id.timestamp for e in events if isinstance(e, Ordered)]
        assert chain.waiting <= messages_max
        assert (chain.deadline is None) == (chain.waiting == 0)
    while chain.deadline is not None:
        now = chain.deadline
        for event in chain.poll(now):
            match event:
                case Ordered(message=message):
                    delivered.append(message.id.timestamp)
                case GapFound(first=first, last=last) | GapSkipped(first=first, last=last):
                    assert first <= last
    assert delivered == sorted(set(delivered))
    assert chain.waiting == 0


@given(st.permutations(range(2, 12)))
def test_chain_without_loss_is_delivered_whole(order: list[int]) -> None:
    chain = OrderedChain()
    delivered: list[int] = []
    for number in (1, *order):
        message = StreamMessage(
            id=MessageId("s", 0, number, 0, "p", "c"),
            content="{}",
            previous=MessageRef(number - 1, 0),
        )
        events = chain.add(message, 0.0)
        delivered += [e.message.id.timestamp for e in events if isinstance(e, Ordered)]
    assert delivered == list(range(1, 12))


@given(st.sampled_from(Role), st.binary() | NEARLY.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_released_peer_writes_is_translated_or_refused(role: Role, text: bytes) -> None:
    try:
        wire = Translator(role).incoming(text)
    except CodecError:
        return
    assert list(wire_codec("bare").decode([wire]))
