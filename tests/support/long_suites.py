"""Tests of a public suite that a subclass leaves to the long part."""

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

import pytest

Suite = TypeVar("Suite")


def leaves_long(*names: str) -> Callable[[type[Suite]], type[Suite]]:
    """Mark tests that a class inherits as long for this class, and for no other of the suite."""

    def mark(suite: type[Suite]) -> type[Suite]:
        for name in names:
            inherited: FunctionType = getattr(suite, name)
            own = FunctionType(
                inherited.__code__, inherited.__globals__, name, None, inherited.__closure__
            )
            own.__dict__ |= inherited.__dict__
            marks = inherited.__dict__.get("pytestmark", ())
            own.__dict__["pytestmark"] = [*marks, pytest.mark.long.mark]
            setattr(suite, name, own)
        return suite

    return mark
