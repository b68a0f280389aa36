"""Session tokens that were logged out before their time.

Each is a named value of its own, so that nodes on one store add to the list without overwriting
what others have added, and an addition is small:

    streamr/revoked/token/<id in hex>      issued u64 | expires u64    that token is void
    streamr/revoked/until/<time in hex>    -                           all issued until then are

Times are milliseconds since 1970. Of the second kind the latest counts.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final

import msgspec

from rillnode.actors.core.rights import Rights
from rillnode.codecs.errors import StoreError
from rillnode.codecs.streamr.limits import STREAMR_REVOKED_TOKENS_MAX
from rillnode.codecs.streamr.session_tokens import Session

REVOKED_PREFIX: Final = "streamr/revoked/"

WHOLE_LIST: Final = "streamr/revoked_tokens"
"""Where the whole list was one value, in stores of earlier versions."""

_TOKEN: Final = f"{REVOKED_PREFIX}token/"
_UNTIL: Final = f"{REVOKED_PREFIX}until/"
_TIMES: Final = Struct(">QQ")

Values = list[tuple[str, bytes | None]]
"""Names and what they shall stand for; None: nothing."""


class _WholeList(msgspec.Struct, array_like=True):
    void_until: int
    tokens: list[tuple[bytes, int, int]]


_whole_list_decoder = msgspec.msgpack.Decoder(_WholeList)


class Revocations:
    """A bounded list, forgotten token by token as their time ends.

    When it is full, the token that was issued first goes, and with it every token issued no later
    is void: whoever holds one of these has to log in again, and nobody's logout is undone.

    Args:
        rights: is told of each session that ends, here or at another node.
    """

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._void_until = 0
        # By id: when it was issued, and when it expires.
        self._tokens: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._unsaved: dict[str, bytes | None] = {}

    def __contains__(self, session: Session) -> bool:
        return session.issued_at <= self._void_until or session.id in self._tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def revoke(self, session: Session, now_ms: int) -> None:
        """Let a token be good for nothing from now on; it is to be saved."""
        times = (session.issued_at, session.expires_at)
        self._unsaved[_TOKEN + session.id.hex()] = _TIMES.pack(*times)
        self._add(session.id, times, now_ms)

    def unsaved(self, limit: int) -> Values:
        """At most so many values that are to be stored, the oldest first."""
        return list(self._unsaved.items())[:limit]

    def saved(self, values: Values) -> None:
        """These values are durable."""
        for name, value in values:
            if self._unsaved.get(name, b"?") == value:
                del self._unsaved[name]

    # What is stored --------------------------------------------------------------------------

    def learn(self, name: str, value: bytes | None, now_ms: int) -> None:
        """Take a value of the store, or that it is gone; what is none of ours is passed over."""
        kind, _, text = name.rpartition("/")
        try:
            number = bytes.fromhex(text)
        except ValueError:
            return
        if value is None:
            # Who has removed it has made it void by its time, or its time is over.
            return
        if f"{kind}/" == _UNTIL:
            self._learn_void(int.from_bytes(number, "big"))
        elif f"{kind}/" == _TOKEN and len(value) == _TIMES.size:
            issued_at, expires_at = _TIMES.unpack(value)
            if expires_at > now_ms:
                self._add(number, (issued_at, expires_at), now_ms)
            else:
                self._remove(name)

    def learn_whole_list(self, stored: bytes, now_ms: int) -> None:
        """Take the list as earlier versions have stored it; it is to be saved value by value.

        Raises:
            StoreError: it is damaged.
        """
        try:
            found = _whole_list_decoder.decode(stored)
        except msgspec.MsgspecError:
            raise StoreError(
                "store.corrupt",
                f"the value {WHOLE_LIST} is no list of logouts: restore the store from a backup",
                retryable=False,
            ) from None
        self._void(found.void_until)
        for token, issued_at, expires_at in found.tokens:
            if expires_at > now_ms:
                self.revoke(Session(token, issued_at, expires_at, ""), now_ms)
        # Last, so that it goes when all of them are saved.
        self._unsaved[WHOLE_LIST] = None

    # Room ------------------------------------------------------------------------------------

    def _add(self, token: bytes, times: tuple[int, int], now_ms: int) -> None:
        self._tokens[token] = times
        self._rights.changed(token)
        if len(self._tokens) <= STREAMR_REVOKED_TOKENS_MAX:
            return
        for one in [one for one, (_, ends) in self._tokens.items() if ends <= now_ms]:
            self._drop(one)
        if len(self._tokens) > STREAMR_REVOKED_TOKENS_MAX:
            first = min(self._tokens, key=lambda one: self._tokens[one])
            self._void(self._tokens[first][0])
            self._drop(first)

    def _drop(self, token: bytes) -> None:
        del self._tokens[token]
        self._remove(_TOKEN + token.hex())

    def _void(self, until: int) -> None:
        """Let all be void that was issued until then; it is to be saved."""
        if until > self._void_until:
            self._unsaved[_until_name(until)] = b""
            self._learn_void(until)

    def _learn_void(self, until: int) -> None:
        earlier, self._void_until = sorted((until, self._void_until))
        if 0 < earlier < self._void_until:
            self._remove(_until_name(earlier))
        if earlier < self._void_until:
            self._rights.all_changed()

    def _remove(self, name: str) -> None:
        """A stored value is needed no more; one that was never stored need not be."""
        if self._unsaved.pop(name, None) is None:
            self._unsaved[name] = None


def _until_name(until: int) -> str:
    return f"{_UNTIL}{until:016x}"
