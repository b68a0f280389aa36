import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise.cipher import CipherState, Suite

KEY = bytes(range(32))
SUITES = list(Suite)


def test_nonces_count_from_zero_in_each_cipher_s_byte_order() -> None:
    aes, chacha = CipherState(KEY, Suite.AESGCM_SHA256), CipherState(KEY, Suite.CHACHAPOLY_SHA256)
    for number in range(300):
        big, little = bytes(4) + number.to_bytes(8), bytes(4) + number.to_bytes(8, "little")
        assert aes.seal(b"text") == AESGCM(KEY).encrypt(big, b"text", None)
        assert chacha.seal(b"text") == ChaCha20Poly1305(KEY).encrypt(little, b"text", None)


@pytest.mark.parametrize("suite", SUITES)
def test_rekeying_replaces_the_key_and_the_nonce_counts_on(suite: Suite) -> None:
    sealer = CipherState(KEY, suite, rekey_records=2)
    records = [sealer.seal(b"text") for _ in range(5)]

    aead = AESGCM if suite is Suite.AESGCM_SHA256 else ChaCha20Poly1305
    big_endian = suite is Suite.AESGCM_SHA256

    def seal(key: bytes, number: int, text: bytes) -> bytes:
        counter = number.to_bytes(8, "big" if big_endian else "little")
        return aead(key).encrypt(bytes(4) + counter, text, None)

    keys = [KEY]
    for _ in range(2):
        keys.append(seal(keys[-1], 2**64 - 1, bytes(32))[:32])
    assert records == [seal(keys[number // 2], number, b"text") for number in range(5)]


@pytest.mark.parametrize("suite", SUITES)
def test_both_ends_rekey_at_the_same_records(suite: Suite) -> None:
    sealer, opener = (CipherState(KEY, suite, rekey_records=3) for _ in range(2))
    for number in range(20):
        assert opener.open(sealer.seal(bytes([number]))) == bytes([number])


@pytest.mark.parametrize("suite", SUITES)
def test_a_record_opens_once_in_its_place_and_unchanged(suite: Suite) -> None:
    sealer = CipherState(KEY, suite)
    first, second = sealer.seal(b"first"), sealer.seal(b"second")
    flipped = bytes([first[0] ^ 1]) + first[1:]
    for wrong in (flipped, first[:-1], first + b"\0", second, b"", bytes(15), bytes(16)):
        with pytest.raises(CodecError) as caught:
            CipherState(KEY, suite).open(wrong)
        assert caught.value.code == "noise.record"
    opener = CipherState(KEY, suite)
    assert opener.open(memoryview(first)) == b"first"
    with pytest.raises(CodecError):
        opener.open(first)


@pytest.mark.parametrize("suite", SUITES)
def test_records_are_the_same_however_often_a_cipher_rests(suite: Suite) -> None:
    rested, opener = (CipherState(KEY, suite, rekey_records=7) for _ in range(2))
    restless = CipherState(KEY, suite, rekey_records=7)
    for number in range(64):
        if number % 3 == 0 or 20 <= number < 30:
            rested.rest()
        if number % 5 == 0:
            opener.rest()
        record = rested.seal(bytes([number]))
        assert record == restless.seal(bytes([number]))
        with pytest.raises(CodecError):
            opener.open(record + b"\0")
        assert opener.open(record) == bytes([number])


def test_an_expanded_key_is_kept_while_there_are_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bytes] = []

    class Counted:
        def __init__(self, key: bytes) -> None:
            made.append(key)
            self.encrypt = AESGCM(key).encrypt

    monkeypatch.setattr("rillnode.codecs.noise.cipher.AESGCM", Counted)
    sealer = CipherState(KEY, Suite.AESGCM_SHA256)
    for _ in range(100):
        sealer.seal(b"text")
    few = len(made)
    assert 0 < few < 10
    for _ in range(100):
        sealer.seal(b"text")
    assert len(made) == few
    sealer.rest()
    sealer.seal(b"text")
    assert len(made) == few + 1
