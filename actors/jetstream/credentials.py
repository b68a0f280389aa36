"""Proves a node to NATS servers: by a user's token and key, or by name and password.

Source: NATS documentation, "JWT Authentication"; the form of keys is that of nats-io/nkeys.
"""

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

FILE_BYTES_MAX: Final = 1_048_576

_TOKEN: Final = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED: Final = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END USER NKEY SEED-+")

_SEED_PREFIX: Final = 18 << 3
_USER_PREFIX: Final = 20 << 3


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials that are shown; none by default.

    Attributes:
        token: a user's JSON web token, signed by an account.
        key: signs what the server asks to be signed.
        user: a name, with its password.
        password: the same; without a name, a token of the server's configuration.
    """

    token: str = ""
    key: SigningKey | None = None
    user: str = ""
    password: str = ""

    def shown(self, nonce: str) -> dict[str, str]:
        """The fields of CONNECT for a server that has told this nonce."""
        shown: dict[str, str] = {}
        if self.key is not None:
            signature = self.key.sign(nonce.encode()).signature
            encoded = base64.urlsafe_b64encode(signature).decode().rstrip("=")
            shown |= {"jwt": self.token, "sig": encoded}
        if self.user:
            shown |= {"user": self.user, "pass": self.password}
        elif self.password:
            shown["auth_token"] = self.password
        return shown


def read_credentials(file: Path) -> Login:
    """Read a file of credentials, as `nsc` writes it (`.creds`).

    Raises:
        ValueError: it does not hold a token and a seed.
        OSError: it cannot be read.
    """
    with file.open(encoding="ascii", errors="replace") as opened:
        text = opened.read(FILE_BYTES_MAX)
    token, seed = _TOKEN.search(text), _SEED.search(text)
    if token is None or seed is None:
        raise ValueError(f"{file} does not hold the token and the seed of a NATS user")
    try:
        return Login(token=token[1], key=SigningKey(decode_seed(seed[1])))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def decode_seed(text: str) -> bytes:
    """The 32 bytes of a user's seed (`SU...`).

    Layout in base32 without padding: two bytes of which five bits each are what it is and whose,
    the seed, and their CRC-16 (XMODEM), little endian.

    Raises:
        ValueError: it is none.
    """
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    if len(raw) != 36 or struct.unpack("<H", raw[-2:])[0] != binascii.crc_hqx(raw[:-2], 0):
        raise ValueError("the seed of the NATS user is damaged")
    kind, whose = raw[0] & 0xF8, (raw[0] & 0x07) << 5 | raw[1] >> 3
    if (kind, whose) != (_SEED_PREFIX, _USER_PREFIX):
        raise ValueError("the seed is not that of a NATS user")
    return raw[2:-2]
