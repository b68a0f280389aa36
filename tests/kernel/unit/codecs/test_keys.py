import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.keys import Identity, parse_identity, verify, x25519_form

# RFC 8032, section 7.1, test 2.
SEED = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_keys_and_signatures_are_those_of_the_rfc() -> None:
    identity = Identity.from_hex(SEED)
    assert identity.public_hex == PUBLIC
    assert identity.sign(b"\x72").hex() == SIGNATURE
    assert verify(identity.public_key, b"\x72", bytes.fromhex(SIGNATURE))


def test_seed_survives_the_key_file_form() -> None:
    identity = Identity.from_seed(bytes(range(32)))
    assert Identity.from_hex(f"  {identity.seed_hex.upper()}\n") == identity
    assert len({identity, Identity.from_seed(bytes(range(32)))}) == 1
    assert Identity.from_seed(bytes(32)) != identity


def test_x25519_forms_of_both_halves_belong_together() -> None:
    identity = Identity.from_hex(SEED)
    private = X25519PrivateKey.from_private_bytes(identity.x25519_private)
    assert private.public_key().public_bytes_raw() == x25519_form(identity.public_key)


@pytest.mark.parametrize(
    "text",
    ["", "12", SEED[:-1], SEED + "00", "zz" * 32, " ".join([SEED[:32], SEED[32:]]), "é" * 64],
)
def test_text_that_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    for read in (Identity.from_hex, parse_identity):
        with pytest.raises(ConfigError) as caught:
            read(text)
        assert caught.value.code == "key.hex"
        assert "64 hex digits" in caught.value.text
        assert len(text) < 4 or text not in str(caught.value)


def test_seed_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Identity.from_seed(bytes(31))
    assert caught.value.code == "key.length"


def test_identity_never_shows_its_secret() -> None:
    identity = Identity.from_hex(SEED)
    assert SEED not in repr(identity)
    assert SEED not in str(identity)
    assert PUBLIC in repr(identity)


@pytest.mark.parametrize(
    ("public", "message", "signature"),
    [
        (PUBLIC, b"\x73", SIGNATURE),
        (PUBLIC, b"\x72", SIGNATURE[:-2]),
        (PUBLIC, b"\x72", "00" * 64),
        (PUBLIC[:-2], b"\x72", SIGNATURE),
        ("00" * 32, b"\x72", SIGNATURE),
        ("ff" * 32, b"\x72", SIGNATURE),
        (PUBLIC, b"\x72", SIGNATURE[:64] + "ff" * 32),
    ],
)
def test_wrong_signatures_and_keys_do_not_verify(
    public: str, message: bytes, signature: str
) -> None:
    assert not verify(bytes.fromhex(public), message, bytes.fromhex(signature))


@pytest.mark.parametrize(
    "point", ["00" * 32, "01" + "00" * 31, "ff" * 32, "02" + "00" * 31, "00" * 31]
)
def test_points_that_are_unusable_have_no_x25519_form(point: str) -> None:
    with pytest.raises(CodecError) as caught:
        x25519_form(bytes.fromhex(point))
    assert caught.value.code == "key.point"


def test_identity_is_parsed_from_its_text() -> None:
    assert parse_identity(f" {PUBLIC.upper()} ") == bytes.fromhex(PUBLIC)
