"""Decides who may do what with streams, and with actors of applications.

A principal is a text such as `noise:<hex>`, `ockam:<hex>`, `eth:0x...`, `apikey:<name>` or
`anonymous`. Nothing is allowed that no grant names.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal

from rillnode.actors.core.patterns import Matches, is_exact, matcher
from rillnode.actors.core.rights import Rights
from rillnode.codecs.limits import NAME_BYTES_MAX

Verb = Literal["create", "push", "pull", "subscribe", "admin"]
VERBS: Final[tuple[Verb, ...]] = ("create", "push", "pull", "subscribe", "admin")

AddressVerb = Literal["send", "serve", "admin"]
ADDRESS_VERBS: Final[tuple[AddressVerb, ...]] = ("send", "serve", "admin")

GrantVerb = Literal[Verb, AddressVerb]
GRANT_VERBS: Final[tuple[GrantVerb, ...]] = (*VERBS, "send", "serve")

NODE_PRINCIPAL: Final = "node"
"""The node itself and the application that embeds it: may do everything."""

ANONYMOUS: Final = "anonymous"

EVERYBODY: Final = "*"
"""Stands for every principal."""

_ALL: Final = frozenset(VERBS)
_NONE: Final[frozenset[Verb]] = frozenset()
_ALL_OF_ADDRESSES: Final = frozenset(ADDRESS_VERBS)

_CACHE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Lets `who` do `may` with the streams, and the actors of applications, whose names match.

    Attributes:
        who: a principal; `*` alone stands for every principal, `noise:*` for all of one kind.
        streams: a pattern of names; `*` stands for any characters, `?` for one; None: no stream.
        addresses: likewise of addresses that applications' actors have, or clients serve.
        may: the verbs, of streams (`VERBS`) and of addresses (`ADDRESS_VERBS`), each for what it
            is a verb of; `admin` includes all others.
        given_by: the address of the actor that it was given with, and ends with; empty: none.
    """

    who: str
    streams: str | None = None
    addresses: str | None = None
    may: frozenset[GrantVerb]
    given_by: str = ""


@dataclass(frozen=True, slots=True)
class _Held:
    """A grant, ready to be looked at."""

    grant: Grant
    matches: Matches


class _Grants:
    """Grants for things of one kind, found by the name of whom they are to.

    Attributes:
        held: by principal, or pattern of principals.
    """

    def __init__(self) -> None:
        self.held: dict[str, list[_Held]] = {}
        self._kinds: dict[str, Matches] = {}

    def add(self, grant: Grant, pattern: str) -> None:
        """Let a grant take effect for what a pattern stands for."""
        self.held.setdefault(grant.who, []).append(_Held(grant, matcher(pattern)))
        if not is_exact(grant.who):
            self._kinds[grant.who] = matcher(grant.who)

    def remove(self, grant: Grant) -> None:
        """Take a grant back; harmless where there is none."""
        held = self.held.get(grant.who, [])
        held[:] = [one for one in held if one.grant != grant]
        if not held:
            self.revoke(grant.who)

    def revoke(self, who: str) -> bool:
        """Take back all that name exactly `who`; whether there were any."""
        self._kinds.pop(who, None)
        return bool(self.held.pop(who, None))

    def of(self, principal: str) -> Iterator[_Held]:
        """Those for a principal: its own, then those of patterns that it matches."""
        if principal not in self._kinds:
            yield from self.held.get(principal, ())
        for who, matches in self._kinds.items():
            if matches(principal):
                yield from self.held[who]


