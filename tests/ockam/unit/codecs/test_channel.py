"""Secure channels without actors: every level, in both roles, and what does not belong."""

import pytest

from channel_peer import LEVELS, ChannelPeer, Name, data
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import CodecError, ConfigError, HandshakeError
from rillnode.codecs.ockam.channel import (
    ChannelInitiator,
    ChannelResponder,
    encode_completed,
    read_first_message,
)
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.ockam.limits import CHANNEL_HANDSHAKE_BYTES_MAX
from rillnode.codecs.routing.routes import Address, local

NODE = ChannelKey(b"the node's key".ljust(32, b"."))
CLIENT = ChannelKey(b"the client's key".ljust(32, b"."))
CALLBACK = b"\1\0" + data(b"worker")


def respond(peer: ChannelPeer, extra: bytes = b"\0") -> ChannelSession:
    """A handshake with the peer; the responder's end."""
    responder = ChannelResponder(NODE.private, peer.message_1(extra))
    message = peer.message_3(responder.message_2(b"plain"))
    session = responder.finish(message)
    assert responder.remote_key.hex() == peer.key
    return session


def pair(level: Level) -> tuple[ChannelSession, ChannelSession]:
    """Both ends of a channel."""
    initiator = ChannelInitiator(level, CLIENT.private)
    responder = ChannelResponder(NODE.private, initiator.message_1())
    initiator.read_message_2(responder.message_2(b""))
    message, session = initiator.finish(b"")
    return session, responder.finish(message)


def code_of(payload: bytes) -> str:
    with pytest.raises(CodecError) as caught:
        read_first_message(payload)
    return caught.value.code


@pytest.mark.parametrize("level", LEVELS)
def test_a_peer_of_each_level_opens_a_channel(level: Name) -> None:
    peer = ChannelPeer(level)
    session = respond(peer)
    assert peer.payload_2 == b"plain"
    assert peer.remote_key == NODE.public_hex
    for number in range(3):
        assert session.open(peer.seal(b"question %d" % number)) == b"question %d" % number
        assert peer.open(session.seal(b"answer %d" % number)) == b"answer %d" % number
    assert session.level.value == level


@pytest.mark.parametrize("level", Level)
def test_both_roles_understand_each_other(level: Level) -> None:
    near, far = pair(level)
    for number in range(300):
        text = bytes(number)
        assert far.open(near.seal(text)) == text
        assert near.open(far.seal(text)) == text
    assert far.level is level


def test_the_initiator_learns_whom_it_talks_to_before_it_says_who_it_is() -> None:
    initiator = ChannelInitiator(Level.BOTH_2022, CLIENT.private)
    responder = ChannelResponder(NODE.private, initiator.message_1())
    initiator.read_message_2(responder.message_2(b""))
    assert initiator.remote_key == NODE.public


# Message 1 ---------------------------------------------------------------------------------------


def test_32_bytes_are_elixir_s_of_2021() -> None:
    for first in (bytes(32), b"\x20" * 32, b"\x1f" + bytes(31)):
        assert read_first_message(first) == (first, (Level.ELIXIR_2021,), None)


def test_more_bytes_without_a_form_are_elixir_s_with_a_payload() -> None:
    for rest in (b"p", b"payload", bytes(200)):
        first = b"\xff" * 32 + rest
        assert read_first_message(first) == (first, (Level.ELIXIR_2021,), None)


def test_an_empty_optional_leaves_two_levels() -> None:
    both = (Level.BOTH_2022, Level.RUST_2021)
    assert read_first_message(data(bytes(32)) + b"\0") == (bytes(32), both, None)
    assert read_first_message(data(bytes(40)) + b"\0") == (bytes(40), both, None)


@pytest.mark.parametrize("extra", [b"", b"x", bytes(100), bytes(300)])
def test_an_optional_with_data_leaves_two_levels(extra: bytes) -> None:
    first = data(bytes(32)) + b"\1" + data(extra)
    assert read_first_message(first).levels == (Level.BOTH_2022, Level.RUST_2021)
    assert read_first_message(first).callback is None


@pytest.mark.parametrize("name", [b"a", b"worker", b"0123456789abcdef", bytes(200)])
@pytest.mark.parametrize("kind", [0, 1])
def test_an_optional_with_an_address_names_a_callback(name: bytes, kind: int) -> None:
    first = data(bytes(32)) + b"\1" + bytes((kind,)) + data(name)
    noise, levels, callback = read_first_message(first)
    assert noise == bytes(32)
    assert levels == (Level.RUST_2021, Level.BOTH_2022)
    assert callback == Address(kind, name)


@pytest.mark.parametrize(
    "rest", [b"\2", b"\0\0", b"\1", b"\1\0\5abc", b"\1\0" + data(b"abc") + b"d"]
)
def test_what_only_begins_as_a_form_is_elixir_s_with_a_payload(rest: bytes) -> None:
    first = data(bytes(32)) + rest
    assert read_first_message(first) == (first, (Level.ELIXIR_2021,), None)


def test_the_form_of_2023_is_refused_by_name() -> None:
    assert code_of(data(bytes(32))) == "channel.identities"
    assert code_of(data(bytes(200))) == "channel.identities"


def test_what_cannot_be_message_1_is_refused() -> None:
    for size in (0, 1, 31):
        assert code_of(bytes(size)) == "codec.truncated"
    assert code_of(bytes(CHANNEL_HANDSHAKE_BYTES_MAX + 1)) == "codec.limit"
    read_first_message(b"\xff" * CHANNEL_HANDSHAKE_BYTES_MAX)


