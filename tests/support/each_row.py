"""Makes one test of a table: it tries all rows, and names every one that fails.

A test for each row would cost four milliseconds each, as it is collected by every worker and told
of, which is more than most rows take.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_row(
    rows: Iterable[Any], name: Callable[..., object] | None = None
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call a function with each row, whose parts it is given if it is a tuple.

    Args:
        rows: the table; it is read when the test runs, and is not empty.
        name: what a row is called where it fails, beside its number: otherwise it is shown.
    """

    def made(function: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            number, wrong = -1, list[BaseException]()
            for number, row in enumerate(rows):
                parts = row if type(row) is tuple else (row,)
                try:
                    function(*parts)
                except (Exception, pytest.fail.Exception) as error:
                    shown = repr(row)[:200] if name is None else name(*parts)
                    error.add_note(f"at row {number}: {shown}")
                    wrong.append(error)
            assert number >= 0, "the table is empty"
            if wrong:
                raise BaseExceptionGroup(f"{len(wrong)} of {number + 1} rows", wrong)

        test.__name__, test.__qualname__ = function.__name__, function.__qualname__
        test.__module__, test.__doc__ = function.__module__, function.__doc__
        return test

    return made
