"""Finds out who asks, and may: the holder of an API key, or of a ticket made by one, or anybody."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rillnode.actors.core.access import ANONYMOUS, Verb
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.streams.context import StreamContext
from rillnode.codecs.api_keys import API_KEY, hash_of
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.node.entry_lines import iso_time

_NONCE_BYTES: Final = 12
_RENEWED_MAX: Final = 16_384
"""Tickets whose time was prolonged; of more, the first is forgotten. Own choice, about 8 MB."""


class Asker(NamedTuple):
    """The asker: whose grants count, the hash of the API key, and the ticket, if there is one."""

    principal: str
    key_hash: str = ""
    ticket: str = ""


class Keys:
    """The API keys and tickets of one node, which has a secret; `names` are by keys' hashes.

    A ticket is kept nowhere: it is sealed by a key of the node's, and so outlives a restart. It is
    void as soon as its API key is, or after `seconds`.
    """

    def __init__(
        self, names: dict[str, str], secret: bytes, seconds: float, streams: StreamContext
    ) -> None:
        self.names, self.seconds = names, seconds
        self._seal = AESGCM(hmac.digest(secret, b"rillnode gateway tickets", "sha256"))
        self._access, self._clock, self._entropy = streams.access, streams.clock, streams.entropy
        self._renewed: dict[str, int] = {}

    def holder(self, header: str | None) -> Asker:
        """Who sends an Authorization header; RequestError `gateway.key`: nobody who is known."""
        if header is None:
            return Asker(ANONYMOUS)
        scheme, _, key = header.partition(" ")
        key_hash = hash_of(key.strip())
        if scheme.lower() != "bearer" or key_hash not in self.names:
            raise RequestError("gateway.key", "The request bears no API key of this node")
        return Asker(API_KEY + self.names[key_hash], key_hash)

    def check(self, asker: Asker) -> None:
        """Look whether the key still says who asks; RequestError `gateway.key`: it does not."""
        if asker.key_hash and asker.principal != API_KEY + self.names.get(asker.key_hash, ""):
            raise RequestError("gateway.key", "The API key was taken back")

    def check_right(self, asker: Asker, verb: Verb, stream: str) -> None:
        """Refuse who may not; who may do nothing with a stream is told as if it were not there."""
        self.check(asker)
        verbs = self._access.verbs(asker.principal, stream)
        if verb not in verbs:
            refusal = not_granted("stream.unknown", asker.principal, verb, stream[:NAME_BYTES_MAX])
            raise RequestError("gateway.right", refusal.text) if verbs else refusal

    def ticket(self, asker: Asker, stream: str) -> dict[str, str]:
        """Make a ticket to read one stream; it is told with the time until which it is good."""
        expires_at = self._until()
        sealed = msgspec.json.encode((asker.principal, asker.key_hash, stream, expires_at))
        nonce = self._entropy(_NONCE_BYTES)
        ticket = urlsafe_b64encode(nonce + self._seal.encrypt(nonce, sealed, None))
        return {"ticket": ticket.decode().rstrip("="), "expires_at": iso_time(expires_at)}

    def bearer(self, ticket: str, stream: str) -> Asker:
        """Who asks for a stream with a ticket; RequestError `gateway.ticket`: it is not good."""
        refusal = RequestError("gateway.ticket", "The ticket is not good for this, or not any more")
        try:
            body = urlsafe_b64decode(ticket + "==")
            opened = self._seal.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], None)
        except (ValueError, InvalidTag):
            raise refusal from None
        kind = tuple[str, str, str, int]
        principal, key_hash, name, expires_at = msgspec.json.decode(opened, type=kind)
        asker = Asker(principal, key_hash, ticket)
        if name != stream or max(expires_at, self._renewed.get(ticket, 0)) <= self._clock.now_ms():
            raise refusal
        self.check(asker)
        return asker

    def renew(self, ticket: str) -> None:
        """Let a ticket in use be good for as long as a new one: a browser comes back with it."""
        self._renewed.pop(ticket, None)
        self._renewed[ticket] = self._until()
        now_ms = self._clock.now_ms()
        for first, until in tuple(self._renewed.items()):  # the oldest come first
            if until > now_ms and len(self._renewed) <= _RENEWED_MAX:
                break
            del self._renewed[first]

    def _until(self) -> int:
        """The end of a ticket's time, in milliseconds since 1970, if that begins now."""
        return self._clock.now_ms() + round(self.seconds * 1_000)
