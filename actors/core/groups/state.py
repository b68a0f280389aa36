"""The state of a group, and what follows from members that come and go: pure functions."""

from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from rillnode.actors.log.records import GROUPS, beside_stream
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import GROUP_MEMBERS_MAX

_NAME_TAKEN: Final = {
    True: "Members of a group share this name: say group=True, or choose another name",
    False: "A single consumer uses this name: stop it first, or choose another name for the group",
}
"""By whether it is a group that has the name."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A member of a group.

    Attributes:
        id: its token, hex.
        node: whose link it has: the node, a dot, and an instance of the group's actor there.
        principal: whose it is.
        shared: see JoinGroupRequest.
    """

    id: str
    node: str
    principal: str
    shared: bool = True


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """The member that has a partition, and the generation since which it does."""

    member: str
    generation: int


class GroupState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group's record.

    Attributes:
        generation: counts its changes, and never goes back.
        members: in the order in which they have come.
        holds: by partition; all have somebody as long as there are members that share.
    """

    generation: int = 0
    members: tuple[Member, ...] = ()
    holds: dict[int, Hold] = {}

    def encode(self) -> bytes:
        """The record."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes | None) -> "GroupState":
        """Read the record; there is none of a group that has never had a member."""
        return cls() if value is None else msgspec.json.decode(value, type=cls)

    def member(self, member_id: str) -> Member | None:
        """The member of an id."""
        return next((one for one in self.members if one.id == member_id), None)

    def nodes(self) -> frozenset[str]:
        """The nodes that have members' links."""
        return frozenset(node_of(one.node) for one in self.members)

    def held(self) -> dict[str, list[int]]:
        """What each member has that has anything."""
        found: dict[str, list[int]] = {}
        for partition, hold in sorted(self.holds.items()):
            found.setdefault(hold.member, []).append(partition)
        return found

    @property
    def shared(self) -> bool:
        """Whether its members share the partitions, as far as it has any."""
        return any(one.shared for one in self.members)


class Claims(NamedTuple):
    """The partitions that a member has.

    Attributes:
        held: its partitions, each with the generation since which.
        asked: those that it is to give up.
    """

    held: tuple[tuple[int, int], ...] = ()
    asked: tuple[int, ...] = ()


NOTHING: Final = Claims()


def record_name(stream_id: int, name: str) -> str:
    """What a group's record is called; it lies where the stream does."""
    return f"{beside_stream(stream_id)}{quote(name, safe='')}"


NODES: Final = f"{GROUPS}nodes/"
"""Begins the names of what nodes with groups write again and again as long as they are well."""


def node_of(instance: str) -> str:
    """The node of an instance of a group's actor, as a member has it."""
    return instance.partition(".")[0]


def shares(members: Sequence[str], holds: Mapping[int, str], partitions: int) -> dict[int, str]:
    """Whose each partition is to be: as evenly as can be, and as few moved as that takes.

    Args:
        members: in an order in which nothing changes by itself.
        holds: who has which now; may name others, and partitions that are no more.
        partitions: how many there are.
    """
    own: dict[str, list[int]] = {member: [] for member in members}
    for partition in sorted(holds):
        if partition < partitions and holds[partition] in own:
            own[holds[partition]].append(partition)
    least, more = divmod(partitions, len(members)) if members else (0, 0)
    # Who has most may have one more than others, where that is left over.
    ranked = sorted(own, key=lambda member: -len(own[member]))
    share: dict[int, str] = {}
    room: list[str] = []
    for rank, member in enumerate(ranked):
        quota = least + (rank < more)
        share |= dict.fromkeys(own[member][:quota], member)
        room += [member] * (quota - len(own[member]))
    free = (partition for partition in range(partitions) if partition not in share)
    return share | dict(zip(free, room, strict=True)) if members else {}


def claims(state: GroupState, partitions: int) -> dict[str, Claims]:
    """What each member has that has anything."""
    holders = {partition: hold.member for partition, hold in state.holds.items()}
    target = shares(_sharing(state.members), holders, partitions)
    held: dict[str, list[tuple[int, int]]] = {}
    asked: dict[str, list[int]] = {}
    for partition, hold in sorted(state.holds.items()):
        held.setdefault(hold.member, []).append((partition, hold.generation))
        if target.get(partition) != hold.member:
            asked.setdefault(hold.member, []).append(partition)
    return {
        member: Claims(tuple(parts), tuple(asked.get(member, ()))) for member, parts in held.items()
    }


def joined(state: GroupState, member: Member, partitions: int) -> GroupState:
    """A member comes, or comes again, perhaps by another node.

    Raises:
        RequestError: `group.name`, `group.member`, `group.limit`.
    """
    before = state.member(member.id)
    others = [one for one in state.members if one is not before]
    if any(one.shared is not member.shared for one in others):
        raise RequestError("group.name", _NAME_TAKEN[not member.shared])
    known = before or member
    if (known.principal, known.shared) != (member.principal, member.shared):
        raise RequestError("group.member", "This token is another member's: make up one of its own")
    if len(others) >= GROUP_MEMBERS_MAX:
        text = f"A group has at most {GROUP_MEMBERS_MAX:,} members"
        raise RequestError("group.limit", text)
    if before is None:
        members = (*state.members, member)
    else:
        members = tuple(member if one is before else one for one in state.members)
    return _settled(state, members, state.holds, partitions)


def left(state: GroupState, gone: Set[str], partitions: int) -> GroupState:
    """Members are no more: others have at once what these had."""
    members = tuple(one for one in state.members if one.id not in gone)
    return _settled(state, members, state.holds, partitions)


def released(
    state: GroupState, member: str, held: Mapping[int, int], partitions: int
) -> GroupState:
    """A member gives partitions up that it has had since these generations.

    Those that it was not asked for it gets again, in a later generation.
    """
    given = {partition: Hold(member, generation) for partition, generation in held.items()}
    kept = {
        partition: hold for partition, hold in state.holds.items() if given.get(partition) != hold
    }
    return _settled(state, state.members, kept, partitions)


def _sharing(members: Sequence[Member]) -> list[str]:
    return [one.id for one in members if one.shared]


def _settled(
    before: GroupState, members: tuple[Member, ...], holds: Mapping[int, Hold], partitions: int
) -> GroupState:
    """The state after that: what nobody has is given out. It is the one before where all is."""
    sharing = _sharing(members)
    there = set(sharing)
    kept = {
        partition: hold
        for partition, hold in holds.items()
        if hold.member in there and partition < partitions
    }
    target = shares(sharing, {number: hold.member for number, hold in kept.items()}, partitions)
    generation = before.generation + 1
    given = {
        number: Hold(member, generation) for number, member in target.items() if number not in kept
    }
    if members == before.members and kept == before.holds and not given:
        return before
    return GroupState(generation=generation, members=members, holds=kept | given)
