"""Logins of Streamr's clients, and the tokens that they get.

A client proves an Ethereum address by signing a challenge, or shows an API key. The token that it
gets says who it is and until when, and is signed by the node: it is kept nowhere, and so outlives
a restart. A challenge is signed as well, with a key that the node makes anew at each start, and is
good for one login.

Nothing here waits or stores: what is revoked is kept by the directory.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rillnode.actors.access import ANONYMOUS
from rillnode.actors.ports import Clock, Entropy
from rillnode.actors.streamr.login_rate import LoginRate
from rillnode.actors.streamr.revocations import Revocations
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import STREAMR_ANSWERED_CHALLENGES_MAX, STREAMR_CHALLENGE_SECONDS
from rillnode.codecs.streamr.ethereum import parse_address, recover_address
from rillnode.codecs.streamr.session_tokens import (
    ID_BYTES,
    Challenge,
    Session,
    challenge_text,
    decode_challenge,
    decode_token,
    encode_challenge,
    encode_token,
)

ETHEREUM: Final = "eth:"
API_KEY: Final = "apikey:"

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What is configured.

    Attributes:
        token_key: 32 bytes that sign tokens; the same after a restart.
        token_seconds: how long a token is good for.
        logins_per_minute: for each remote address.
        api_keys: names of API keys, by the SHA-256 of the key in hex.
    """

    token_key: bytes
    token_seconds: float = 86_400.0
    logins_per_minute: int = 600
    api_keys: Mapping[str, str] = field(default_factory=dict[str, str])


class OpenChallenge(NamedTuple):
    """What a client is given to sign; `expires_at` in milliseconds since 1970."""

    id: str
    text: str
    expires_at: int


class Token(NamedTuple):
    """What a client gets for its login; `expires_at` in milliseconds since 1970."""

    text: str
    expires_at: int


class Sessions:
    """The sessions of one node. All calls on the loop's thread."""

    def __init__(self, settings: SessionSettings, clock: Clock, entropy: Entropy) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._names = frozenset(settings.api_keys.values())
        self._challenge_key = entropy(_KEY_BYTES)
        self._rate = LoginRate(settings.logins_per_minute)
        # By nonce: when it expires. In the order of answering, not quite that of expiry.
        self._answered: OrderedDict[bytes, int] = OrderedDict()
        self.revocations = Revocations()

    def challenge(self, address: str, remote: str) -> OpenChallenge:
        """Have an address prove itself.

        Raises:
            CodecError: `ethereum.address`.
            RequestError: `session.too_many`.
        """
        address = parse_address(address)
        self._admit(remote)
        expires_at = self._clock.now_ms() + STREAMR_CHALLENGE_SECONDS * 1_000
        challenge = Challenge(expires_at, self._entropy(ID_BYTES))
        challenge_id = encode_challenge(challenge, address, self._challenge_key)
        return OpenChallenge(challenge_id, challenge_text(challenge_id, address), expires_at)

    def answer(self, challenge_id: str, address: str, signature: str, remote: str) -> Token:
        """Log in an address by its signature over a challenge's text.

        Raises:
            RequestError: `session.refused`, whatever is wrong; `session.too_many`.
        """
        self._admit(remote)
        now_ms = self._clock.now_ms()
        try:
            address = parse_address(address)
            challenge = decode_challenge(challenge_id, address, self._challenge_key)
            text = challenge_text(challenge_id, address)
            signer = recover_address(text.encode(), signature)
        except CodecError:
            raise _refused() from None
        used = challenge.nonce in self._answered
        if signer != address or used or challenge.expires_at <= now_ms:
            raise _refused()
        self._use(challenge, now_ms)
        return self._token(ETHEREUM + address, now_ms)

    def log_in_with_key(self, api_key: str, remote: str) -> Token:
        """Log in who has an API key.

        Raises:
            RequestError: `session.api_key`, it is none; `session.too_many`.
        """
        self._admit(remote)
        name = self._settings.api_keys.get(hash_of(api_key))
        if name is None:
            raise RequestError("session.api_key", "The API key is not valid")
        return self._token(API_KEY + name, self._clock.now_ms())

    def principal_of(self, token: str | None) -> str:
        """The principal of a token; `anonymous` of none.

        Raises:
            RequestError: `session.invalid`: not one of this node's, or its time is over, or it
                was logged out.
        """
        return ANONYMOUS if token is None else self._session(token).principal

    def revoke(self, token: str) -> None:
        """Let a token be good for nothing from now on.

        Raises:
            RequestError: `session.invalid`.
        """
        self.revocations.revoke(self._session(token), self._clock.now_ms())

    def _session(self, token: str) -> Session:
        try:
            session = decode_token(token, self._settings.token_key)
        except CodecError:
            raise _invalid() from None
        principal = session.principal
        known = not principal.startswith(API_KEY) or principal[len(API_KEY) :] in self._names
        if (
            not known
            or session.expires_at <= self._clock.now_ms()
            or session in self.revocations
        ):  # fmt: skip
            raise _invalid()
        return session

    def _admit(self, remote: str) -> None:
        if not self._rate.admit(remote, self._clock.monotonic()):
            raise _too_many()

    def _use(self, challenge: Challenge, now_ms: int) -> None:
        answered = self._answered
        while answered and next(iter(answered.values())) <= now_ms:
            answered.popitem(last=False)
        if len(answered) >= STREAMR_ANSWERED_CHALLENGES_MAX:
            raise _too_many()
        answered[challenge.nonce] = challenge.expires_at

    def _token(self, principal: str, now_ms: int) -> Token:
        expires_at = now_ms + round(self._settings.token_seconds * 1_000)
        session = Session(self._entropy(ID_BYTES), now_ms, expires_at, principal)
        return Token(encode_token(session, self._settings.token_key), expires_at)


def hash_of(api_key: str) -> str:
    """The hash that stands for an API key in the configuration: SHA-256 in hex.

    Keys are 256 random bits, so that a slow hash would add nothing.
    """
    return hashlib.sha256(api_key.encode("utf-8", "surrogatepass")).hexdigest()


def _refused() -> RequestError:
    return RequestError("session.refused", "The login was refused")


def _invalid() -> RequestError:
    text = "The session token is not valid, or not any more: log in again"
    return RequestError("session.invalid", text)


def _too_many() -> RequestError:
    text = "Too many logins: wait a little before the next"
    return RequestError("session.too_many", text, retryable=True)
