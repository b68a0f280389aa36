"""rillnode's own link, against a reading of the Noise specification made for this test alone."""

import hmac
from collections.abc import Callable
from hashlib import sha256, sha512

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from nacl.bindings import crypto_core_ed25519_add, crypto_scalarmult_ed25519_base_noclamp

from link_support import CLIENT, NODE, SUITES, noise_pair
from rillnode.codecs.errors import (
    CodecError,
    ConfigError,
    HandshakeError,
    RillnodeError,
    TransportError,
)
from rillnode.codecs.keys import Identity, verify, x25519_form
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.noise.cipher import CipherState, Suite
from rillnode.codecs.noise.link import NoiseLink

OTHER = Identity.from_seed(b"other".ljust(32, b"."))
EPHEMERALS = bytes(range(1, 33)), bytes(range(33, 65))


def responder(accept: Callable[[str], bool] = lambda _: True) -> NoiseLink:
    return NoiseLink.responder(NODE, accept=accept)


def frames(stream: bytes) -> list[bytes]:
    cut = list[bytes]()
    while stream:
        size = int.from_bytes(stream[:2])
        cut.append(stream[2 : 2 + size])
        stream = stream[2 + size :]
    return cut


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(2) + content


class Spec:
    """Noise XX by the book: symmetric state and the three messages, as revision 34 has them."""

    def __init__(self, suite: Suite) -> None:
        cipher = "AESGCM" if suite is Suite.AESGCM_SHA256 else "ChaChaPoly"
        self.big_endian = suite is Suite.AESGCM_SHA256
        self.aead = AESGCM if suite is Suite.AESGCM_SHA256 else ChaCha20Poly1305
        name = f"Noise_XX_25519_{cipher}_SHA256".encode()
        self.ck = self.h = name.ljust(32, b"\0") if len(name) <= 32 else sha256(name).digest()
        self.mix_hash(b"rillnode" + bytes((1, suite)))

    def mix_hash(self, data: bytes) -> None:
        self.h = sha256(self.h + data).digest()

    def hkdf(self, material: bytes) -> tuple[bytes, bytes]:
        secret = hmac.digest(self.ck, material, "sha256")
        first = hmac.digest(secret, b"\x01", "sha256")
        return first, hmac.digest(secret, first + b"\x02", "sha256")

    def mix_key(self, private: bytes, public: bytes) -> None:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
        self.ck, self.k = self.hkdf(shared)
        self.n = 0

    def seal(self, text: bytes) -> bytes:
        nonce = bytes(4) + self.n.to_bytes(8, "big" if self.big_endian else "little")
        sealed = self.aead(self.k).encrypt(nonce, text, self.h)
        self.n += 1
        self.mix_hash(sealed)
        return sealed

    def proof(self, identity: Identity, role: bytes) -> bytes:
        said = b"rillnode link 1 " + role + b"\0" + x25519_form(identity.public_key) + self.h
        return identity.public_key + identity.sign(said)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@pytest.mark.parametrize("suite", SUITES)
def test_every_byte_of_a_link_is_as_the_specification_says(suite: Suite) -> None:
    near_e, far_e = EPHEMERALS
    near = NoiseLink.initiator(CLIENT, suite=suite, ephemeral=near_e)
    far = NoiseLink.responder(NODE, accept=lambda _: True, ephemeral=far_e)
    spec = Spec(suite)

    first = near.start()
    spec.mix_hash(public_of(near_e))
    spec.mix_hash(b"")
    assert first == b"rillnode" + bytes((1, suite)) + framed(public_of(near_e))

    far.receive(first)
    second = far.take_output()
    proof = spec.proof(NODE, b"responder")
    spec.mix_hash(public_of(far_e))
    spec.mix_key(far_e, public_of(near_e))
    static = spec.seal(x25519_form(NODE.public_key))
    spec.mix_key(NODE.x25519_private, public_of(near_e))
    assert second == framed(public_of(far_e) + static + spec.seal(proof))

    near.receive(second)
    third = near.take_output()
    proof = spec.proof(CLIENT, b"initiator")
    static = spec.seal(x25519_form(CLIENT.public_key))
    spec.mix_key(CLIENT.x25519_private, public_of(far_e))
    assert third == framed(static + spec.seal(proof))

    far.receive(third)
    to_far, to_near = (CipherState(key, suite) for key in spec.hkdf(b""))
    verdict = far.take_output()
    assert verdict == framed(to_near.seal(b"\x00"))
    near.receive(verdict)
    assert near.encode([b"ab", b"c"]) == framed(
        to_far.seal(bytes.fromhex("000000026162 0000000163"))
    )
    assert far.encode([b"d"]) == framed(to_near.seal(bytes.fromhex("0000000164")))
    assert far.ping() == framed(to_near.seal(bytes(4)))


