from link_support import ManualClock
from rillnode.transports.sweep import SHARE, Sweep


class Member:
    def __init__(self) -> None:
        self.checks: list[float] = []

    def check(self, now: float) -> None:
        self.checks.append(now)


def test_every_member_is_checked_once_per_round() -> None:
    clock, members = ManualClock(), {Member(): None for _ in range(20)}
    Sweep(clock, members.keys(), 1.0).start()
    clock.advance(10.0)
    for member in members:
        gaps = [b - a for a, b in zip(member.checks, member.checks[1:], strict=False)]
        assert len(member.checks) >= 9
        assert max(gaps) <= 1.01


def test_a_few_members_are_checked_no_more_often_than_many() -> None:
    for count in (1, 3, 8, 9):
        clock, members = ManualClock(), {Member(): None for _ in range(count)}
        Sweep(clock, members.keys(), 1.0).start()
        clock.advance(20.0)
        assert {len(member.checks) for member in members} <= {19, 20, 21}


def test_a_round_is_spread_over_several_timer_calls() -> None:
    clock, members = ManualClock(), {Member(): None for _ in range(1_000)}
    Sweep(clock, members.keys(), 1.0).start()
    clock.advance(0.13)
    assert 0 < sum(len(member.checks) for member in members) <= 125


def test_however_many_there_are_one_timer_call_looks_at_few() -> None:
    clock, members = ManualClock(), {Member(): None for _ in range(20 * SHARE + 1)}
    Sweep(clock, members.keys(), 1.0).start()
    for _ in range(2_000):
        before = sum(len(member.checks) for member in members)
        clock.advance(0.001)  # no two steps are as near
        assert sum(len(member.checks) for member in members) - before <= SHARE
    assert {len(member.checks) for member in members} <= {1, 2}


def test_few_members_share_one_timer_call() -> None:
    clock, members = ManualClock(), {Member(): None for _ in range(20)}
    Sweep(clock, members.keys(), 1.0).start()
    clock.advance(0.13)
    assert [len(member.checks) for member in members] == [1] * 20


def test_a_new_member_is_checked_within_two_rounds() -> None:
    clock, members = ManualClock(), {Member(): None for _ in range(100)}
    sweep = Sweep(clock, members.keys(), 1.0)
    sweep.start()
    clock.advance(0.3)
    late = Member()
    members[late] = None
    sweep.start()
    clock.advance(2.0)
    assert late.checks


def test_members_that_go_in_the_middle_of_a_round_are_forgotten() -> None:
    clock = ManualClock()
    gone = [Member() for _ in range(300)]
    members = dict.fromkeys(gone)
    sweep = Sweep(clock, members.keys(), 1.0)
    sweep.start()
    clock.advance(0.13)  # not all were looked at
    members.clear()
    clock.advance(2.0)
    checked = sum(len(member.checks) for member in gone)
    late = Member()
    members[late] = None
    sweep.start()
    clock.advance(2.0)
    assert late.checks
    assert sum(len(member.checks) for member in gone) == checked < 300


def test_one_timer_serves_all_and_none_runs_without_members() -> None:
    clock, members = ManualClock(), dict[Member, None]()
    sweep = Sweep(clock, members.keys(), 1.0)
    assert clock.timers == 0
    for _ in range(50):
        members[Member()] = None
        sweep.start()
    assert clock.timers == 1
    members.clear()
    clock.advance(2.0)
    assert clock.timers == 0
    member = Member()
    members[member] = None
    sweep.start()
    clock.advance(1.0)
    assert member.checks
