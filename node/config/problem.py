"""Explains what is wrong with a value, in the words of the configuration."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from msgspec import ValidationError, inspect

from rillnode.node.config.paths import KeyPath, expected, keys_at, parse_path, type_at
from rillnode.node.installed import TABLES, installed

_FAILED_AT = re.compile(r"^(.*?)(?: - at (?:`key` in )?`\$\.?([^`]*)`)?$", re.DOTALL)
_QUOTED = re.compile(r"`([^`]*)`")


class Problem(NamedTuple):
    """A problem with the value at a path."""

    path: KeyPath
    code: str
    text: str


def problem_of(error: ValidationError, tree: Mapping[str, Any], root: inspect.Type) -> Problem:
    """Say in the words of the configuration what msgspec says of JSON.

    Args:
        error: what it has said.
        tree: the values that it was given.
        root: the type of the table that they were to be.
    """
    failed = _FAILED_AT.match(str(error))
    said, place = (failed[1], failed[2] or "") if failed else (str(error), "")
    place = place.removesuffix("[...]")
    path = parse_path(place) if place else ()
    named = _QUOTED.findall(said)
    if "unknown field" in said:
        return unknown_key(path, named[-1], root)
    if "missing required field" in said:
        path = (*path, named[-1])
        return Problem(path, "config.missing", f"missing; expected {expected(type_at(path, root))}")
    value: Any = tree
    for part in path:
        value = value[part]
    shown = f"{value!r}: " if isinstance(value, str | int | float | bool) else ""
    return Problem(path, "config.value", f"{shown}expected {expected(type_at(path, root))}")


def unknown_key(table: KeyPath, key: str, root: inspect.Type) -> Problem:
    """That a table has no such key, and which it has."""
    allowed = keys_at(table, root)
    if not table:
        allowed += sorted(installed(TABLES).keys() - {*allowed})
    close = get_close_matches(key, allowed, n=1) or [
        one for one in allowed if key.startswith(f"{one}_") or one.startswith(f"{key}_")
    ]
    meant = f"did you mean {close[0]}? " if close else ""
    text = f"unknown key; {meant}allowed: {', '.join(allowed)}" if allowed else "unknown key"
    return Problem((*table, key), "config.unknown_key", text)
