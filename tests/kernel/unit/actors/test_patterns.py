"""Patterns of names: quick where they are simple, and the same whatever way is taken."""

import re
from fnmatch import translate

from hypothesis import given, strategies as st

from rillnode.actors.core.patterns import is_exact, matcher

NAMES = st.text(alphabet="ab*?[]-/\n", max_size=6)


@given(pattern=NAMES, name=NAMES)
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, name: str) -> None:
    assert bool(matcher(pattern)(name)) == bool(re.compile(translate(pattern)).match(name))


@given(pattern=NAMES)
def test_an_exact_pattern_stands_for_itself_and_nothing_else(pattern: str) -> None:
    if is_exact(pattern):
        assert matcher(pattern)(pattern)
        assert not matcher(pattern)(pattern + "a")
