"""Logins of Streamr's clients, and the tokens that they get.

A client proves an Ethereum address by signing a challenge, or shows an API key. The token that it
gets says who it is and until when, and is signed by the node: it is kept nowhere, and so outlives
a restart. A challenge is signed as well, with a key that the node makes anew at each start, and is
good for one login.

Nothing here waits or stores: what is revoked is kept by the directory.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rillnode.actors.core.access import ANONYMOUS
from rillnode.actors.core.rights import Key, Rights
from rillnode.actors.ports import Clock, Entropy
from rillnode.actors.streamr.login_rate import LoginRate
from rillnode.actors.streamr.revocations import Revocations
from rillnode.codecs.api_keys import API_KEY, hash_of
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.ethereum import parse_address, recover_address
from rillnode.codecs.streamr.limits import (
    STREAMR_ANSWERED_CHALLENGES_MAX,
    STREAMR_CHALLENGE_SECONDS,
)
from rillnode.codecs.streamr.session_tokens import (
    ID_BYTES,
    Challenge,
    Session,
    challenge_text,
    decode_challenge,
    decode_token,
    derive_key,
    encode_challenge,
    encode_token,
)

ETHEREUM: Final = "eth:"

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The configured settings of sessions.

    Attributes:
        token_key: 32 bytes that sign tokens; the same after a restart.
        token_seconds: how long a token is good for.
        logins_per_minute: for each remote address.
        api_keys: names of API keys, by the SHA-256 of the key in hex, at the start.
    """

    token_key: bytes
    token_seconds: float = 86_400.0
    logins_per_minute: int = 600
    api_keys: Mapping[str, str] = field(default_factory=dict[str, str])


class OpenChallenge(NamedTuple):
    """A challenge for a client to sign; `expires_at` in milliseconds since 1970."""

    id: str
    text: str
    expires_at: int


class Token(NamedTuple):
    """A token for a login; `expires_at` in milliseconds since 1970."""

    text: str
    expires_at: int


class Sessions:
    """The sessions of one node. All calls on the loop's thread.

    Args:
        settings: what is configured.
        clock: tells when a session is over.
        entropy: of challenges and of the ids of sessions.
        rights: is told when sessions end before their time.
    """

    def __init__(
        self, settings: SessionSettings, clock: Clock, entropy: Entropy, rights: Rights
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._rights = rights
        self._api_keys: Mapping[str, str] = {}
        # By principal: what signs the tokens of each of its API keys.
        self._signers: dict[str, dict[str, bytes]] = {}
        self.set_api_keys(settings.api_keys)
        self._challenge_key = entropy(_KEY_BYTES)
        self._rate = LoginRate(settings.logins_per_minute)
        # By nonce: when it expires. In the order of answering, not quite that of expiry.
        self._answered: OrderedDict[bytes, int] = OrderedDict()
        self.revocations = Revocations(rights)

    def set_api_keys(self, api_keys: Mapping[str, str]) -> None:
        """Let these be the API keys, names by hash.

        Tokens of a key that is gone, or has another name, are void.
        """
        gone = self._api_keys.items() - api_keys.items()
        self._api_keys = api_keys
        self._signers = {}
        for key_hash, name in api_keys.items():
            signer = derive_key(self._settings.token_key, bytes.fromhex(key_hash))
            self._signers.setdefault(API_KEY + name, {})[key_hash] = signer
        if gone:
            self._rights.all_changed()

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
        return self._token(ETHEREUM + address, self._settings.token_key)

    def log_in_with_key(self, api_key: str, remote: str) -> Token:
        """Log in who has an API key.

        Raises:
            RequestError: `session.api_key`, it is none; `session.too_many`.
        """
        self._admit(remote)
        key_hash = hash_of(api_key)
        name = self._api_keys.get(key_hash)
        if name is None:
            raise RequestError("session.api_key", "The API key is not valid")
        principal = API_KEY + name
        return self._token(principal, self._signers[principal][key_hash])

    def principal_of(self, token: str | None) -> str:
        """The principal of a token; `anonymous` of none.

        Raises:
            RequestError: `session.invalid`: not one of this node's, or its time is over, or it
                was logged out, or its API key was taken back.
        """
        return ANONYMOUS if token is None else self._session(token).principal

    def keys_of(self, token: str | None) -> Sequence[Key]:
        """By what `rights` tells of the end of a token's session; nothing for no token.

        Raises:
            RequestError: as `principal_of`.
        """
        return () if token is None else (self._session(token).id,)

    def stands(self, token: str | None) -> bool:
        """Whether what was begun with a token, which was good then, may go on.

        A session's time says until when something can be begun with it, and not how long that may
        last; a logout and an API key that is taken back end what goes on, too.
        """
        if token is None:
            return True
        try:
            return self._read(token) not in self.revocations
        except RequestError:
            return False

    def revoke(self, token: str) -> None:
        """Let a token be good for nothing from now on.

        Raises:
            RequestError: `session.invalid`.
        """
        self.revocations.revoke(self._session(token), self._clock.now_ms())

    def _session(self, token: str) -> Session:
        session = self._read(token)
        if session.expires_at <= self._clock.now_ms() or session in self.revocations:
            raise _invalid()
        return session

    def _read(self, token: str) -> Session:
        try:
            return decode_token(token, self._signers_of)
        except CodecError:
            raise _invalid() from None

    def _signers_of(self, principal: str) -> Iterable[bytes]:
        if principal.startswith(API_KEY):
            # Each API key has its own, so that a key's sessions end with it.
            return self._signers.get(principal, {}).values()
        return (self._settings.token_key,)

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

    def _token(self, principal: str, key: bytes) -> Token:
        now_ms = self._clock.now_ms()
        expires_at = now_ms + round(self._settings.token_seconds * 1_000)
        session = Session(self._entropy(ID_BYTES), now_ms, expires_at, principal)
        return Token(encode_token(session, key), expires_at)


def _refused() -> RequestError:
    return RequestError("session.refused", "The login was refused")


def _invalid() -> RequestError:
    text = "The session token is not valid, or not any more: log in again"
    return RequestError("session.invalid", text)


def _too_many() -> RequestError:
    text = "Too many logins: wait a little before the next"
    return RequestError("session.too_many", text, retryable=True)
