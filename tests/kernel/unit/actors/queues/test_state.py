"""The state of a work queue, against a plain model of the same."""

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rillnode.actors.core.queues import state as module
from rillnode.actors.core.queues.state import (
    PAUSE_MS,
    PAUSE_MS_MAX,
    SETTLEMENTS_KEPT,
    WORKER_KEPT_MS,
    Outcome,
    QueueState,
    Settings,
    key_number,
)
from rillnode.codecs.errors import StoreError

NONE: Final = frozenset[tuple[int, int, int]]()
TOKENS: Final = (b"a" * 16, b"b" * 16)


def made(partitions: int = 1, *, attempts: int = 3, by_key: bool = False) -> QueueState:
    state = QueueState.new()
    state.grow(partitions)
    assert state.set_settings(Settings(attempts, 0, by_key))
    for token in TOKENS:
        state.join(token, 0)
    return state


def given(state: QueueState, now: int, worker: int = 1, deadline: int = 10**6) -> list[int]:
    """Give all that can be given; return the indexes."""
    found: list[int] = []
    state.ripen(now)
    while (place := state.take_ready()) is not None:
        state.give(place, worker, now, deadline - now)
        found.append(place[1])
    return found


def looked(state: QueueState, *keys: bytes | None) -> QueueState:
    for key in keys or (None,):
        state.look_at(0, state.next_index(0), key_number(key))
    return state


def settle(
    state: QueueState,
    index: int,
    outcome: Outcome = Outcome.DONE,
    *,
    attempt: int = 1,
    worker: int = 1,
    milliseconds: int | None = None,
    reason: str = "",
    now: int = 0,
) -> bool:
    return state.settle(worker, (0, index), attempt, outcome, milliseconds, reason, now)


def test_what_becomes_of_an_entry_is_not_so_of_others_that_were_given_with_it() -> None:
    one_by_one, together = looked(made(), *[None] * 12), made()
    assert given(one_by_one, 0, deadline=100) == list(range(12))
    together.give_new(0, 12, 1, 0, 100)
    for state in (one_by_one, together):
        assert settle(state, 0)
        assert settle(state, 1, Outcome.RETRY, milliseconds=10)
        assert settle(state, 2, Outcome.REJECT, reason="no page")
        assert settle(state, 3, Outcome.EXTEND, milliseconds=200)
        assert settle(state, 4, Outcome.RELEASE)
        state.return_all(1, 0, but=frozenset((0, index, 1) for index in (3, 5, 6, 7, 8)))
        state.bury((0, 2))
        state.expire(100)
        assert settle(state, 3)
        assert given(state, 100, worker=2, deadline=500) == [4, 9, 10, 11, 1, 5, 6, 7, 8]
        assert settle(state, 5, attempt=2, worker=2)
        state.look_at_clock(50)
        state.lose(2, 60, "its worker has left")
    assert one_by_one.encode(1) == together.encode(1)


def test_done_entries_leave_nothing_behind_in_any_order() -> None:
    state = looked(made(), *[None] * 5_000)
    assert given(state, 0) == list(range(5_000))
    for index in range(4_999, 0, -1):
        assert settle(state, index)
    assert (state.low_mark(0), state.next_index(0), state.open_count) == (0, 5_000, 1)
    assert len(state.encode(1)) < 200
    assert settle(state, 0)
    assert (state.low_mark(0), state.open_count, state.done) == (5_000, 0, 5_000)


def test_late_answers_are_refused() -> None:
    state = looked(made())
    given(state, 0, deadline=100)
    state.expire(99)
    assert state.of((0, 0)) is not None
    state.expire(100)
    assert not settle(state, 0)
    given(state, 100, worker=2)
    assert not settle(state, 0)
    assert not settle(state, 0, attempt=2)
    assert settle(state, 0, attempt=2, worker=2)
    assert not settle(state, 0, attempt=2, worker=2)
    assert not state.settle(1, (7, 0), 1, Outcome.DONE, None, "", 0)


