"""Session tokens and login challenges: texts that only a holder of a secret key can make.

A node remembers neither. All numbers are big-endian, times are milliseconds since 1970:

    token      base64url of  01 | id (8) | issued u64 | expires u64 | principal UTF-8 | MAC (32)
    challenge  base64url of  expires u64 | random (8) | MAC (16)

Both MACs are HMAC-SHA-256 over what stands before them; that of a challenge is over the address in
lower case as well, and cut. A key made by `derive_key` serves for one purpose only.
"""

import hmac
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import STREAMR_TOKEN_CHARS_MAX

ID_BYTES: Final = 8
"""Random bytes that tell a token, or a challenge, from the others of its millisecond."""

_TOKEN: Final = Struct(">B8sQQ")
_TOKEN_VERSION: Final = 1
_TOKEN_MAC_BYTES: Final = 32
_CHALLENGE: Final = Struct(">Q8s")
_CHALLENGE_MAC_BYTES: Final = 16
_TO_STANDARD: Final = str.maketrans("-_", "+/")


class Session(NamedTuple):
    """The content of a token."""

    id: bytes
    issued_at: int
    expires_at: int
    principal: str


class Challenge(NamedTuple):
    """The content of a challenge's id."""

    expires_at: int
    nonce: bytes


def derive_key(secret: bytes, purpose: bytes) -> bytes:
    """Make a key of 32 bytes that tells nothing of the secret, nor of keys for other purposes."""
    return hmac.digest(secret, purpose, "sha256")


def encode_token(session: Session, key: bytes) -> str:
    """Write a token: 76 characters and four for each three bytes of the principal."""
    _, issued_at, expires_at, principal = session
    head = _TOKEN.pack(_TOKEN_VERSION, session.id, issued_at, expires_at) + principal.encode()
    return _base64(head + hmac.digest(key, head, "sha256"))


def decode_token(text: str, keys_of: Callable[[str], Iterable[bytes]]) -> Session:
    """Read a token. Whether its time is over is for the caller to see.

    Args:
        text: the token.
        keys_of: the keys that tokens of a principal are made with; nothing has proved that
            principal when it is asked.

    Raises:
        CodecError: `session.token`, made with none of these keys.
    """
    raw = _unbase64(text)
    head, mac = raw[:-_TOKEN_MAC_BYTES], raw[-_TOKEN_MAC_BYTES:]
    if len(head) < _TOKEN.size or head[0] != _TOKEN_VERSION:
        raise CodecError("session.token", "no session token of this version")
    principal = head[_TOKEN.size :].decode(errors="replace")
    for key in keys_of(principal):
        if hmac.compare_digest(mac, hmac.digest(key, head, "sha256")):
            _, session_id, issued_at, expires_at = _TOKEN.unpack_from(head)
            return Session(session_id, issued_at, expires_at, principal)
    raise CodecError("session.token", "no session token of this node")


def encode_challenge(challenge: Challenge, address: str, key: bytes) -> str:
    """Write the id of a challenge for one address: 43 characters."""
    head = _CHALLENGE.pack(*challenge)
    return _base64(head + _challenge_mac(head, address, key))


def decode_challenge(text: str, address: str, key: bytes) -> Challenge:
    """Read the id of a challenge. Whether its time is over is for the caller to see.

    Raises:
        CodecError: `session.challenge`, not made with this key for this address.
    """
    raw = _unbase64(text)
    head, mac = raw[: _CHALLENGE.size], raw[_CHALLENGE.size :]
    if not hmac.compare_digest(mac, _challenge_mac(head, address, key)):
        raise CodecError("session.challenge", "no challenge of this node for this address")
    return Challenge(*_CHALLENGE.unpack(head))


def challenge_text(challenge_id: str, address: str) -> str:
    """What a wallet is asked to sign.

    Source: streamr-core-api, ChallengeService: people have this sentence shown by their wallets.
    """
    return (
        f"This is a challenge created by Streamr for address {address.lower()} to prove private"
        f" key ownership by signing this random data with it:\n\n{challenge_id}"
    )


def _challenge_mac(head: bytes, address: str, key: bytes) -> bytes:
    return hmac.digest(key, head + address.lower().encode(), "sha256")[:_CHALLENGE_MAC_BYTES]


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _unbase64(text: str) -> bytes:
    """The bytes of a text, or none where it is no base64url: no MAC fits these."""
    if len(text) > STREAMR_TOKEN_CHARS_MAX:
        return b""
    try:
        padded = text.translate(_TO_STANDARD) + "=" * (-len(text) % 4)
        return a2b_base64(padded, strict_mode=True)
    except ValueError:
        return b""
