"""Values of a query: whole numbers in range, or a refusal that names the parameter."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import RequestError
from rillnode.node.streamr.rest.query import flag, needed_number, number, whole_number


def test_a_number_is_read_or_its_default_taken() -> None:
    assert number({"a": "7"}, "a", 1, 10) == 7
    assert number({}, "a", 1, 10) == 1
    assert needed_number({"a": "0"}, "a", 10) == 0


@pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "11", " 1", "\u0663", "9" * 10_000])
def test_what_is_no_number_in_range_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match='Query parameter "a"') as caught:
        number({"a": text}, "a", 1, 10)
    assert caught.value.code == "rest.query"
    assert len(caught.value.text) < 150


def test_a_needed_number_must_be_there() -> None:
    with pytest.raises(RequestError, match='"a" required'):
        needed_number({}, "a", 10)


@given(st.text(max_size=30), st.integers(0, 2**53))
def test_any_text_is_a_number_in_range_or_refused(text: str, highest: int) -> None:
    with suppress(RequestError):
        assert 0 <= whole_number(text, "it", highest) <= highest


def test_a_flag_is_set_by_true() -> None:
    assert flag({"a": "true"}, "a")
    assert flag({"a": "TRUE"}, "a")
    assert not flag({"a": "false"}, "a")
    assert not flag({}, "a")