def test_the_pause_grows_and_has_an_end() -> None:
    state = looked(made(attempts=100))
    now, pauses = 0, list[int]()
    for attempt in range(1, 13):
        assert given(state, now) == [0]
        assert settle(state, 0, Outcome.RETRY, attempt=attempt, now=now)
        due = state.due_at()
        assert due is not None
        assert given(state, due - 1) == []
        pauses.append(due - now)
        now = due
    assert pauses[:3] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX
    assert pauses == sorted(pauses)


def test_after_its_attempts_an_entry_is_a_dead_letter_with_the_reason() -> None:
    state = looked(made(attempts=2))
    given(state, 0)
    assert settle(state, 0, Outcome.RETRY, milliseconds=0)
    given(state, 0)
    assert settle(state, 0, Outcome.RETRY, attempt=2, reason="x" * 1_000)
    assert list(state.dying) == [(0, 0)]
    entry = state.of((0, 0))
    assert entry is not None
    assert (entry.reason, entry.attempts) == ("x" * 256, 2)
    assert given(state, 10**9) == []
    assert not settle(state, 0, attempt=2)
    state = QueueState.decode(state.encode(1))
    assert list(state.dying) == [(0, 0)]
    state.bury((0, 0))
    assert (state.dead, state.open_count, state.low_mark(0)) == (1, 0, 1)
    assert state.take_back((0, 0), 0)
    assert not state.take_back((0, 0), 0)
    assert not state.take_back((0, 1), 0)
    assert not state.take_back((5, 0), 0)
    assert given(state, 0) == [0]
    assert settle(state, 0)


def test_more_time_is_had_and_no_attempt_is_lost_that_was_not_begun() -> None:
    state = looked(made())
    given(state, 0, deadline=100)
    assert settle(state, 0, Outcome.EXTEND, milliseconds=500, now=50)
    state.expire(549)
    assert state.given_count == 1
    assert settle(state, 0, Outcome.RELEASE)
    assert given(state, 0) == [0]
    assert settle(state, 0, attempt=1)


def test_a_clock_that_has_gone_back_keeps_nobody_waiting() -> None:
    state = looked(made(by_key=True), b"k", b"k", b"j", None)
    ahead = 10**9
    assert given(state, ahead, deadline=ahead + 100) == [0, 2, 3]
    assert settle(state, 2, Outcome.RETRY, milliseconds=50, now=ahead)
    assert settle(state, 3, Outcome.EXTEND, milliseconds=70, now=ahead)
    state = QueueState.decode(state.encode(1))
    state.look_at_clock(1_000)
    state.expire(1_069)
    assert given(state, 1_049) == []
    assert given(state, 1_050, worker=2, deadline=10**6) == [2]
    state.expire(1_070)
    assert given(state, 1_070, worker=2, deadline=10**6) == [3]
    state.expire(1_100)
    assert given(state, 1_100, worker=2, deadline=10**6) == [0]
    assert settle(state, 0, attempt=2, worker=2, now=1_100)
    assert given(state, 1_100) == [1]


def test_a_shorter_time_takes_effect() -> None:
    state = looked(made())
    given(state, 0, deadline=10_000)
    assert settle(state, 0, Outcome.EXTEND, milliseconds=10, now=0)
    state.expire(10)
    assert state.given_count == 0


def test_of_a_key_one_is_out_at_a_time_in_order() -> None:
    state = looked(made(by_key=True), b"k", b"k", b"j", None, b"k", None)
    assert given(state, 0) == [0, 2, 3, 5]
    assert settle(state, 0, Outcome.RETRY, milliseconds=10)
    assert given(state, 9) == []
    state = QueueState.decode(state.encode(1))
    assert given(state, 10) == [0]
    assert settle(state, 0, attempt=2)
    assert given(state, 10) == [1]
    state = QueueState.decode(state.encode(1))
    assert given(state, 10) == []
    assert settle(state, 1, Outcome.REJECT)
    assert given(state, 10) == []
    state.bury((0, 1))
    assert given(state, 10) == [4]
    assert state.take_back((0, 1), key_number(b"k"))
    assert given(state, 10) == []
    assert settle(state, 4)
    assert given(state, 10) == [1]


