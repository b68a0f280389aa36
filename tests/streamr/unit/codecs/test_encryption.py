import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import (
    GroupKey,
    RsaKey,
    decrypt,
    decrypt_message,
    decrypt_with_new_key,
    encrypt,
    encrypt_message,
    encrypt_with_new_key,
    generate_group_key,
    load_public_key,
    wrap,
)
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageId, StreamMessage
from streamr_keys_support import FIRST, SECOND, counting_entropy, rsa_key, useless_pem

MESSAGE = StreamMessage(id=MessageId("stream", 0, 1, 0, "0x", "chain"), content='{"ä":1}')


def pem_of(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


def test_group_key_hides_its_secret() -> None:
    key = generate_group_key("k", lambda count: b"\xaa" * count)
    assert key.secret == b"\xaa" * 32
    assert str(key) == "GroupKey(id='k')"


def test_group_key_has_32_bytes() -> None:
    with pytest.raises(CodecError, match=r"encryption\.key"):
        GroupKey("k", bytes(31))


def test_iv_is_drawn_for_each_content() -> None:
    entropy = counting_entropy()
    first, second = encrypt(b"x", FIRST, entropy), encrypt(b"x", FIRST, entropy)
    assert first[:32] == f"{1:032x}"
    assert second[:32] == f"{2:032x}"
    assert decrypt(first.upper(), FIRST) == decrypt(second, FIRST) == b"x"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "encryption.truncated"),
        ("00" * 15, "encryption.truncated"),
        ("0" * 33, "encryption.hex"),
        ("0x" + "00" * 16, "encryption.hex"),
        ("0 " * 16, "encryption.hex"),
        ("0g" * 16, "encryption.hex"),
    ],
)
def test_no_encrypted_text(text: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decrypt(text, FIRST)
    assert caught.value.code == code


def test_new_key_goes_before_the_content() -> None:
    text = encrypt_with_new_key(b"content", FIRST, SECOND, counting_entropy())
    assert decrypt(text, FIRST) == SECOND.secret + b"content"
    assert decrypt_with_new_key(text, FIRST) == (SECOND.secret, b"content")
    with pytest.raises(CodecError, match=r"encryption\.truncated"):
        decrypt_with_new_key(encrypt(bytes(31), FIRST, counting_entropy()), FIRST)


def test_message_names_its_key_and_carries_the_next() -> None:
    encrypted = encrypt_message(MESSAGE, FIRST, counting_entropy(), next_key=SECOND)
    assert encrypted.encryption_type == EncryptionType.AES
    assert encrypted.group_key_id == "key-1"
    assert (encrypted.new_group_key or "").startswith('["key-2","')
    read = decode_message(encode_message(encrypted, 32))
    assert decrypt_message(read, FIRST) == ('{"ä":1}', SECOND)


def test_message_without_a_next_key() -> None:
    encrypted = encrypt_message(MESSAGE, FIRST, counting_entropy())
    assert encrypted.new_group_key is None
    assert decrypt_message(encrypted, FIRST) == ('{"ä":1}', None)


def test_half_a_surrogate_pair_is_no_noise() -> None:
    cut_off = replace(MESSAGE, content='{"t":"\\ud83d"}')
    encrypted = encrypt_message(cut_off, FIRST, counting_entropy())
    assert decrypt_message(encrypted, FIRST).content == cut_off.content


def test_before_version_32_the_next_key_goes_with_the_content() -> None:
    old = replace(MESSAGE, version=31)
    encrypted = encrypt_message(old, FIRST, counting_entropy(), next_key=SECOND)
    assert encrypted.encryption_type == EncryptionType.NEW_KEY_AND_AES
    read = decode_message(encode_message(encrypted, 31))
    content, next_key = decrypt_message(read, FIRST)
    assert content == '{"ä":1}'
    assert next_key == GroupKey("stream", SECOND.secret)
    assert encrypt_message(old, FIRST, counting_entropy()).group_key_id is None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (MESSAGE, "encryption.type"),
        (replace(MESSAGE, encryption_type=EncryptionType.RSA), "encryption.type"),
        (encrypt_message(MESSAGE, SECOND, counting_entropy()), "encryption.noise"),
        (
            encrypt_message(replace(MESSAGE, content="no JSON"), FIRST, counting_entropy()),
            "encryption.noise",
        ),
        (
            replace(
                encrypt_message(MESSAGE, FIRST, counting_entropy()),
                new_group_key=f'["k","{"00" * 47}"]',
            ),
            "encryption.key",
        ),
    ],
)
def test_message_that_does_not_decrypt(message: StreamMessage, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decrypt_message(message, FIRST)
    assert caught.value.code == code


def test_group_key_reaches_its_subscriber_only() -> None:
    wrapped = wrap(FIRST.secret, load_public_key(rsa_key().public_pem))
    assert rsa_key().unwrap(wrapped) == FIRST.secret
    with pytest.raises(CodecError, match=r"encryption\.rsa"):
        RsaKey.generate(2_048).unwrap(wrapped)


@pytest.mark.parametrize("text", ["", "00", "00" * 256, "ff" * 256, "11" * 512])
def test_no_wrapped_key(text: str) -> None:
    with pytest.raises(CodecError, match=r"encryption\.rsa"):
        rsa_key().unwrap(text)


@pytest.mark.parametrize(
    "pem",
    [
        "",
        "rsaPublicKey",
        "-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n\ud800\n-----END PUBLIC KEY-----\n",
        pem_of(ec.generate_private_key(ec.SECP256R1()).public_key()),
        pem_of(rsa.generate_private_key(public_exponent=65_537, key_size=1_024).public_key()),
    ],
)
def test_no_public_key(pem: str) -> None:
    with pytest.raises(CodecError, match=r"encryption\.rsa"):
        load_public_key(pem)


def test_nothing_is_wrapped_with_a_useless_key() -> None:
    with pytest.raises(CodecError, match=r"encryption\.rsa"):
        wrap(FIRST.secret, load_public_key(useless_pem()))


def test_public_key_has_a_limit() -> None:
    with pytest.raises(CodecError, match=r"codec\.limit"):
        load_public_key(rsa_key().public_pem + "\n" * 4_096)


@pytest.mark.parametrize("pem", ["", "secret", "\ud800", rsa_key().public_pem])
def test_no_private_key(pem: str) -> None:
    with pytest.raises(CodecError, match=r"encryption\.rsa"):
        RsaKey.from_pem(pem)
