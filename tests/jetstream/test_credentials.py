"""Tests what a node shows to NATS servers."""

import base64
import binascii
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest

from nats_operator import Account, Party
from rillnode.actors.jetstream.credentials import Login, decode_seed, read_credentials


def test_a_file_of_credentials_signs_as_its_user_does(tmp_path: Path) -> None:
    file = Account().credentials(tmp_path / "user.creds")
    text = file.read_text()
    shown = read_credentials(file).shown("nonce")
    assert shown["jwt"] in text
    seed = text.partition("USER NKEY SEED-----\n")[2].partition("\n")[0]
    # The package has no types.
    keys: Any = nkeys
    signature = bytes(keys.from_seed(bytearray(seed.encode())).sign(b"nonce"))
    assert shown["sig"] == base64.urlsafe_b64encode(signature).decode().rstrip("=")


def test_names_and_tokens_are_shown_as_they_are() -> None:
    assert Login().shown("n") == {}
    assert Login(user="u", password="p").shown("n") == {"user": "u", "pass": "p"}
    assert Login(password="t").shown("n") == {"auth_token": "t"}


def test_a_seed_that_is_damaged_or_anothers_is_refused() -> None:
    seed = Party(nkeys.PREFIX_BYTE_USER).seed.decode()
    assert len(decode_seed(seed)) == 32
    other = "A" if seed[20] != "A" else "B"
    for wrong in (seed[:20] + other + seed[21:], seed[:-1], "", "SU", "!" * 58, seed + seed):
        with pytest.raises(ValueError, match="damaged"):
            decode_seed(wrong)
    for kind in (nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_OPERATOR):
        with pytest.raises(ValueError, match="not that of a NATS user"):
            decode_seed(Party(kind).seed.decode())
    raw = bytearray(base64.b32decode(seed + "=" * (-len(seed) % 8))[:-2])
    raw[0] ^= 0x80
    whole = bytes(raw) + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    with pytest.raises(ValueError, match="not that of a NATS user"):
        decode_seed(base64.b32encode(whole).decode().rstrip("="))


@pytest.mark.parametrize("text", ["", "-----BEGIN NATS USER JWT-----\nx\n", "\xff" * 100])
def test_a_file_of_something_else_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "user.creds"
    file.write_text(text)
    with pytest.raises(ValueError, match="token and the seed"):
        read_credentials(file)


def test_a_damaged_seed_is_told_with_its_file(tmp_path: Path) -> None:
    file = Account().credentials(tmp_path / "user.creds")
    file.write_text(file.read_text().replace("\nSU", "\nSUA"))
    with pytest.raises(ValueError, match=r"user\.creds: the seed"):
        read_credentials(file)
