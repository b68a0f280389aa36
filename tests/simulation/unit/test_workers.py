"""What has become of a queue's entries is compared with what workers were told."""

from collections.abc import Sequence

import pytest

from rillnode.codecs.dead_letters import DeadLetter
from rillnode.node.simulated.history import Log
from rillnode.node.simulation.clients.workers import REASON, Jobs

LOG: Log = ("events", 0)


def letter(index: int, reason: str = REASON) -> DeadLetter:
    return DeadLetter(queue="workers", reason=reason, partition=0, index=index, attempts=1)


def worked(words: Sequence[str]) -> Jobs:
    """Entries that were given to a worker, and what it said of each."""
    jobs = Jobs()
    for index, word in enumerate(words):
        jobs.give(LOG, index, None, 0.0)
        if word == "rejected":
            jobs.rejecting.setdefault(LOG, set()).add(index)
        assert not list(jobs.settle("k0", word, LOG, index, None, 0.0))
    return jobs


def broken(jobs: Jobs, end: int, *letters: DeadLetter) -> list[str]:
    return [rule for rule, _ in jobs.compare({LOG: end}, letters, REASON)]


def test_rejected_entries_are_letters_and_no_others() -> None:
    jobs = worked(["done", "rejected", "done"])
    assert broken(jobs, 3, letter(1)) == []
    assert broken(jobs, 3) == ["dead-letter"]
    assert broken(jobs, 3, letter(1), letter(2)) == ["dead-letter"]
    assert broken(jobs, 3, letter(1), letter(1)) == ["dead-letter"]
    assert broken(jobs, 3, letter(1, "else")) == ["dead-letter"]


@pytest.mark.parametrize("is_there", [True, False])
def test_an_entry_that_came_after_the_ends_were_told_may_have_been_rejected(
    is_there: bool,
) -> None:
    jobs = worked(["done", "done", "rejected"])
    assert broken(jobs, 2, *([letter(2)] if is_there else [])) == []


def test_an_entry_that_came_later_and_was_done_is_no_letter() -> None:
    assert broken(worked(["done", "done", "done"]), 2, letter(2)) == ["dead-letter"]


def test_an_entry_that_nobody_was_given() -> None:
    assert broken(worked(["done"]), 2) == ["job-lost"]
