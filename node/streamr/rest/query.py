"""Values of a request's query."""

from collections.abc import Mapping
from typing import Final

from rillnode.codecs.errors import RequestError

_TRUE: Final = frozenset({"true", "1"})
_DIGITS_MAX: Final = 16


def number(query: Mapping[str, str], name: str, default: int, highest: int) -> int:
    """A whole number from 0 to `highest`.

    Raises:
        RequestError: `rest.query`.
    """
    text = query.get(name)
    if text is None:
        return default
    return whole_number(text, f'Query parameter "{name}"', highest)


def needed_number(query: Mapping[str, str], name: str, highest: int) -> int:
    """A whole number that must be there.

    Raises:
        RequestError: `rest.query`.
    """
    if name not in query:
        raise RequestError("rest.query", f'Query parameter "{name}" required.')
    return number(query, name, 0, highest)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a truth value is set."""
    return query.get(name, "").lower() in _TRUE


def whole_number(text: str, what: str, highest: int) -> int:
    """Read a whole number from 0 to `highest`.

    Raises:
        RequestError: `rest.query`.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise RequestError("rest.query", f"{what} not a number: {text[:64]}")
    found = int(text)
    if found > highest:
        raise RequestError("rest.query", f"{what} is more than {highest}")
    return found