@pytest.mark.parametrize("suite", SUITES)
def test_both_sides_know_each_other_and_messages_pass_both_ways(suite: Suite) -> None:
    near, far = noise_pair(suite)
    assert near.remote_identity == NODE.public_hex
    assert far.remote_identity == CLIENT.public_hex
    assert far.receive(near.encode([b"one", b"two"])) == [b"one", b"two"]
    assert near.receive(far.encode([b"three"])) == [b"three"]
    assert near.receive(far.ping()) == []


def test_links_with_the_same_keys_never_look_alike() -> None:
    assert NoiseLink.initiator(CLIENT).start() != NoiseLink.initiator(CLIENT).start()


def test_nothing_is_established_before_the_responder_has_said_so() -> None:
    near, far = NoiseLink.initiator(CLIENT), responder()
    far.receive(near.start())
    near.receive(far.take_output())
    assert not near.established
    assert near.remote_identity is None
    with pytest.raises(CodecError) as caught:
        near.encode([b"early"])
    assert caught.value.code == "noise.closed"
    far.receive(near.take_output())
    assert far.established
    near.receive(far.take_output())
    assert near.established


def test_messages_that_follow_the_handshake_in_one_read_are_kept() -> None:
    near, far = NoiseLink.initiator(CLIENT), responder()
    far.receive(near.start())
    near.receive(far.take_output())
    far.receive(near.take_output())
    assert near.receive(far.take_output() + far.encode([b"at once"])) == [b"at once"]


def test_an_unknown_identity_is_asked_for_first_and_told_why() -> None:
    asked = list[str]()

    def accept(identity: str) -> bool:
        asked.append(identity)
        return False

    near, far = NoiseLink.initiator(CLIENT), responder(accept)
    far.receive(near.start())
    near.receive(far.take_output())
    assert asked == []
    with pytest.raises(HandshakeError) as caught:
        far.receive(near.take_output())
    assert asked == [CLIENT.public_hex]
    assert caught.value.code == "noise.unknown_identity"
    assert CLIENT.public_hex in caught.value.text
    assert not far.established
    with pytest.raises(HandshakeError) as told:
        near.receive(far.take_output())
    assert told.value.code == "noise.unknown_identity"
    assert f'who = "noise:{CLIENT.public_hex}"' in told.value.text


def test_a_node_that_is_not_the_expected_one_learns_nothing_of_us() -> None:
    near, far = NoiseLink.initiator(CLIENT, node_identity=OTHER.public_hex), responder()
    far.receive(near.start())
    with pytest.raises(HandshakeError) as caught:
        near.receive(far.take_output())
    assert caught.value.code == "noise.wrong_node"
    assert near.take_output() == b""


def test_an_expected_identity_that_is_none_is_the_operator_s_error() -> None:
    with pytest.raises(ConfigError):
        NoiseLink.initiator(CLIENT, node_identity="77aa")


class Liar(Identity):
    """Signs as itself but claims another identity, or has another static key."""

    def __init__(self, own: Identity, *, public_key: bytes = b"", static: bytes = b"") -> None:
        super().__init__(own._signing_key)  # pyright: ignore[reportPrivateUsage]
        self.public_key = public_key or own.public_key
        self.x25519_private = static or own.x25519_private


@pytest.mark.parametrize(
    "liar",
    [
        Liar(OTHER, public_key=NODE.public_key),
        Liar(OTHER, public_key=NODE.public_key, static=NODE.x25519_private),
        Liar(NODE, static=OTHER.x25519_private),
        Liar(NODE, public_key=bytes(32)),
    ],
    ids=["both keys", "stolen static key", "stolen signing key", "no point"],
)
def test_an_identity_needs_both_its_keys(liar: Identity) -> None:
    near, far = NoiseLink.initiator(CLIENT), NoiseLink.responder(liar, accept=lambda _: True)
    far.receive(near.start())
    with pytest.raises(HandshakeError) as caught:
        near.receive(far.take_output())
    assert caught.value.code == "noise.proof"