def test_the_order_changes_only_while_nothing_is_open() -> None:
    state = looked(made())
    assert not state.set_settings(Settings(3, 0, True))
    assert state.set_settings(Settings(9, 7, False))
    given(state, 0)
    assert settle(state, 0)
    assert state.set_settings(Settings(3, 0, True))


def test_what_was_trimmed_is_passed_over_and_counted() -> None:
    state = looked(made(), None, None)
    state.pass_over(0, 10)
    state.pass_over(0, 3)
    assert (state.next_index(0), state.trimmed) == (10, 8)
    state.pass_one_over((0, 1))
    assert (state.trimmed, given(state, 0)) == (9, [0])


def test_what_a_worker_lost_on_its_way_or_with_itself_comes_again() -> None:
    state = looked(made(attempts=2), None, None, None)
    given(state, 0)
    state.return_all(1, 0, but=frozenset({(0, 0, 1), (0, 1, 7)}))
    assert given(state, 0, worker=2) == [1, 2]
    assert settle(state, 1, attempt=1, worker=2)
    state.lose(2, 5, "gone")
    assert given(state, 5) == [2]
    state.lose(1, 5, "gone")
    assert list(state.dying) == [(0, 2)]
    assert given(state, 5) == [0]


def test_workers_are_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKERS_MAX", 2)
    state = looked(made())
    given(state, 0)
    assert state.join(b"c", 5) is None
    assert state.join(b"a" * 16, 5) == 1
    later = WORKER_KEPT_MS + 10
    assert state.join(b"c", later, {TOKENS[1]: 0}) is None  # b may be idle, but is connected
    assert state.join(b"c", later) == 2  # b is forgotten, and a has a job
    assert state.worker_of(TOKENS[1]) is None
    assert list(state.workers) == [(1, TOKENS[0])]
    state.note_settled(2, 7, [1], later)
    state = QueueState.decode(state.encode(5))
    assert state.settled(2, 7, 3) == [1]


def test_settlements_of_a_worker_come_in_any_order_and_each_is_known() -> None:
    state = made()
    state.note_settled(1, 3, [0], 5)
    assert [state.settled(1, number, 2) for number in (0, 1, 3, 4)] == [range(2), None, [0], None]
    state.note_settled(1, 1, [1], 5)
    state.note_settled(1, 2, [], 5)
    state = QueueState.decode(state.encode(5))
    assert [state.settled(1, number, 2) for number in (1, 2, 3)] == [[1], [], [0]]
    state.note_settled(1, 2 + SETTLEMENTS_KEPT, [], 5)
    assert [state.settled(1, number, 2) for number in (2, 3, 4)] == [range(2), [0], None]
    assert state.stamp == 5


