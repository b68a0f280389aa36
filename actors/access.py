"""Who may do what with which streams.

A principal is a text such as `noise:<hex>`, `ockam:<hex>`, `eth:0x...`, `apikey:<name>` or
`anonymous`. Nothing is allowed that no grant names.
"""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Final, Literal

from rillnode.actors.rights import Rights

Verb = Literal["create", "push", "pull", "subscribe", "admin"]
VERBS: Final[tuple[Verb, ...]] = ("create", "push", "pull", "subscribe", "admin")

NODE_PRINCIPAL: Final = "node"
"""The node itself and the application that embeds it: may do everything."""

ANONYMOUS: Final = "anonymous"

EVERYBODY: Final = "*"
"""Stands for every principal."""

_ALL: Final = frozenset(VERBS)
_NONE: Final[frozenset[Verb]] = frozenset()

_CACHE_MAX: Final = 10_000

_PATTERNS_KEPT: Final = 1_024
"""Compiled patterns that are remembered: many grants have the same. Own choice."""


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


@lru_cache(_PATTERNS_KEPT)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


class Access:
    """Answers whether a principal may do something; answers are cached until a grant changes.

    Beside grants for patterns, each stream can have grants of its own, which are found by its name:
    they cost nothing where there are none, and a change of them clears no cache.

    Attributes:
        rights: is told of each loss, and tells whoever goes on by what was lost.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: list[tuple[Grant, re.Pattern[str], re.Pattern[str]]] = []
        self._streams: dict[str, dict[str, frozenset[Verb]]] = {}
        self._held: dict[str, set[str]] = {}
        self._lent: dict[str, str] = {}
        self._answers: dict[frozenset[Verb], frozenset[Verb]] = {}
        self._cache: OrderedDict[tuple[str, str], frozenset[Verb]] = OrderedDict()
        self._unrestricted: dict[str, bool] = {}
        self.rights = Rights()
        for grant in grants:
            self.add(grant)

    def add(self, grant: Grant) -> None:
        """Let a grant take effect."""
        self._grants.append((grant, _compiled(grant.who), _compiled(grant.streams)))
        self._changed()

    def replace(self, old: Iterable[Grant], new: Collection[Grant]) -> None:
        """Let `new` stand for what was granted as `old`; other grants stay."""
        gone = set(old)
        self._grants = [held for held in self._grants if held[0] not in gone]
        kept = set(new)
        for grant in new:
            self.add(grant)
        self._changed()
        if gone - kept:
            self.rights.all_changed()

    def revoke(self, who: str) -> None:
        """Take back every grant that names exactly `who`."""
        kept = [held for held in self._grants if held[0].who != who]
        if len(kept) < len(self._grants):
            self._grants = kept
            self._changed()
            self.rights.all_changed()

    def set_stream(self, stream: str, grants: Mapping[str, Iterable[str]]) -> None:
        """Let these be a stream's own grants, by principal or EVERYBODY; none: as if it had none.

        Words that are no verbs are left out; who is named with none still knows of the stream.
        """
        before = self._streams.pop(stream, {})
        for principal in before:
            held = self._held[principal]
            held.discard(stream)
            if not held:
                del self._held[principal]
        if grants:
            self._streams[stream] = {who: self._shared(may) for who, may in grants.items()}
        for principal in grants:
            self._held.setdefault(principal, set()).add(stream)
        after = self._streams.get(stream, {})
        if any(may - after.get(who, _NONE) for who, may in before.items()):
            self.rights.changed(stream)
        if not all(who in after or who == EVERYBODY or self.known(who) for who in before):
            self.rights.principal_gone()

    def granted(self, principal: str) -> Set[str]:
        """The streams whose own grants name a principal, or EVERYBODY; in no order."""
        return self._held.get(principal, _NONE)

    def holders(self, verb: Verb, stream: str) -> set[str]:
        """Who may do `verb` with a stream: principals, and patterns that stand for several."""
        found = {who for who, may in self._streams.get(stream, {}).items() if verb in may}
        for grant, _, streams in self._grants:
            if grant.may & {verb, "admin"} and streams.match(stream):
                found.add(grant.who)
        return found

    def names(self, principal: str) -> bool:
        """Whether a grant for a pattern of streams is for this principal."""
        return any(who.match(principal) for _, who, _ in self._grants)

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
        return principal in self._lent or principal in self._held or self.names(principal)

    def verbs(self, principal: str, stream: str) -> frozenset[Verb]:
        """All that a principal may do with a stream."""
        key = (principal, stream)
        verbs = self._cache.get(key)
        if verbs is None:
            verbs = self._cache[key] = self._find(principal, stream)
            if len(self._cache) > _CACHE_MAX:
                self._cache.popitem(last=False)
        own = self._streams.get(stream)
        if own is None:
            return verbs
        return verbs | own.get(principal, _NONE) | own.get(EVERYBODY, _NONE)

    def allows(self, principal: str, verb: Verb, stream: str) -> bool:
        """Whether a principal may do `verb` with a stream."""
        return verb in self.verbs(principal, stream)

    def sees_all(self, principal: str) -> bool:
        """Whether a principal may do something with every stream, whatever its name."""
        found = self._unrestricted.get(principal)
        if found is None:
            if len(self._unrestricted) > _CACHE_MAX:
                self._unrestricted.clear()
            found = self._unrestricted[principal] = principal == NODE_PRINCIPAL or any(
                grant.streams == "*" and who.match(principal) for grant, who, _ in self._grants
            )
        return found

    def administers(self, principal: str) -> bool:
        """Whether a principal may see the node's state: it has `admin` on some streams."""
        return principal == NODE_PRINCIPAL or any(
            "admin" in grant.may and who.match(principal) for grant, who, _ in self._grants
        )

    def _changed(self) -> None:
        self._cache.clear()
        self._unrestricted.clear()

    def _find(self, principal: str, stream: str) -> frozenset[Verb]:
        if principal == NODE_PRINCIPAL:
            return _ALL
        verbs: set[Verb] = set()
        for grant, who, streams in self._grants:
            if who.match(principal) and streams.match(stream):
                verbs |= grant.may
        return self._shared(verbs)

    def _shared(self, words: Iterable[str]) -> frozenset[Verb]:
        """The verbs among words; equal ones are one object, as 100,000 streams have few others."""
        given = frozenset(words)
        verbs = _ALL if "admin" in given else _ALL.intersection(given)
        return self._answers.setdefault(verbs, verbs)