def test_the_initiator_writes_what_the_responder_reads() -> None:
    for level in Level:
        first = ChannelInitiator(level, CLIENT.private).message_1()
        assert level in read_first_message(first).levels
    rust = ChannelInitiator(Level.RUST_2021, CLIENT.private).message_1(local("worker"))
    assert read_first_message(rust).callback == local("worker")
    assert rust[33:] == CALLBACK


def test_a_callback_is_told_address_and_hash() -> None:
    assert encode_completed(local("abc"), bytes(32)) == b"\0\3abc" + bytes(32)


def test_a_key_without_a_shared_secret_is_refused() -> None:
    responder = ChannelResponder(NODE.private, bytes(32))
    with pytest.raises(HandshakeError):
        responder.message_2(b"")


# Messages 2 and 3 --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_changed_or_cut_message_3_opens_no_channel(level: Name) -> None:
    peer = ChannelPeer(level)
    first = peer.message_1()

    def begin() -> tuple[ChannelResponder, bytes]:
        responder = ChannelResponder(NODE.private, first, ephemeral=bytes(range(32)))
        return responder, responder.message_2(b"plain")

    message = peer.message_3(begin()[1])
    wrongs = [message[:-1], message + b"x", b"", message[:20], bytes(2_000)]
    for at in range(0, len(message), 7):
        wrongs.append(message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :])
    for wrong in wrongs:
        with pytest.raises((CodecError, HandshakeError)):
            begin()[0].finish(wrong)
    begin()[0].finish(message)


@pytest.mark.parametrize("level", Level)
def test_a_changed_or_cut_message_2_opens_no_channel(level: Level) -> None:
    def begin() -> tuple[ChannelInitiator, bytes]:
        initiator = ChannelInitiator(level, CLIENT.private)
        responder = ChannelResponder(NODE.private, initiator.message_1())
        return initiator, responder.message_2(b"plain")

    size = len(begin()[1])
    for cut in (0, 1, 31, 95, size - 1):
        initiator, message = begin()
        with pytest.raises((CodecError, HandshakeError)):
            initiator.read_message_2(message[:cut])
    initiator, message = begin()
    with pytest.raises(HandshakeError):
        initiator.read_message_2(message[:-1] + bytes((message[-1] ^ 1,)))


# Sealed messages ---------------------------------------------------------------------------------


def test_the_first_message_tells_rust_of_2021_from_2022() -> None:
    for level in ("rust-2021", "2022"):
        for extra in (b"\0", CALLBACK):
            peer = ChannelPeer(level)
            session = respond(peer, extra)
            assert session.level is (Level.BOTH_2022 if extra == b"\0" else Level.RUST_2021)
            with pytest.raises(CodecError):
                session.open(data(bytes(40)))
            assert session.open(peer.seal(b"text", nonce=5)) == b"text"
            assert session.level is Level(level)
            assert peer.open(session.seal(b"answer")) == b"answer"


@pytest.mark.parametrize("level", LEVELS)
def test_a_message_that_does_not_open_changes_nothing(level: Name) -> None:
    peer = ChannelPeer(level)
    session = respond(peer)
    message = peer.seal(b"text")
    codes: set[str] = set()
    for at in range(len(message)):
        for wrong in (message[:at], message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :]):
            with pytest.raises(CodecError) as caught:
                session.open(wrong)
            codes.add(caught.value.code)
    assert {"channel.forged", "codec.truncated"} <= codes
    assert session.open(message) == b"text"


@pytest.mark.parametrize("level", LEVELS)
def test_the_last_nonce_is_never_used(level: Name) -> None:
    peer = ChannelPeer(level)
    session = respond(peer)
    session.open(peer.seal(b"settles the level"))
    last = Level(level).nonce_end
    assert session.open(peer.seal(b"text", nonce=last - 1)) == b"text"
    with pytest.raises(CodecError) as caught:
        session.open(peer.seal(b"text", nonce=last))
    assert caught.value.code == "channel.nonce"


@pytest.mark.parametrize("level", Level)
def test_a_channel_ends_with_its_last_nonce(level: Level) -> None:
    end = ChannelSession(
        (level,),
        sealing_key=bytes(32),
        opening_key=bytes(32),
        handshake_hash=bytes(32),
        first_nonce=level.nonce_end - 2,
    )
    other = ChannelSession(
        (level,), sealing_key=bytes(32), opening_key=bytes(32), handshake_hash=bytes(32)
    )
    assert [other.open(end.seal(b"text")) for _ in range(2)] == [b"text"] * 2
    for _ in range(2):
        with pytest.raises(CodecError) as caught:
            end.seal(b"text")
        assert caught.value.code == "channel.exhausted"


def test_a_message_with_bytes_after_it_is_refused() -> None:
    peer = ChannelPeer("2022")
    session = respond(peer)
    with pytest.raises(CodecError) as caught:
        session.open(peer.seal(b"text") + b"x")
    assert caught.value.code == "codec.trailing"


def test_a_key_has_32_bytes() -> None:
    for size in (0, 31, 33):
        with pytest.raises(ConfigError) as caught:
            ChannelKey(bytes(size))
        assert caught.value.code == "key.length"


def test_keys_are_read_and_shown_as_hex() -> None:
    key = ChannelKey.from_hex(f"  {NODE.private_hex}\n")
    assert (key.private, key.public) == (NODE.private, NODE.public)
    assert repr(key) == f"ChannelKey({key.public.hex()})"
    assert key.private_hex not in repr(key)
