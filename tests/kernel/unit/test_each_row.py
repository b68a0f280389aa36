"""A test of a table tries all rows, and names every one that fails."""

import pytest

from each_row import each_row


def test_every_row_that_fails_is_named() -> None:
    tried: list[int] = []

    @each_row([(1, 1), (2, 3), (4, 4), (5, 0)], lambda row: f"{row[0]} and {row[1]}")
    def are_equal(one: int, other: int) -> None:
        tried.append(one)
        if other:
            assert one == other
        with pytest.raises(ZeroDivisionError):
            _ = one // (0 if other else 1)

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as caught:
        are_equal()
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["at row 1: 2 and 3"], ["at row 3: 5 and 0"]]
    assert tried == [1, 2, 4, 5]


def test_a_table_without_rows_tests_nothing_and_fails() -> None:
    @each_row([])
    def nothing(_: object) -> None:
        raise NotImplementedError

    with pytest.raises(AssertionError, match="empty"):
        nothing()
