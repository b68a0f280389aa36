"""Who is there, and who owns what."""

from collections import Counter

from rillnode.actors.storage.jetstream.membership import (
    AVOIDED_SECONDS,
    MEMBERS_MAX,
    Member,
    Members,
    owner_of,
)

LEASE = 3.0
LOGS = range(2**32, 2**32 + 3_000)


def member(number: int, instance: bytes = b"1") -> Member:
    return Member(f"{number:064x}", f"node {number}", instance)


def owners(*members: Member) -> list[Member]:
    return [owner_of(log, members) for log in LOGS]


def test_logs_are_spread_evenly() -> None:
    counts = Counter(owner.identity for owner in owners(*map(member, range(3))))
    assert len(counts) == 3
    assert all(900 < count < 1_100 for count in counts.values())


def test_the_owner_does_not_depend_on_the_order_or_the_run() -> None:
    assert owners(member(1), member(2), member(3)) == owners(member(3), member(1), member(2))
    again = owners(member(1, b"2"), member(2, b"3"), member(3, b"4"))
    assert [one.identity for one in again] == [
        one.identity for one in owners(member(1), member(2), member(3))
    ]


def test_a_join_moves_only_what_the_new_one_owns() -> None:
    before = owners(member(1), member(2), member(3))
    after = owners(member(1), member(2), member(3), member(4))
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {member(4)}
    assert len(LOGS) / 5 < len(moved) < len(LOGS) / 3


def test_a_leave_moves_only_what_the_lost_one_owned() -> None:
    before = owners(member(1), member(2), member(3))
    after = owners(member(1), member(3))
    moved = [old for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {member(2)}
    assert len(moved) == before.count(member(2))


def test_a_lease_ends_unless_it_is_renewed() -> None:
    members = Members(member(1), LEASE)
    assert list(members.live) == [member(1)]
    assert members.hear(member(2), 0.0)
    assert not members.hear(member(2), 1.0)
    assert list(members.live) == [member(1), member(2)]
    assert members.expire(1.0 + LEASE - 0.01) == []
    assert members.is_live(member(2))
    assert members.expire(1.0 + LEASE) == [member(2)]
    assert list(members.live) == [member(1)]
    assert all(members.owner_of(log) is members.own for log in LOGS)


def test_a_node_that_runs_anew_takes_its_place_again() -> None:
    members = Members(member(1), LEASE)
    members.hear(member(2), 0.0)
    assert members.hear(member(2, b"2"), 0.0)
    # What the run before was told of late.
    members.lose(member(2))
    assert list(members.live) == [member(1), member(2, b"2")]
    members.lose(member(2, b"2"))
    assert list(members.live) == [member(1)]


def test_its_own_name_from_elsewhere_is_no_other_node() -> None:
    members = Members(member(1), LEASE)
    assert not members.hear(member(1, b"2"), 0.0)
    assert list(members.live) == [member(1)]


def test_who_has_spoken_is_known() -> None:
    members = Members(member(1), LEASE)
    assert not members.spoke(member(2), 0.0)
    members.hear(member(2), 1.0)
    assert members.spoke(member(2), 0.5)
    assert not members.spoke(member(2), 1.5)


def test_who_does_not_answer_for_a_log_does_not_own_that_one_for_a_while() -> None:
    members = Members(member(1), LEASE)
    members.hear(member(2), 0.0)
    log, *others = (log for log in LOGS if members.owner_of(log) == member(2))
    assert others
    members.avoid(log, member(2), 0.0)
    assert members.is_live(member(2))
    assert members.owner_of(log) == member(1)
    assert {members.owner_of(other) for other in others} == {member(2)}
    members.hear(member(2), AVOIDED_SECONDS)
    assert members.expire(AVOIDED_SECONDS) == []
    assert members.owner_of(log) == member(2)


def test_strangers_do_not_fill_the_memory() -> None:
    members = Members(member(0), LEASE)
    for number in range(1, MEMBERS_MAX + 100):
        members.hear(member(number), 0.0)
    assert len(members.live) == MEMBERS_MAX + 1
