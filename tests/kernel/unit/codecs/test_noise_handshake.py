import pytest

from rillnode.codecs.errors import HandshakeError
from rillnode.codecs.noise.handshake import NoiseHandshake

XX = "Noise_XX_25519_AESGCM_SHA256"
LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


def side(*, initiator: bool, prologue: bytes = b"p", static: bytes = b"s" * 32) -> NoiseHandshake:
    return NoiseHandshake(XX, initiator=initiator, prologue=prologue, static=static)


def test_both_sides_end_with_the_same_keys_hash_and_each_other_s_static_key() -> None:
    near, far = side(initiator=True, static=b"n" * 32), side(initiator=False, static=b"f" * 32)
    assert far.read(near.write(b"one")) == b"one"
    assert near.read(far.write(b"two")) == b"two"
    assert far.keys is None
    assert far.read(near.write(b"three")) == b"three"
    assert near.keys == far.keys
    assert near.keys is not None
    assert near.keys[0] != near.keys[1]
    assert near.hash == far.hash
    assert near.remote_static == far.static_public
    assert far.remote_static == near.static_public


def test_an_initiator_may_know_the_responder_s_key() -> None:
    name = "Noise_XK_25519_ChaChaPoly_BLAKE2b"
    far = NoiseHandshake(name, initiator=False, prologue=b"", static=b"f" * 32)
    known = far.static_public
    near = NoiseHandshake(name, initiator=True, prologue=b"", static=b"n" * 32, remote_static=known)
    far.read(near.write(b""))
    near.read(far.write(b""))
    far.read(near.write(b""))
    assert near.keys == far.keys
    other = NoiseHandshake(name, initiator=False, prologue=b"", static=b"o" * 32)
    near = NoiseHandshake(name, initiator=True, prologue=b"", static=b"n" * 32, remote_static=known)
    with pytest.raises(HandshakeError):
        other.read(near.write(b""))


def test_another_prologue_ends_the_handshake() -> None:
    near, far = side(initiator=True, prologue=b"p"), side(initiator=False, prologue=b"q")
    far.read(near.write(b""))
    with pytest.raises(HandshakeError) as caught:
        near.read(far.write(b""))
    assert caught.value.code == "noise.handshake"


@pytest.mark.parametrize("point", LOW_ORDER)
def test_keys_without_a_shared_secret_are_refused(point: bytes) -> None:
    far = side(initiator=False)
    far.read(point)
    with pytest.raises(HandshakeError):
        far.write(b"")
    near = side(initiator=True)
    near.write(b"")
    with pytest.raises(HandshakeError):
        near.read(point + bytes(48 + 16))


@pytest.mark.parametrize("size", [0, 1, 31])
def test_short_messages_are_refused(size: int) -> None:
    with pytest.raises(HandshakeError):
        side(initiator=False).read(bytes(size))