@pytest.mark.parametrize("value", [b"", b"\x90", b"x", b"\x99\x02"])
def test_what_is_no_record_is_told(value: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        QueueState.decode(value)
    assert (caught.value.code, caught.value.retryable) == ("queue.record", False)


@dataclass
class _Known:
    """An entry in the model."""

    key: bytes | None
    attempts: int = 0
    worker: int = 0
    at: int = 0
    state: str = "waits"


@dataclass
class _Model:
    entries: dict[int, _Known] = field(default_factory=dict[int, _Known])
    now: int = 0
    attempts: int = 3


class Queues(RuleBasedStateMachine):
    """Whatever is done, an entry is with one worker at a time, and none is lost."""

    @initialize(by_key=st.booleans())
    def begin(self, by_key: bool) -> None:
        self.by_key = by_key
        self.state = made(by_key=by_key)
        self.model = _Model()

    @rule(key=st.sampled_from([None, b"k", b"j"]))
    def look_at(self, key: bytes | None) -> None:
        index = len(self.model.entries)
        self.state.look_at(0, index, key_number(key))
        self.model.entries[index] = _Known(key)

    @rule(worker=st.sampled_from([1, 2]), seconds=st.integers(1, 20))
    def give(self, worker: int, seconds: int) -> None:
        deadline = self.model.now + seconds
        for index in given(self.state, self.model.now, worker, deadline):
            known = self.model.entries[index]
            assert known.state == "waits"
            assert known.at <= self.model.now
            known.state, known.worker, known.at = "given", worker, deadline
            known.attempts += 1
        # Nothing that could be given was left.
        for one in self.model.entries.values():
            if one.state == "waits" and one.at <= self.model.now:
                assert self.by_key
                assert one.key is not None

    @rule(
        index=st.integers(0, 30),
        worker=st.sampled_from([1, 2]),
        attempt=st.integers(1, 3),
        outcome=st.sampled_from(Outcome),
        pause=st.integers(0, 10),
    )
    def settle(self, index: int, worker: int, attempt: int, outcome: Outcome, pause: int) -> None:
        now = self.model.now
        taken = self.state.settle(worker, (0, index), attempt, outcome, pause, "", now)
        known = self.model.entries.get(index)
        valid = (
            known is not None
            and known.state == "given"
            and (known.worker, known.attempts) == (worker, attempt)
        )
        assert taken == valid
        if not valid or known is None:
            return
        if outcome is Outcome.EXTEND:
            known.at = now + pause
            return
        known.worker = 0
        if outcome is Outcome.DONE:
            known.state = "done"
        elif outcome is Outcome.REJECT or (
            outcome is Outcome.RETRY and known.attempts >= self.model.attempts
        ):
            known.state = "dying"
        else:
            known.state = "waits"
            known.at = now + (pause if outcome is Outcome.RETRY else 0)
            known.attempts -= outcome is Outcome.RELEASE

    @rule(seconds=st.integers(0, 15))
    def time_passes(self, seconds: int) -> None:
        self.model.now += seconds
        now = self.model.now
        self.state.expire(now)
        for one in self.model.entries.values():
            if one.state == "given" and one.at <= now:
                one.worker = 0
                one.state = "dying" if one.attempts >= self.model.attempts else "waits"
                one.at = now

    @rule(worker=st.sampled_from([1, 2]))
    def lose(self, worker: int) -> None:
        self.state.lose(worker, self.model.now, "gone")
        for one in self.model.entries.values():
            if one.state == "given" and one.worker == worker:
                one.worker = 0
                one.state = "dying" if one.attempts >= self.model.attempts else "waits"
                one.at = self.model.now

    @rule()
    def bury(self) -> None:
        for place in tuple(self.state.dying):
            assert self.model.entries[place[1]].state == "dying"
            self.state.bury(place)
            self.model.entries[place[1]].state = "dead"

    @rule(index=st.integers(0, 30))
    def take_back(self, index: int) -> None:
        known = self.model.entries.get(index)
        if known is not None and known.state == "dead":
            assert self.state.take_back((0, index), key_number(known.key))
            self.model.entries[index] = _Known(known.key)

    @rule()
    def write_and_read(self) -> None:
        before = self.state
        self.state = QueueState.decode(before.encode(9))
        assert (self.state.done, self.state.dead) == (before.done, before.dead)
        assert self.state.given == before.given

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "state"):
            return
        entries = self.model.entries
        is_open = [i for i, one in entries.items() if one.state in ("waits", "given", "dying")]
        assert self.state.open_count == len(is_open)
        assert self.state.low_mark(0) == min(is_open, default=len(entries))
        assert self.state.given_count == sum(one.state == "given" for one in entries.values())
        assert len(self.state.dying) == sum(one.state == "dying" for one in entries.values())
        out = [one.key for one in entries.values() if one.state == "given" and one.key]
        assert not self.by_key or len(out) == len(set(out))

    @precondition(lambda self: bool(self.model.entries))
    @rule()
    def everything_ends(self) -> None:
        """From anywhere, all can be done."""
        state = QueueState.decode(self.state.encode(1))
        now, left = self.model.now + 100, 10_000
        state.expire(now)
        while state.open_count and left:
            for place in tuple(state.dying):
                state.bury(place)
            for index in given(state, now, 1, now + 1):
                entry = state.of((0, index))
                assert entry is not None
                assert settle(state, index, attempt=entry.attempts)
            left -= 1
        assert not state.open_count


Queues.TestCase.settings = settings(stateful_step_count=40)
TestQueues = Queues.TestCase