class MixedOrder(Liar):
    """A key with a component of small order; one signature in eight still verifies."""

    TORSION = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")
    ORDER = 2**252 + 27742317777372353535851937790883648493

    def __init__(self, own: Identity) -> None:
        super().__init__(own, public_key=crypto_core_ed25519_add(own.public_key, self.TORSION))
        secret = bytearray(sha512(bytes.fromhex(own.seed_hex)).digest()[:32])
        secret[0] &= 248
        secret[31] = secret[31] & 127 | 64
        self.secret = int.from_bytes(secret, "little")

    def sign(self, message: bytes) -> bytes:
        for nonce in range(1, 1_000):
            point = crypto_scalarmult_ed25519_base_noclamp(nonce.to_bytes(32, "little"))
            digest = sha512(point + self.public_key + message).digest()
            challenge = int.from_bytes(digest, "little") % self.ORDER
            if challenge % 8 == 0:
                scalar = (nonce + challenge * self.secret) % self.ORDER
                return point + scalar.to_bytes(32, "little")
        raise AssertionError("no nonce fits")


def test_a_key_outside_the_main_subgroup_is_no_identity() -> None:
    liar = MixedOrder(OTHER)
    assert verify(liar.public_key, b"text", liar.sign(b"text"))
    near, far = NoiseLink.initiator(liar), responder()
    far.receive(near.start())
    near.receive(far.take_output())
    with pytest.raises(HandshakeError) as caught:
        far.receive(near.take_output())
    assert caught.value.code == "noise.proof"


def test_a_proof_does_not_fit_another_handshake() -> None:
    """What a side has once sent is of no use to who recorded it."""
    near, far = NoiseLink.initiator(CLIENT), responder()
    far.receive(near.start())
    second = far.take_output()
    near.receive(second)
    third = near.take_output()
    with pytest.raises(HandshakeError):
        NoiseLink.initiator(CLIENT).receive(second)
    again = responder()
    again.receive(NoiseLink.initiator(CLIENT).start())
    with pytest.raises(HandshakeError):
        again.receive(third)


