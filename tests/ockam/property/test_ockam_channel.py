"""Secure channels under hostile input, and under a network that reorders, repeats and loses."""

from typing import Final

import pytest
from hypothesis import given, strategies as st

from channel_peer import LEVELS, ChannelPeer, Name, data
from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.ockam.channel import ChannelInitiator, ChannelResponder, read_first_message
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.ockam.limits import CHANNEL_HANDSHAKE_BYTES_MAX, CHANNEL_WINDOW_MESSAGES

STATIC: Final = b"the node's key".ljust(32, b".")
EPHEMERAL: Final = bytes(range(32))

handshake_bytes = st.binary(max_size=300) | st.binary(min_size=32, max_size=32).map(
    lambda key: data(key) + b"\0"
)


def session_of(peer: ChannelPeer) -> ChannelSession:
    responder = ChannelResponder(STATIC, peer.message_1())
    return responder.finish(peer.message_3(responder.message_2(b"plain")))


@given(handshake_bytes | st.binary(min_size=1_000, max_size=1_100))
def test_any_bytes_are_message_1_or_refused(payload: bytes) -> None:
    try:
        first = read_first_message(payload)
        answer = ChannelResponder(STATIC, payload).message_2(b"plain")
    except (CodecError, HandshakeError):
        return
    assert first.noise in payload
    assert len(first.noise) >= 32
    assert len(answer) <= 32 + 48 + 16 + 5 + 2
    assert len(payload) <= CHANNEL_HANDSHAKE_BYTES_MAX


@given(st.sampled_from(Level), handshake_bytes)
def test_no_bytes_but_the_responder_s_are_message_2(level: Level, payload: bytes) -> None:
    initiator = ChannelInitiator(level, STATIC)
    initiator.message_1()
    with pytest.raises((CodecError, HandshakeError)):
        initiator.read_message_2(payload)


@given(st.sampled_from(LEVELS), handshake_bytes)
def test_no_bytes_but_the_initiator_s_are_message_3(level: Name, payload: bytes) -> None:
    responder = ChannelResponder(STATIC, ChannelPeer(level).message_1(), ephemeral=EPHEMERAL)
    responder.message_2(b"plain")
    with pytest.raises((CodecError, HandshakeError)):
        responder.finish(payload)


@given(st.sampled_from(LEVELS), st.lists(st.binary(max_size=100), max_size=5))
def test_any_bytes_are_refused_by_an_open_channel(level: Name, payloads: list[bytes]) -> None:
    peer = ChannelPeer(level)
    session = session_of(peer)
    message = peer.seal(b"text")
    for payload in payloads:
        with pytest.raises(CodecError) as caught:
            session.open(payload)
        assert 0 <= caught.value.offset <= len(payload)
    assert session.open(message) == b"text"


@given(
    level=st.sampled_from(LEVELS),
    order=st.lists(st.integers(0, 40) | st.integers(0, 3_000), max_size=60),
)
def test_each_message_opens_at_most_once_in_any_order(level: Name, order: list[int]) -> None:
    peer = ChannelPeer(level)
    session = session_of(peer)
    opened: set[int] = set()
    for number in order:
        expected = number not in opened and number > max(opened, default=-1) - (
            CHANNEL_WINDOW_MESSAGES
        )
        payload = peer.seal(b"%d" % number, nonce=number)
        if expected:
            assert session.open(payload) == b"%d" % number
            opened.add(number)
        else:
            with pytest.raises(CodecError) as caught:
                session.open(payload)
            assert caught.value.code == "channel.replay"


@given(st.sampled_from(LEVELS), st.lists(st.binary(max_size=2_000), max_size=20))
def test_what_is_sealed_opens_at_the_other_end(level: Name, texts: list[bytes]) -> None:
    peer = ChannelPeer(level)
    session = session_of(peer)
    session.open(peer.seal(b"settles the level"))
    assert [peer.open(session.seal(text)) for text in texts] == texts
    assert [session.open(peer.seal(text)) for text in texts] == texts
