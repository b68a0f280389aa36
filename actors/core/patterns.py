"""Patterns of names, as they stand in a configuration: of principals, and of streams.

`*` stands for any characters, `?` for one, and `[...]` for one of some. Most patterns have at most
a star at their end, and a node may have thousands: those are no regular expressions, each of which
would take as long to make as a hundred of them to be asked.
"""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache
from typing import Final

Matches = Callable[[str], object]
"""Tells of a name whether a pattern stands for it, by what is true or false."""

_COMPILED_KEPT: Final = 1_024
"""Compiled patterns that are remembered: many grants have the same. Own choice."""

_SPECIAL: Final = re.compile(r"[*?[]")


def is_exact(pattern: str) -> bool:
    """Whether a pattern stands for nothing but itself."""
    return _SPECIAL.search(pattern) is None


def literal_prefix(pattern: str) -> str:
    """What every name that a pattern stands for begins with."""
    special = _SPECIAL.search(pattern)
    return pattern if special is None else pattern[: special.start()]


def matcher(pattern: str) -> Matches:
    """What tells whether a pattern stands for a name, for the whole of it."""
    if is_exact(pattern):
        return pattern.__eq__
    beginning = pattern[:-1]
    if pattern.endswith("*") and is_exact(beginning):
        return lambda name: name.startswith(beginning)
    return _compiled(pattern).match


def may_share(pattern: str, other: str) -> bool:
    """Whether there may be a name that two patterns stand for.

    Of two patterns with special characters only the beginnings are compared.
    """
    if is_exact(pattern):
        return bool(matcher(other)(pattern))
    if is_exact(other):
        return bool(matcher(pattern)(other))
    one, two = literal_prefix(pattern), literal_prefix(other)
    return one.startswith(two) or two.startswith(one)


@lru_cache(_COMPILED_KEPT)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