class Access:
    """Answers whether a principal may do something; answers are cached until a grant changes.

    A grant to one principal is found by its name, so that thousands of peers with a grant each cost
    a question no more than one does; grants to patterns of principals are looked through. Streams
    and addresses are two kinds of names: what is granted for one says nothing about the other.

    Beside grants for patterns, each stream can have grants of its own, which are found by its name:
    they cost nothing where there are none, and a change of them clears no cache.

    Args:
        grants: what is granted at first.
        reserved: how names of streams begin that nobody makes or grows but a plug-in.

    Attributes:
        rights: is told of each loss and gain, and tells whoever goes on by it.
    """

    def __init__(self, grants: Iterable[Grant] = (), reserved: Iterable[str] = ()) -> None:
        self._reserved = tuple(reserved)
        self._grants = _Grants()
        self._addresses = _Grants()
        self._streams: dict[str, dict[str, frozenset[Verb]]] = {}
        self._held: dict[str, set[str]] = {}
        self._lent: dict[str, str] = {}
        self._answers: dict[frozenset[Verb], frozenset[Verb]] = {}
        self._cache: OrderedDict[tuple[str, str], frozenset[Verb]] = OrderedDict()
        self._address_cache: OrderedDict[tuple[str, bytes], frozenset[AddressVerb]] = OrderedDict()
        self._unrestricted: dict[str, bool] = {}
        # Of a principal whose grants are all for every stream; None: its streams differ.
        self._alike: dict[str, frozenset[Verb] | None] = {}
        self.rights = Rights()
        for grant in grants:
            self._add(grant)

    def is_reserved(self, stream: str) -> bool:
        """Whether nobody makes or grows a stream of this name but the plug-in whose it is."""
        return stream.startswith(self._reserved)

    def add(self, grant: Grant) -> None:
        """Let a grant take effect."""
        self._add(grant)
        self._changed()
        self.rights.gained()

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
        if after - before:
            self.rights.gained()

    def revoke(self, who: str) -> None:
        """Take back every grant that names exactly `who`."""
        revoked = [grants.revoke(who) for grants in (self._grants, self._addresses)]
        if any(revoked):
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
        if any(may - before.get(who, _NONE) for who, may in after.items()):
            self.rights.gained(stream)
        if not all(who in after or who == EVERYBODY or self.known(who) for who in before):
            self.rights.principal_gone()

    def granted(self, principal: str) -> Set[str]:
        """The streams whose own grants name a principal, or EVERYBODY; in no order."""
        return self._held.get(principal, _NONE)

    def holders(self, verb: Verb, stream: str) -> set[str]:
        """Who may do `verb` with a stream: principals, and patterns that stand for several."""
        found = {who for who, may in self._streams.get(stream, {}).items() if verb in may}
        for who, grants in self._grants.held.items():
            for held in grants:
                may = held.grant.may
                if (verb in may or "admin" in may) and held.matches(stream):
                    found.add(who)
                    break
        return found

    def names(self, principal: str) -> bool:
        """Whether a grant for a pattern of streams is for this principal."""
        return any(True for _ in self._grants.of(principal))

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
        return (
            principal in self._lent
            or principal in self._held
            or self.names(principal)
            or any(True for _ in self._addresses.of(principal))
        )

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

    def address_verbs(self, principal: str, address: bytes) -> frozenset[AddressVerb]:
        """All that a principal may do with an address of an application's actor.

        One that is longer than any such address may be is nobody's.
        """
        if len(address) > NAME_BYTES_MAX:
            return frozenset()
        key = (principal, address)
        verbs = self._address_cache.get(key)
        if verbs is None:
            verbs = self._address_cache[key] = self._find_address(principal, address)
            if len(self._address_cache) > _CACHE_MAX:
                self._address_cache.popitem(last=False)
        return verbs

    def sees_all(self, principal: str) -> bool:
        """Whether a principal may do something with every stream, whatever its name."""
        found = self._unrestricted.get(principal)
        if found is None:
            if len(self._unrestricted) > _CACHE_MAX:
                self._unrestricted.clear()
            found = self._unrestricted[principal] = principal == NODE_PRINCIPAL or any(
                held.grant.streams == "*" for held in self._grants.of(principal)
            )
        return found

    def administers(self, principal: str) -> bool:
        """Whether a principal may see the node's state: it has `admin` on some streams."""
        return principal == NODE_PRINCIPAL or any(
            "admin" in held.grant.may for held in self._grants.of(principal)
        )

    def _add(self, grant: Grant) -> None:
        if grant.streams is not None:
            self._grants.add(grant, grant.streams)
        if grant.addresses is not None:
            self._addresses.add(grant, grant.addresses)

    def _remove(self, grant: Grant) -> None:
        self._grants.remove(grant)
        self._addresses.remove(grant)

    def _changed(self) -> None:
        self._cache.clear()
        self._address_cache.clear()
        self._unrestricted.clear()
        self._alike.clear()

    def _find_alike(self, principal: str) -> frozenset[Verb] | None:
        if len(self._alike) > _CACHE_MAX:
            self._alike.clear()
        alike = all(held.grant.streams == "*" for held in self._grants.of(principal))
        verbs = self._alike[principal] = self._find(principal, "") if alike else None
        return verbs

    def _find(self, principal: str, stream: str) -> frozenset[Verb]:
        if principal == NODE_PRINCIPAL:
            return _ALL
        verbs: set[GrantVerb] = set()
        for held in self._grants.of(principal):
            if held.matches(stream):
                verbs |= held.grant.may
        return self._shared(verbs)

    def _find_address(self, principal: str, address: bytes) -> frozenset[AddressVerb]:
        if principal == NODE_PRINCIPAL:
            return _ALL_OF_ADDRESSES
        # What is no text matches patterns as any other characters do.
        name = address.decode(errors="replace")
        verbs: set[str] = set()
        for held in self._addresses.of(principal):
            if held.matches(name):
                verbs |= held.grant.may
        return _ALL_OF_ADDRESSES if "admin" in verbs else _ALL_OF_ADDRESSES.intersection(verbs)

    def _shared(self, words: Iterable[str]) -> frozenset[Verb]:
        """The verbs among words; equal ones are one object, as 100,000 streams have few others."""
        given = frozenset(words)
        verbs = _ALL if "admin" in given else _ALL.intersection(given)
        return self._answers.setdefault(verbs, verbs)
