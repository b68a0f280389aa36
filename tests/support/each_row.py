"""Makes one test of a table: it tries all rows, and names every one that fails.

A test for each row would cost four milliseconds each, as it is collected by every worker and told
of, which is more than most rows take.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

R = TypeVar("R")


def each_row(
    rows: Iterable[R], name: Callable[[R], object] = lambda row: repr(row)[:200]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call a function with each row, whose parts it is given if it is a tuple.

    Args:
        rows: the table; it is read when the test runs, and is not empty.
        name: what a row is called where it fails, beside its number; without it, it is shown.
    """

    def made(function: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            number, wrong = -1, list[BaseException]()
            for number, row in enumerate(rows):
                given: Any = row
                parts = given if type(given) is tuple else (given,)  # pyright: ignore[reportUnknownVariableType]
                try:
                    function(*parts)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"at row {number}: {name(row)}")
                    wrong.append(error)
            assert number >= 0, "the table is empty"
            if wrong:
                raise BaseExceptionGroup(f"{len(wrong)} of {number + 1} rows", wrong)

        test.__name__, test.__qualname__ = function.__name__, function.__qualname__
        test.__module__, test.__doc__ = function.__module__, function.__doc__
        return test

    return made
