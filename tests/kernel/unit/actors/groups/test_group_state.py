"""What follows for a group from who comes and goes: shares are even, and few partitions move."""

from collections import Counter
from math import ceil, floor

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.core.groups.state import (
    NOTHING,
    GroupState,
    Hold,
    Member,
    claims,
    joined,
    left,
    record_name,
    released,
    shares,
)
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import GROUP_MEMBERS_MAX

PARTITIONS = 6

names = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10)
numbers = st.integers(0, 12)


def member(name: str, *, node: str = "n", shared: bool = True) -> Member:
    return Member(name, node, "noise:00", shared)


def group_of(*names: str, partitions: int = PARTITIONS) -> GroupState:
    state = GroupState()
    for name in names:
        state = settle(joined(state, member(name), partitions), partitions)
    return state


def settle(state: GroupState, partitions: int) -> GroupState:
    """Every member gives up what it is asked for, one partition at a time."""
    for _ in range(partitions + 1):
        asked = [
            (name, number, dict(one.held)[number])
            for name, one in claims(state, partitions).items()
            for number in one.asked
        ]
        if not asked:
            return state
        name, number, generation = asked[0]
        state = released(state, name, {number: generation}, partitions)
    raise AssertionError("it does not come to an end")


def holders(state: GroupState) -> dict[int, str]:
    return {number: hold.member for number, hold in state.holds.items()}


@given(names, st.dictionaries(numbers, st.sampled_from("abcdefghijxyz")), numbers)
def test_shares_are_even_and_as_few_move_as_that_takes(
    members: list[str], holds: dict[int, str], partitions: int
) -> None:
    found = shares(members, holds, partitions)
    assert set(found) == (set(range(partitions)) if members else set())
    if not members:
        return
    counts = Counter(found.values())
    each = [counts[name] for name in members]
    assert max(each) <= ceil(partitions / len(members))
    assert min(each) >= floor(partitions / len(members))
    # Nobody keeps more than his share, and everybody as much of it as he has.
    own = Counter(name for number, name in holds.items() if number < partitions and name in members)
    least, more = divmod(partitions, len(members))
    most_kept = sum(min(own[name], least) for name in members)
    most_kept += min(more, sum(own[name] > least for name in members))
    assert sum(holds.get(number) == name for number, name in found.items()) == most_kept


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=30))
def test_whoever_comes_and_goes_everything_has_one_holder(steps: list[tuple[bool, str]]) -> None:
    state, last = GroupState(), 0
    for comes, name in steps:
        before = state
        if comes:
            state = joined(state, member(name), PARTITIONS)
        else:
            state = left(state, {name}, PARTITIONS)
        assert state.generation == before.generation + (state is not before)
        for number, hold in state.holds.items():
            # Nothing is given to another while somebody has it who is there still.
            was = before.holds.get(number)
            if was is not None and state.member(was.member):
                assert hold == was
            else:
                assert hold.generation == state.generation > last
        state = settle(state, PARTITIONS)
        assert set(state.holds) == (set(range(PARTITIONS)) if state.members else set())
        assert all(one.asked == () for one in claims(state, PARTITIONS).values())
        last = state.generation


def test_a_partition_moves_only_when_it_was_given_up() -> None:
    alone = group_of("a")
    assert claims(alone, PARTITIONS)["a"] == (tuple((number, 1) for number in range(6)), ())
    two = joined(alone, member("b"), PARTITIONS)
    found = claims(two, PARTITIONS)
    assert (found["a"].asked, found.get("b", NOTHING)) == ((3, 4, 5), NOTHING)
    part = released(two, "a", {4: 1}, PARTITIONS)
    found = claims(part, PARTITIONS)
    assert (found["a"].asked, found["b"].held) == ((3, 5), ((4, part.generation),))


def test_what_is_given_up_late_is_not_taken_from_who_has_it_now() -> None:
    two = group_of("a", "b", partitions=2)
    (moved,) = [number for number, hold in two.holds.items() if hold.member == "b"]
    again = released(two, "a", {moved: 1}, 2)
    assert again is two


def test_a_member_that_comes_again_keeps_what_it_has() -> None:
    state = group_of("a", "b")
    again = joined(state, member("a", node="other"), PARTITIONS)
    assert again.holds == state.holds
    assert [one.node for one in again.members] == ["other", "n"]
    assert joined(again, member("a", node="other"), PARTITIONS) is again


def test_two_hundred_members_of_four_partitions() -> None:
    state = group_of(*(f"{number:03}" for number in range(200)), partitions=4)
    first = holders(state)
    assert len(set(first.values())) == 4
    # Who has nothing may go without anybody else hearing of it.
    fewer = left(state, {"150", "151"}, 4)
    assert fewer.holds == state.holds
    gone = left(fewer, {first[2]}, 4)
    assert {number for number in range(4) if gone.holds[number] != state.holds[number]} == {2}


def test_more_partitions_are_shared_out() -> None:
    state = group_of("a", "b", partitions=2)
    more = settle(left(state, set(), 5), 5)
    assert sorted(Counter(holders(more).values()).values()) == [2, 3]
    assert {0, 1} == {number for number in (0, 1) if more.holds[number] == state.holds[number]}


def test_a_name_is_a_group_or_a_single_consumer() -> None:
    single = joined(GroupState(), member("a", shared=False), PARTITIONS)
    assert (single.holds, single.shared) == ({}, False)
    beside = joined(single, member("b", shared=False), PARTITIONS)
    assert len(beside.members) == 2
    with pytest.raises(RequestError, match="A single consumer uses this name") as refused:
        joined(single, member("c"), PARTITIONS)
    assert refused.value.code == "group.name"
    with pytest.raises(RequestError, match="Members of a group share this name"):
        joined(group_of("a"), member("c", shared=False), PARTITIONS)
    with pytest.raises(RequestError, match="another member's"):
        joined(single, member("a"), PARTITIONS)
    # Nobody else uses it any more.
    assert joined(left(single, {"a"}, PARTITIONS), member("c"), PARTITIONS).shared


def test_another_principal_is_another_member() -> None:
    with pytest.raises(RequestError) as refused:
        joined(group_of("a"), Member("a", "n", "noise:ff"), PARTITIONS)
    assert refused.value.code == "group.member"


def test_a_group_has_so_many_members() -> None:
    full = GroupState(members=tuple(member(f"{number}") for number in range(GROUP_MEMBERS_MAX)))
    assert joined(full, member("0"), 1).member("0") is not None
    with pytest.raises(RequestError, match="1,024 members") as refused:
        joined(full, member("x"), 1)
    assert refused.value.code == "group.limit"


def test_a_record_survives_the_store() -> None:
    state = GroupState(generation=7, members=(member("a"),), holds={3: Hold("a", 5)})
    assert GroupState.decode(state.encode()) == state
    assert GroupState.decode(None) == GroupState()
    assert record_name(1, "a/b *") == "groups/4294967296/a%2Fb%20%2A"
