"""Each rule about logs is broken by what breaks it, and by nothing else."""

from typing import Literal

import pytest

from rillnode.codecs.entries import Entry, EntryKind
from rillnode.node.simulated.history import EPOCH_MS, History, Log, Push
from rillnode.node.simulation.invariants import RULES, check_logs
from rillnode.node.simulation.results import distribution, percentile

LOG: Log = ("events", 0)
A, B, C = b"a", b"b", b"c"


def told(*confirms: tuple[bytes, int | None], attempts: int = 1) -> History:
    """A history of pushes, in order, and where they were confirmed."""
    history = History(lambda: 1.0)
    for number, (payload, index) in enumerate(confirms):
        history.pushed({payload: Push("p0.1", number, LOG, 0.0, attempts=attempts)})
        if index is not None:
            history.confirmed([payload], [index])
    return history


def numbered(by: Literal["client", "name"], *, attempts: int = 1) -> History:
    """A history of one push that is numbered."""
    history = told((A, 0), attempts=attempts)
    history.pushes[A].numbered = by
    return history


def entry(index: int, payload: bytes, ms: int = 0) -> Entry:
    return Entry(0, index, EPOCH_MS + ms, EntryKind.BYTES, payload)


def rules(history: History, *entries: tuple[int, bytes], dials: int = 1) -> set[str]:
    check_logs(history, {LOG: entries}, {"p0": dials})
    return {violation.rule for violation in history.violations}


def test_what_was_confirmed_and_stands_breaks_no_rule() -> None:
    history = told((A, 0), (B, 1), (C, None))
    history.read("f0", LOG, [entry(0, A)])
    assert rules(history, (0, A), (1, B)) == set()


def test_what_was_not_confirmed_may_stand_or_not() -> None:
    assert rules(told((A, 0), (B, None)), (0, A), (1, B)) == set()
    assert rules(told((A, 0), (B, None)), (0, A)) == set()


def test_a_gap() -> None:
    assert rules(told((A, 0), (B, None)), (0, A), (2, B)) == {"log-dense"}
    assert rules(told((A, None)), (1, A)) == {"log-dense"}


def test_a_confirmed_entry_that_is_gone() -> None:
    assert rules(told((A, 0), (B, 1)), (0, A)) == {"confirm-lost"}


def test_a_seen_entry_that_is_gone() -> None:
    history = told((A, 0), (B, None))
    history.read("f0", LOG, [entry(1, B)])
    assert rules(history, (0, A)) == {"seen-lost"}


def test_an_index_that_means_two_entries() -> None:
    assert "index-reassigned" in rules(told((A, 0), (B, None)), (0, B))


def test_an_entry_that_nobody_has_pushed() -> None:
    assert rules(told((A, 0)), (0, A), (1, b"what is this")) == {"unknown-entry"}


def test_two_confirms_of_one_index() -> None:
    assert "copies-merged" in rules(told((A, 0), (B, 0)), (0, A))


def test_copies_are_no_more_than_what_was_sent() -> None:
    assert rules(told((A, 0)), (0, A), (1, A)) == {"too-many-copies"}
    assert rules(told((A, 0)), (0, A), (1, A), dials=2) == set()
    assert rules(told((A, 1), attempts=2), (0, A), (1, A)) == set()


@pytest.mark.parametrize("by", ["client", "name"])
def test_what_is_numbered_stands_once_however_often_it_was_sent(
    by: Literal["client", "name"],
) -> None:
    assert rules(numbered(by), (0, A), dials=9) == set()
    assert rules(numbered(by), (0, A), (1, A), dials=9) == {"stored-twice"}
    # By its client, an application that pushes it once more pushes another one.
    expected = set[str]() if by == "client" else {"stored-twice"}
    assert rules(numbered(by, attempts=2), (0, A), (1, A)) == expected


def test_what_a_name_has_numbered_is_not_passed_over() -> None:
    def by_name(*confirms: tuple[bytes, int | None]) -> History:
        history = told(*confirms)
        for push in history.pushes.values():
            push.numbered = "name"
        return history

    assert rules(by_name((A, 0), (B, None), (C, None)), (0, A)) == set()
    assert rules(by_name((A, 0), (B, None), (C, None)), (0, A), (1, B)) == set()
    assert rules(by_name((A, 0), (B, None), (C, 1)), (0, A), (1, C)) == {"passed-over"}
    assert rules(by_name((A, None), (B, None)), (0, B)) == {"passed-over"}
    # Who has no name is told which of its entries are not stored, and that is all.
    assert rules(told((A, 0), (B, None), (C, 1)), (0, A), (1, C)) == set()


def test_entries_of_a_producer_in_another_order() -> None:
    assert rules(told((A, 1), (B, 0)), (0, B), (1, A)) == {"producer-order"}
    assert rules(told((A, 1), (B, 0), attempts=2), (0, B), (1, A)) == set()


def test_nothing_is_promised_of_a_lost_disk() -> None:
    history = told((A, 0), (B, 1))
    history.lost[LOG[0]] = None
    assert rules(history, (0, C)) == set()


def test_every_rule_says_what_it_demands() -> None:
    assert all(text and not text.endswith(".") for text in RULES.values())


def test_the_hash_covers_every_event_and_its_order() -> None:
    hashes = {
        told(*confirms).trace_hash
        for confirms in ([(A, 0)], [(A, 1)], [(A, 0), (B, 1)], [(A, 1), (B, 0)])
    }
    assert len(hashes) == 4
    assert told((A, 0)).trace_hash == told((A, 0)).trace_hash


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1.0), (1, 3.0), (50, 101.0), (99, 199.0), (100, 201.0)]
)
def test_percentiles_are_values_that_there_are(percent: int, value: float) -> None:
    assert percentile([float(one) for one in range(1, 202)], percent) == value


def test_nothing_has_a_distribution_too() -> None:
    assert set(distribution([]).values()) == {0.0}


def test_an_entry_in_a_log_that_it_was_not_pushed_to() -> None:
    history = told((A, 0))
    history.saw("f0", ("events", 1), [(0, A)])
    assert {violation.rule for violation in history.violations} == {"wrong-log"}
    shared = told((A, 0))
    shared.shared = True
    shared.saw("f0", ("events-b", 0), [(7, A)])
    assert shared.violations == []


@pytest.mark.parametrize(("ms", "broken"), [(0, False), (1_000, False), (-2, True), (1_001, True)])
def test_an_entry_says_when_it_arrived(ms: int, broken: bool) -> None:
    arrived = entry(0, A, ms)
    history = told((A, 0))
    history.read("f0", LOG, [arrived])
    assert {one.rule for one in history.violations} == ({"received-at"} if broken else set())
    jumped = told((A, 0))
    jumped.clocks_wrong = True
    jumped.read("f0", LOG, [arrived])
    assert jumped.violations == []
