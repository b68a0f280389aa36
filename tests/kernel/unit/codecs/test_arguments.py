"""Arguments that cannot be are refused by name, in actors as in clients."""

from math import inf, nan
from typing import Any

import pytest

from rillnode.codecs import arguments
from rillnode.codecs.errors import ArgumentError


@pytest.mark.parametrize("value", [0, 1, 0.5, -1.0, inf])
def test_a_time_is_a_number_of_seconds(value: float) -> None:
    assert arguments.seconds("after", value) == value
    assert arguments.timeout("timeout", value) == value


@pytest.mark.parametrize("value", [nan, True, "5", b"5", [], 1j])
def test_what_is_no_time_would_put_timers_out_of_order(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^after is a number of seconds, not ") as refused:
        arguments.seconds("after", value)
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, ValueError)
    with pytest.raises(ArgumentError, match=r"^timeout is a number of seconds or None, not "):
        arguments.timeout("timeout", value)


def test_only_a_time_limit_may_be_left_out() -> None:
    nothing: Any = None
    assert arguments.timeout("timeout", None) is None
    with pytest.raises(ArgumentError, match=r"^after is a number of seconds, not None"):
        arguments.seconds("after", nothing)
