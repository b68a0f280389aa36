"""Any split of a byte stream gives the same messages; any bytes give messages or an error."""

from contextlib import suppress

from hypothesis import given, settings, strategies as st

from link_support import CLIENT, NODE, SUITES, noise_pair
from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.framing import LinkCodec, MessageJoiner, joined_messages
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.framing import U16Framing

unhurried = settings(deadline=None)

messages = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=50),
        st.integers(1, 65_000).map(lambda size: bytes([size % 251]) * size),
    ),
    max_size=8,
)
sizes = st.lists(st.integers(1, 70_000) | st.integers(1, 9), max_size=40)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    cut, at = list[bytes](), 0
    for size in cuts:
        cut.append(stream[at : at + size])
        at += size
    return [*cut, stream[at:]]


def received(codec: LinkCodec, data: list[bytes]) -> list[bytes]:
    return [message for piece in data for message in codec.receive(piece)]


@unhurried
@given(messages, sizes)
def test_u16_frames_survive_any_split(sent: list[bytes], cuts: list[int]) -> None:
    codec = U16Framing()
    assert received(codec, pieces(codec.encode(sent), cuts)) == sent
    codec.end()


@unhurried
@given(st.sampled_from(SUITES), st.lists(messages, max_size=4), sizes, st.integers(1, 5))
def test_noise_records_survive_any_split(
    suite: Suite, batches: list[list[bytes]], cuts: list[int], rekey_records: int
) -> None:
    near, far = noise_pair(suite, rekey_records=rekey_records)
    stream = b"".join([near.encode(batch) + near.ping() for batch in batches])
    assert received(far, pieces(stream, cuts)) == [m for batch in batches for m in batch]
    far.end()


@unhurried
@given(sizes, sizes)
def test_a_handshake_survives_any_split(near_cuts: list[int], far_cuts: list[int]) -> None:
    near = NoiseLink.initiator(CLIENT, node_identity=NODE.public_hex)
    far = NoiseLink.responder(NODE, accept=lambda _: True)
    received(far, pieces(near.start(), far_cuts))
    received(near, pieces(far.take_output(), near_cuts))
    received(far, pieces(near.take_output(), far_cuts))
    got = received(near, pieces(far.take_output() + far.encode([b"first"]), near_cuts))
    assert got == [b"first"]


@unhurried
@given(messages, sizes)
def test_joined_messages_survive_any_split(sent: list[bytes], cuts: list[int]) -> None:
    joiner, got = MessageJoiner(), list[bytes]()
    for piece in pieces(joined_messages(sent), cuts):
        joiner.feed(piece, got)
    assert got == sent
    assert not joiner.inside_message


@unhurried
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_are_u16_frames_of_something(data: list[bytes]) -> None:
    whole, split = U16Framing(), U16Framing()
    assert received(split, data) == whole.receive(b"".join(data))


@unhurried
@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_plaintext_is_messages_or_a_codec_error(data: list[bytes]) -> None:
    joiner, got = MessageJoiner(), list[bytes]()
    with suppress(CodecError):
        for piece in data:
            joiner.feed(piece, got)
    assert sum(map(len, got)) <= sum(map(len, data))


@unhurried
@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_in_a_handshake_wait_or_fail(data: bytes, dialled: bool, begun: bool) -> None:
    if dialled:
        codec = NoiseLink.initiator(CLIENT)
    else:
        codec = NoiseLink.responder(NODE, accept=lambda _: True)
        data = NoiseLink.initiator(CLIENT).start() + data if begun else data
    with suppress(HandshakeError, CodecError):
        assert codec.receive(data) == []
    assert not codec.established


@unhurried
@given(messages.filter(bool), st.data())
def test_any_change_of_a_record_stream_is_found(sent: list[bytes], data: st.DataObject) -> None:
    near, far = noise_pair()
    stream = bytearray(near.encode(sent))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    try:
        got = far.receive(bytes(stream))
        far.end()
    except CodecError:
        return
    raise AssertionError(f"a change at byte {at} went unseen: {len(got)} messages")
