"""Who may do what with which streams.

A principal is a text such as `noise:<hex>`, `ockam:<hex>`, `eth:0x...`, `apikey:<name>` or
`anonymous`. Nothing is allowed that no grant names.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal

from rillnode.actors.core.patterns import Matches, is_exact, matcher
from rillnode.actors.core.rights import Rights

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


@dataclass(frozen=True, slots=True)
class _Held:
    """A grant, ready to be looked at."""

    grant: Grant
    streams: Matches


class Access:
    """Answers whether a principal may do something; answers are cached until a grant changes.

    A grant to one principal is found by its name, so that thousands of peers with a grant each cost
    a question no more than one does; grants to patterns of principals are looked through.

    Beside grants for patterns, each stream can have grants of its own, which are found by its name:
    they cost nothing where there are none, and a change of them clears no cache.

    Attributes:
        rights: is told of each loss, and tells whoever goes on by what was lost.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants: dict[str, list[_Held]] = {}
        self._kinds: dict[str, Matches] = {}
        self._streams: dict[str, dict[str, frozenset[Verb]]] = {}
        self._held: dict[str, set[str]] = {}
        self._lent: dict[str, str] = {}
        self._answers: dict[frozenset[Verb], frozenset[Verb]] = {}
        self._cache: OrderedDict[tuple[str, str], frozenset[Verb]] = OrderedDict()
        self._unrestricted: dict[str, bool] = {}
        # Of a principal whose grants are all for every stream; None: its streams differ.
        self._alike: dict[str, frozenset[Verb] | None] = {}
        self.rights = Rights()
        for grant in grants:
            self._add(grant)

    def add(self, grant: Grant) -> None:
        """Let a grant take effect."""
        self._add(grant)
        self._changed()

    def replace(self, old: Iterable[Grant], new: Collection[Grant]) -> None:
        """Let `new` stand for what was granted as `old`; other grants stay."""
        before, after = set(old), set(new)
        lost = before - after
        for grant in lost:
            self._remove(grant)
        for grant in after - before:
            self._add(grant)
        self._changed()
        if lost:
            self.rights.all_changed()

    def revoke(self, who: str) -> None:
        """Take back every grant that names exactly `who`."""
        if self._grants.pop(who, None):
            self._kinds.pop(who, None)
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
        for who, grants in self._grants.items():
            for held in grants:
                may = held.grant.may
                if (verb in may or "admin" in may) and held.streams(stream):
                    found.add(who)
                    break
        return found

    def names(self, principal: str) -> bool:
        """Whether a grant for a pattern of streams is for this principal."""
        return any(True for _ in self._grants_of(principal))

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
        try:
            verbs = self._alike[principal]
        except KeyError:
            verbs = self._find_alike(principal)
        if verbs is None:
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
                held.grant.streams == "*" for held in self._grants_of(principal)
            )
        return found

    def administers(self, principal: str) -> bool:
        """Whether a principal may see the node's state: it has `admin` on some streams."""
        return principal == NODE_PRINCIPAL or any(
            "admin" in held.grant.may for held in self._grants_of(principal)
        )

    def _add(self, grant: Grant) -> None:
        self._grants.setdefault(grant.who, []).append(_Held(grant, matcher(grant.streams)))
        if not is_exact(grant.who):
            self._kinds[grant.who] = matcher(grant.who)

    def _remove(self, grant: Grant) -> None:
        held = self._grants.get(grant.who, [])
        held[:] = [one for one in held if one.grant != grant]
        if not held:
            self._grants.pop(grant.who, None)
            self._kinds.pop(grant.who, None)

    def _grants_of(self, principal: str) -> Iterator[_Held]:
        """The grants that are for a principal: its own, then those of patterns that it matches."""
        if principal not in self._kinds:
            yield from self._grants.get(principal, ())
        for who, matches in self._kinds.items():
            if matches(principal):
                yield from self._grants[who]

    def _changed(self) -> None:
        self._cache.clear()
        self._unrestricted.clear()
        self._alike.clear()

    def _find_alike(self, principal: str) -> frozenset[Verb] | None:
        if len(self._alike) > _CACHE_MAX:
            self._alike.clear()
        alike = all(held.grant.streams == "*" for held in self._grants_of(principal))
        verbs = self._alike[principal] = self._find(principal, "") if alike else None
        return verbs

    def _find(self, principal: str, stream: str) -> frozenset[Verb]:
        if principal == NODE_PRINCIPAL:
            return _ALL
        verbs: set[Verb] = set()
        for held in self._grants_of(principal):
            if held.streams(stream):
                verbs |= held.grant.may
        return self._shared(verbs)

    def _shared(self, words: Iterable[str]) -> frozenset[Verb]:
        """The verbs among words; equal ones are one object, as 100,000 streams have few others."""
        given = frozenset(words)
        verbs = _ALL if "admin" in given else _ALL.intersection(given)
        return self._answers.setdefault(verbs, verbs)
