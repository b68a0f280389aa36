"""Session tokens that were logged out before their time."""

from collections import OrderedDict

import msgspec

from rillnode.codecs.limits import STREAMR_REVOKED_TOKENS_MAX
from rillnode.codecs.streamr.session_tokens import Session


class _Stored(msgspec.Struct, array_like=True):
    void_until: int
    tokens: list[tuple[bytes, int, int]]


_DECODER = msgspec.msgpack.Decoder(_Stored)


class Revocations:
    """A bounded list, forgotten token by token as their time ends.

    When it is full, the token that was issued first goes, and with it every token issued no later
    is void: whoever holds one of these has to log in again, and nobody's logout is undone.
    """

    def __init__(self) -> None:
        self._void_until = 0
        # By id: when it was issued, and when it expires.
        self._tokens: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def revoke(self, session: Session, now_ms: int) -> None:
        """Let a token be good for nothing from now on."""
        self._tokens[session.id] = (session.issued_at, session.expires_at)
        if len(self._tokens) <= STREAMR_REVOKED_TOKENS_MAX:
            return
        for token, (_, expires_at) in [*self._tokens.items()]:
            if expires_at <= now_ms:
                del self._tokens[token]
        if len(self._tokens) > STREAMR_REVOKED_TOKENS_MAX:
            first = min(self._tokens, key=lambda token: self._tokens[token])
            self._void_until, _ = self._tokens.pop(first)

    def __contains__(self, session: Session) -> bool:
        return session.issued_at <= self._void_until or session.id in self._tokens

    def dump(self) -> bytes:
        """The list as a store's record holds it."""
        tokens = [(token, *times) for token, times in self._tokens.items()]
        return msgspec.msgpack.encode(_Stored(self._void_until, tokens))

    def load(self, stored: bytes) -> None:
        """Take what `dump` has made."""
        found = _DECODER.decode(stored)
        self._void_until = found.void_until
        self._tokens = OrderedDict((token, (issued, ends)) for token, issued, ends in found.tokens)
