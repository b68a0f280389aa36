"""Tests the suites of stores: they find mistakes of stores, which differ in nothing else."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from memory_site import MemorySite
from planting import in_the_long_part
from rillnode.actors.log import (
    AnyWatch,
    Append,
    ListKeys,
    ListStreams,
    Locate,
    Lookup,
    PutRecords,
    Read,
    RemoveStream,
    SaveIndex,
    Trim,
    WriteOperation,
)
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import R, StoreDriver
from rillnode.node.testing.contract.stores.on_engine import EngineDriver
from rillnode.testing.contract import SharedStoreContract, StoreContract
from shared_support import memory_view
from store_support import MemoryDriver


class ConfirmsTooEarly(MemoryDriver):
    def crash(self) -> None:
        self._store = MemoryDriver().store


class LeavesGaps(MemoryDriver):
    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        super().write_all(operations)
        for number, operation in enumerate(operations):
            if isinstance(operation, Append):
                operation.first_index += number


class TrimsWhatIsHeld(MemoryDriver):
    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if isinstance(operation, Trim):
                operation.hold = None
        super().write_all(operations)


class StoresDoubles(MemoryDriver):
    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if isinstance(operation, Append):
                operation.producer = b""
        super().write_all(operations)


class KeepsTimesAsGiven(MemoryDriver):
    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if isinstance(operation, Append):
                operation.timed = None
        super().write_all(operations)


class WritesWhatItCan(MemoryDriver):
    """Of names that are to be written together."""

    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if isinstance(operation, PutRecords):
                operation.records = [one for one in operation.records if one[0].isprintable()]
        super().write_all(operations)


class KeepsPositions(MemoryDriver):
    """Of streams that are removed."""

    def __init__(self) -> None:
        super().__init__()
        self._saved: list[WriteOperation] = []

    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        super().write_all(operations)
        for operation in operations:
            if isinstance(operation, SaveIndex):
                self._saved.append(SaveIndex(key=operation.key, index=operation.index))
            elif isinstance(operation, RemoveStream):
                super().write_all(self._saved)


class ListsForwards(MemoryDriver):
    def read(self, operation: R) -> R:
        if isinstance(operation, ListKeys):
            operation.reverse = False
        return super().read(operation)


class ListsEverything(MemoryDriver):
    def read(self, operation: R) -> R:
        if isinstance(operation, ListStreams):
            operation.limit = 1_000
        return super().read(operation)


class ReadsTooMuch(MemoryDriver):
    def read(self, operation: R) -> R:
        if isinstance(operation, Read):
            operation.until = 2**64 - 1
        return super().read(operation)


class FindsTheNextEntry(MemoryDriver):
    def read(self, operation: R) -> R:
        if isinstance(operation, Locate):
            operation.at_ms += 1
        return super().read(operation)


class DistrustsItself(MemoryDriver):
    def read(self, operation: R) -> R:
        super().read(operation)
        if isinstance(operation, Lookup):
            operation.lasts = False
        return operation


class TellsOfItself(MemoryLogStore):
    def watch(self, operation: AnyWatch) -> None:
        self._complete([operation])


class NeverCloses(MemoryLogStore):
    def close(self) -> None:
        pass


class ForgetsToRefuse(MemoryDriver):
    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        super().write_all(operations)
        for operation in operations:
            if isinstance(operation.error, StoreError) and operation.error.code == "store.exists":
                operation.error = None


class OverlooksOthers(EngineDriver):
    """Takes its writes to follow from nothing."""

    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if isinstance(operation, Append):
                operation.seen, operation.follows = None, ()
            elif isinstance(operation, PutRecords | SaveIndex):
                operation.seen = ()
        super().write_all(operations)


Mistake = tuple[Callable[[], StoreDriver], str]

MISTAKES: list[Mistake] = [(ConfirmsTooEarly, "what_was_confirmed_outlives_a_crash")]

FURTHER: list[Mistake] = [
    (LeavesGaps, "indexes_are_dense_in_the_order_of_submission"),
    (TrimsWhatIsHeld, "a_trim_cuts_where_the_tightest_limit_says"),
    (StoresDoubles, "what_is_sent_again_has_the_index_that_it_had"),
    (StoresDoubles, "doubles_are_known_after_a_crash"),
    (KeepsTimesAsGiven, "arrivals_ascend_though_a_clock_is_set_back"),
    (WritesWhatItCan, "a_name_that_is_no_text_leaves_nothing"),
    (KeepsPositions, "a_later_stream_of_the_name_is_another_one_from_index_0"),
    (ListsForwards, "secondary_keys_are_listed_by_range_within_their_log"),
    (ListsEverything, "streams_are_listed_by_name_in_pages"),
    (ReadsTooMuch, "limits_of_a_read"),
    (FindsTheNextEntry, "a_time_is_found_in_a_log"),
    (DistrustsItself, "what_is_found_lasts_unless_others_may_change_it"),
    (partial(MemoryDriver, TellsOfItself), "a_watch_is_left_open_when_the_store_is_closed"),
    (partial(MemoryDriver, NeverCloses), "a_closed_store_refuses_at_once_and_opens_again"),
    (ForgetsToRefuse, "a_name_is_created_once"),
]

SHARED = (
    "what_follows_from_a_value_that_is_another_by_now_is_not_written",
    "an_append_that_follows_from_a_value_is_one_with_its_change",
    "a_position_that_follows_from_a_value_that_is_another_by_now_is_not_saved",
    "an_append_that_follows_from_less_than_others_have_appended_is_refused",
)
"""What finds those that overlook others."""


def finds(suite: StoreContract, test: str, **given: object) -> None:
    """See that a test of a suite fails."""
    case = getattr(suite, f"test_{test}")
    given["operation"] = PutRecords
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        case(**{name: given[name] for name in inspect.signature(case).parameters})


@pytest.mark.parametrize(("mistake", "test"), [*MISTAKES, *in_the_long_part(FURTHER)])
def test_a_mistake_is_found(mistake: Callable[[], StoreDriver], test: str) -> None:
    driver = mistake()
    finds(StoreContract(), test, driver=driver)
    driver.end()


@pytest.mark.parametrize("test", [SHARED[0], *in_the_long_part(SHARED[1:])])
def test_who_overlooks_others_is_found(test: str, tmp_path: Path) -> None:
    site = MemorySite()
    site.make()
    driver = OverlooksOthers(site.again, tmp_path / "one", view=memory_view, shards=1)
    other = OverlooksOthers(
        site.again, tmp_path / "other", view=memory_view, shards=1, beside=driver
    )
    finds(SharedStoreContract(), test, driver=driver, other=other)
    other.end()
    driver.end()
