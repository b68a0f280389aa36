"""Which nodes share the logs, and which of them owns a log; pure: time is an argument.

A node says again and again that it is there. Each of the others believes it for the length of a
lease, measured by its own clock from the moment that it heard of it. Nothing rests on what they
believe but the way that writes take: JetStream's expected last sequence orders them, whoever
writes.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

_WEIGHT_BYTES: Final = 8

_OWNERS_MAX: Final = 65_536
"""Logs whose owners are kept in memory."""

MEMBERS_MAX: Final = 256
"""Nodes that one node knows of. Own choice: far more than have one store."""

AVOIDED_SECONDS: Final = 10.0
"""So long nothing of a log is handed to a node that is there and has not answered for it."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One node.

    Attributes:
        identity: its Ed25519 identity, hex; the same after a restart, so that its logs come back.
        name: what people call it.
        instance: tells this run of its store from all others.
    """

    identity: str
    name: str
    instance: bytes


def owner_of(log: int, members: Sequence[Member]) -> Member:
    """The owner of a log among at least one member: the one with the highest random weight.

    When a member comes or goes, only the logs that it owns have another owner than before.
    """
    return max(members, key=lambda member: _weight(log, member))


def _weight(log: int, member: Member) -> tuple[bytes, bytes]:
    key = log.to_bytes(8, "big") + member.identity.encode()
    return blake2b(key, digest_size=_WEIGHT_BYTES).digest(), member.instance


class Members:
    """The nodes that are there, as one of them knows it; times are seconds of its own clock.

    Attributes:
        own: this node.
        live: all that are there, this one among them, ordered by name; replaced, never changed.
    """

    def __init__(self, own: Member, lease_seconds: float) -> None:
        self.own = own
        self.live: tuple[Member, ...] = (own,)
        self._lease_seconds = lease_seconds
        self._heard: dict[str, tuple[Member, float]] = {}
        self._avoided: dict[tuple[int, Member], float] = {}
        self._owners: dict[int, Member] = {}

    @property
    def alone(self) -> bool:
        """Whether no other node is there."""
        return len(self.live) == 1

    def hear(self, member: Member, now: float) -> bool:
        """A node has said that it is there; returns whether that is new."""
        if member.identity == self.own.identity:
            return False
        known = self._heard.get(member.identity)
        if known is None and len(self._heard) >= MEMBERS_MAX:
            return False
        self._heard[member.identity] = (member, now + self._lease_seconds)
        if known is not None and known[0] == member:
            return False
        self._change()
        return True

    def lose(self, member: Member) -> None:
        """A node is gone, unless it runs anew since."""
        known = self._heard.get(member.identity)
        if known is not None and known[0] == member:
            del self._heard[member.identity]
            self._change()

    def avoid(self, log: int, member: Member, now: float) -> None:
        """A node has not answered for a log: it does not own this one for a while."""
        self._avoided[log, member] = now + AVOIDED_SECONDS
        self._owners.pop(log, None)

    def expire(self, now: float) -> list[Member]:
        """Let go whose lease is over, and avoid no longer whose time is; returns who went."""
        gone = [member for member, until in self._heard.values() if until <= now]
        for member in gone:
            del self._heard[member.identity]
        forgiven = [one for one, until in self._avoided.items() if until <= now]
        for log, member in forgiven:
            del self._avoided[log, member]
            self._owners.pop(log, None)
        if gone:
            self._change()
        return gone

    def is_live(self, member: Member) -> bool:
        """Whether a node is there."""
        return member in self.live

    def spoke(self, member: Member, since: float) -> bool:
        """Whether a node has said that it is there since then."""
        known = self._heard.get(member.identity)
        return known is not None and known[1] - self._lease_seconds > since

    def owner_of(self, log: int) -> Member:
        """The owner of a log."""
        owner = self._owners.get(log)
        if owner is None:
            if len(self._owners) >= _OWNERS_MAX:
                self._owners.clear()
            there = [one for one in self.live if (log, one) not in self._avoided]
            owner = self._owners[log] = owner_of(log, there)
        return owner

    def _change(self) -> None:
        found = [self.own, *(member for member, _ in self._heard.values())]
        self.live = tuple(sorted(found, key=lambda member: (member.name, member.identity)))
        self._owners = {}
