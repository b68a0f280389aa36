"""Patterns of names: quick where they are simple, and the same whatever way is taken."""

import re
from fnmatch import translate

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.core.patterns import is_exact, matcher, may_share

NAMES = st.text(alphabet="ab*?[]-/\n", max_size=6)


@given(pattern=NAMES, name=NAMES)
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, name: str) -> None:
    assert bool(matcher(pattern)(name)) == bool(re.compile(translate(pattern)).match(name))


@given(pattern=NAMES)
def test_an_exact_pattern_stands_for_itself_and_nothing_else(pattern: str) -> None:
    if is_exact(pattern):
        assert matcher(pattern)(pattern)
        assert not matcher(pattern)(pattern + "a")


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("s", "s", True),
        ("s", "t", False),
        ("sensors/1", "sensors/*", True),
        ("sensor/1", "sensors/*", False),
        ("sensor/*", "sensors/*", False),
        ("sensors/*", "s*", True),
        ("*", "a?", True),
        ("a?", "ab", True),
    ],
)
def test_patterns_that_may_stand_for_one_name_are_told(one: str, other: str, may: bool) -> None:
    assert (may_share(one, other), may_share(other, one)) == (may, may)
