"""Pauses before an address gets another actor: how they grow, end, and are forgotten."""

import pytest

from link_support import ManualClock
from rillnode.actors.core import pauses
from rillnode.actors.core.pauses import (
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    WELL_SECONDS,
    Pauses,
)


def test_a_pause_is_twice_as_long_each_time_up_to_a_bound() -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    seconds: list[float] = []
    for _ in range(12):
        found.begin(b"a", object())
        seconds.append(found.left(b"a"))
        clock.advance(seconds[-1])
        assert found.left(b"a") == 0.0
        clock.advance(WELL_SECONDS - 0.1)  # not well for long enough
    doubled = [min(PAUSE_SECONDS_MIN * 2**nth, PAUSE_SECONDS_MAX) for nth in range(12)]
    assert seconds == pytest.approx(doubled)
    assert seconds[-1] == PAUSE_SECONDS_MAX


def test_what_remains_of_a_pause_is_told() -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    assert found.left(b"a") == 0.0
    found.begin(b"a", object())
    clock.advance(0.04)
    assert found.left(b"a") == pytest.approx(PAUSE_SECONDS_MIN - 0.04)
    assert found.left(b"b") == 0.0


def test_one_end_begins_one_pause() -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    lost = object()
    for _ in range(3):
        found.begin(b"a", lost)
    assert found.left(b"a") == pytest.approx(PAUSE_SECONDS_MIN)
    clock.advance(PAUSE_SECONDS_MIN)
    found.begin(b"a", lost)
    assert found.left(b"a") == 0.0


def test_an_actor_that_was_well_for_a_while_begins_anew() -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    for _ in range(3):
        found.begin(b"a", object())
        clock.advance(PAUSE_SECONDS_MAX)
        found.left(b"a")
    clock.advance(WELL_SECONDS)
    found.begin(b"a", object())
    assert found.left(b"a") == pytest.approx(PAUSE_SECONDS_MIN)


def test_time_without_an_actor_is_no_time_of_being_well() -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    found.begin(b"a", object())
    clock.advance(10 * WELL_SECONDS)
    found.left(b"a")
    found.begin(b"a", object())
    assert found.left(b"a") == pytest.approx(2 * PAUSE_SECONDS_MIN)


def test_who_was_well_is_forgotten_and_of_too_many_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    found = Pauses(clock.monotonic)
    for number in range(5):
        found.begin(b"%d" % number, object())
    clock.advance(1.0)
    for number in range(5):
        found.left(b"%d" % number)
    clock.advance(WELL_SECONDS)
    found.begin(b"new", object())
    assert len(found) == 1
    monkeypatch.setattr(pauses, "PAUSES_MAX", 3)
    for number in range(5):
        found.begin(b"%d" % number, object())
    assert len(found) == 3
    assert [bool(found.left(b"%d" % number)) for number in range(5)] == [False] * 2 + [True] * 3
