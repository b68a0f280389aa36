"""Marks the mistakes that are planted in the long part only; the quick part has thirty."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def in_the_long_part(cases: Iterable[Any]) -> list[ParameterSet]:
    """Cases of a test, each a tuple of its values, or its only one, that time is short for."""
    found = list[ParameterSet]()
    for case in cases:
        values: Any = case if isinstance(case, tuple) else (case,)  # pyright: ignore[reportUnknownVariableType]
        found.append(pytest.param(*values, marks=pytest.mark.long))
    return found