@pytest.mark.parametrize(
    ("preamble", "code"),
    [
        (b"GET / HTTP", "noise.preamble"),
        (b"rillnodE\x01\x00", "noise.preamble"),
        (b"rillnode\x02\x00", "noise.version"),
        (b"rillnode\x00\x00", "noise.version"),
        (b"rillnode\x01\x02", "noise.suite"),
    ],
)
def test_another_protocol_version_or_suite_is_told_apart(preamble: bytes, code: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        responder().receive(preamble + bytes(34))
    assert caught.value.code == code


def test_the_suite_cannot_be_changed_under_way() -> None:
    near, far = NoiseLink.initiator(CLIENT, suite=Suite.CHACHAPOLY_SHA256), responder()
    first = near.start()
    far.receive(first[:9] + bytes((Suite.AESGCM_SHA256,)) + first[10:])
    with pytest.raises(HandshakeError):
        near.receive(far.take_output())


@pytest.mark.parametrize("size", [0, 31, 33, 65_535])
def test_a_handshake_frame_of_another_size_is_refused_by_its_header(size: int) -> None:
    far = responder()
    far.receive(b"rillnode\x01\x00")
    with pytest.raises(HandshakeError) as caught:
        far.receive(size.to_bytes(2))
    assert caught.value.code == "noise.frame"


def shaken(flip: tuple[int, int]) -> None:
    """Run a handshake with one byte (message, position) flipped on its way."""
    ends = [NoiseLink.initiator(CLIENT, node_identity=NODE.public_hex), responder()]
    output = ends[0].start()
    for number in range(4):
        data = bytearray(output)
        if number == flip[0]:
            data[flip[1]] ^= 0x40
        receiver = ends[(number + 1) % 2]
        receiver.receive(bytes(data))
        output = receiver.take_output()


@pytest.mark.parametrize(
    ("message", "size"), [(0, 10 + 2 + 32), (1, 2 + 192), (2, 2 + 160), (3, 2 + 17)]
)
def test_no_byte_of_a_handshake_can_be_changed(message: int, size: int) -> None:
    for position in range(size):
        with pytest.raises((HandshakeError, CodecError)):
            shaken((message, position))


def test_ends_before_the_handshake_is_done_are_handshake_errors() -> None:
    near, far = NoiseLink.initiator(CLIENT), responder()
    for codec in (near, far):
        with pytest.raises(TransportError) as caught:
            codec.end()
        assert caught.value.retryable
        assert caught.value.code == "link.closed_early"


@pytest.mark.parametrize("suite", SUITES)
def test_no_byte_of_a_record_can_be_changed(suite: Suite) -> None:
    size = len(noise_pair(suite)[0].encode([b"text"]))
    for position in range(2, size):
        near, far = noise_pair(suite)
        data = bytearray(near.encode([b"text"]))
        data[position] ^= 1
        with pytest.raises(CodecError) as caught:
            far.receive(bytes(data))
        assert caught.value.code == "noise.record"


@pytest.mark.parametrize(
    "order", [(0, 0), (1,), (0, 2), (1, 0)], ids=["replayed", "lost", "lost second", "swapped"]
)
def test_records_pass_in_order_and_once_only(order: tuple[int, ...]) -> None:
    near, far = noise_pair()
    records = [near.encode([bytes([number])]) for number in range(3)]
    with pytest.raises(CodecError):
        far.receive(b"".join(records[number] for number in order))


def test_what_one_side_sent_cannot_be_sent_back_to_it() -> None:
    near, _ = noise_pair()
    with pytest.raises(CodecError):
        near.receive(near.encode([b"mirror"]))


def test_a_failed_session_stays_dead() -> None:
    near, far = noise_pair()
    good = near.encode([b"text"])
    with pytest.raises(CodecError):
        far.receive(framed(bytes(40)))
    for use in (lambda: far.receive(good), lambda: far.encode([b"text"]), far.ping):
        with pytest.raises(CodecError) as caught:
            use()
        assert caught.value.code in ("noise.dead", "noise.closed")


def test_a_failed_handshake_stays_dead() -> None:
    near, far = NoiseLink.initiator(CLIENT), responder()
    first = near.start()
    with pytest.raises(HandshakeError):
        far.receive(b"x" * 44)
    with pytest.raises(RillnodeError):
        far.receive(first)
    assert not far.established


@pytest.mark.parametrize("suite", SUITES)
def test_large_messages_span_records_and_small_ones_share_them(suite: Suite) -> None:
    near, far = noise_pair(suite)
    messages = [bytes(FRAME_BYTES_MAX), b"a", b"b" * 200_000, *[b"c" * 100] * 500]
    stream = near.encode(messages)
    total = sum(len(message) + 4 for message in messages)
    assert len(frames(stream)) == -(-total // 65_519)
    assert far.receive(stream) == messages


def test_one_record_over_the_plaintext_limit_makes_two() -> None:
    near, far = noise_pair()
    for size, records in ((65_515, 1), (65_516, 2)):
        stream = near.encode([bytes(size)])
        assert len(frames(stream)) == records
        assert far.receive(stream) == [bytes(size)]


@pytest.mark.parametrize("message", [b"", bytes(FRAME_BYTES_MAX + 1)], ids=["empty", "too large"])
def test_a_message_that_cannot_be_sent_leaves_the_link_as_it_was(message: bytes) -> None:
    near, far = noise_pair()
    with pytest.raises(CodecError) as caught:
        near.encode([b"fine", message])
    assert caught.value.code == "link.message_size"
    assert far.receive(near.encode([b"next"])) == [b"next"]


def test_nothing_to_send_is_nothing_sent() -> None:
    near, _ = noise_pair()
    assert near.encode([]) == b""


@pytest.mark.parametrize("suite", SUITES)
def test_links_rekey_without_a_word(suite: Suite) -> None:
    near, far = noise_pair(suite, rekey_records=3)
    for number in range(50):
        message = bytes([number]) * (1 + 7_000 * (number % 20))
        assert far.receive(near.encode([message])) == [message]
        assert near.receive(far.encode([message, message])) == [message, message]


def test_an_end_inside_a_record_or_a_message_is_an_error() -> None:
    near, far = noise_pair()
    far.end()
    stream = near.encode([bytes(70_000)])
    first_record = 2 + 65_535
    for cut in (1, 2, 1_000, first_record, first_record + 1, len(stream) - 1):
        near, far = noise_pair()
        far.receive(near.encode([bytes(70_000)])[:cut])
        with pytest.raises(CodecError) as caught:
            far.end()
        assert caught.value.code == "codec.truncated"
