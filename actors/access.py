"""Who may do what with which streams.

A principal is a text such as `noise:<hex>`, `ockam:<hex>`, `eth:0x...`, `apikey:<name>` or
`anonymous`. Nothing is allowed that no grant names.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from typing import Final, Literal

Verb = Literal["create", "push", "pull", "subscribe", "admin"]
VERBS: Final[tuple[Verb, ...]] = ("create", "push", "pull", "subscribe", "admin")

NODE_PRINCIPAL: Final = "node"
"""The node itself and the application that embeds it: may do everything."""

ANONYMOUS: Final = "anonymous"

_ALL: Final = frozenset(VERBS)

_CACHE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Lets `who` do `may` with the streams whose names match `streams`.

    Attributes:
        who: a principal; `*` alone stands for every principal, `noise:*` for all of one kind.
        streams: a pattern; `*` stands for any characters, `?` for one.
        may: the verbs; `admin` includes all others.
    """

    who: str
    streams: str
    may: frozenset[Verb]


class Access:
    """Answers whether a principal may do something; answers are cached until a grant changes."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: list[tuple[Grant, re.Pattern[str], re.Pattern[str]]] = []
        self._lent: dict[str, str] = {}
        self._answers: dict[frozenset[Verb], frozenset[Verb]] = {}
        self._cache: OrderedDict[tuple[str, str], frozenset[Verb]] = OrderedDict()
        for grant in grants:
            self.add(grant)

    def add(self, grant: Grant) -> None:
        """Let a grant take effect."""
        who, streams = re.compile(translate(grant.who)), re.compile(translate(grant.streams))
        self._grants.append((grant, who, streams))
        self._cache.clear()

    def revoke(self, who: str) -> None:
        """Take back every grant that names exactly `who`."""
        self._grants = [held for held in self._grants if held[0].who != who]
        self._cache.clear()

    def lend(self, principal: str, stands_for: str) -> None:
        """Let a short-lived key act as another principal, until `withdraw`."""
        self._lent[principal] = stands_for

    def withdraw(self, principal: str) -> None:
        """End a loan; new links of that key are refused."""
        self._lent.pop(principal, None)

    def principal_of(self, principal: str) -> str:
        """Whom a peer's proved principal stands for: another one where it was lent, or itself."""
        return self._lent.get(principal, principal)

    def known(self, principal: str) -> bool:
        """Whether any grant is for this principal: such a peer may connect."""
        return principal in self._lent or any(who.match(principal) for _, who, _ in self._grants)

    def verbs(self, principal: str, stream: str) -> frozenset[Verb]:
        """All that a principal may do with a stream."""
        key = (principal, stream)
        verbs = self._cache.get(key)
        if verbs is None:
            verbs = self._cache[key] = self._find(principal, stream)
            if len(self._cache) > _CACHE_MAX:
                self._cache.popitem(last=False)
        return verbs

    def allows(self, principal: str, verb: Verb, stream: str) -> bool:
        """Whether a principal may do `verb` with a stream."""
        return verb in self.verbs(principal, stream)

    def administers(self, principal: str) -> bool:
        """Whether a principal may see the node's state: it has `admin` on some streams."""
        return principal == NODE_PRINCIPAL or any(
            "admin" in grant.may and who.match(principal) for grant, who, _ in self._grants
        )

    def _find(self, principal: str, stream: str) -> frozenset[Verb]:
        if principal == NODE_PRINCIPAL:
            return _ALL
        verbs: set[Verb] = set()
        for grant, who, streams in self._grants:
            if who.match(principal) and streams.match(stream):
                verbs |= grant.may
        # Equal answers are one object: a node with 100,000 streams keeps few of them.
        found = _ALL if "admin" in verbs or verbs == _ALL else frozenset(verbs)
        return self._answers.setdefault(found, found)
