import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise_cipher import CipherState, Suite

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
