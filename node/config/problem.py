"""Explains what is wrong with a value, in the words of the configuration."""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, cast, get_type_hints

from msgspec import Struct, ValidationError, convert, inspect, structs

from rillnode.node.config.paths import KeyPath, bare, expected, keys_at, parse_path, type_at
from rillnode.node.installed import TABLES, installed

_FAILED_AT = re.compile(r"^(.*?)(?: - at (?:`key` in )?`\$\.?([^`]*)`)?$", re.DOTALL)
_QUOTED = re.compile(r"`([^`]*)`")


class Problem(NamedTuple):
    """A problem with the value at a path."""

    path: KeyPath
    code: str
    text: str


def type_problems(
    tree: Mapping[str, Any],
    struct: type[Struct],
    root: inspect.Type,
    *,
    dec_hook: Callable[[type, Any], Any],
    at: KeyPath = (),
) -> Iterator[Problem]:
    """Find every value that cannot be what its key asks for: msgspec stops at the first.

    Args:
        tree: the values of the whole file.
        struct: the type of the table at `at`.
        root: the type of the whole file.
        dec_hook: as of `msgspec.convert`.
        at: where the table is.
    """
    values: Any = tree
    for part in at:
        values = values[part]
    hints = get_type_hints(struct, include_extras=True)
    fields = {field.encode_name: field for field in structs.fields(struct)}
    for key, value in cast(dict[str, Any], values).items():
        field = fields.get(key)
        if field is None:
            yield unknown_key(at, key, root)
            continue
        path = (*at, key)
        kind = bare(type_at(path, root))
        inner: list[tuple[KeyPath, type[Struct]]] = []
        if isinstance(kind, inspect.StructType) and isinstance(value, dict):
            inner.append((path, kind.cls))
        elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
            item, items = kind.item_type, _items(value)
            if isinstance(item, inspect.StructType) and all(isinstance(one, dict) for one in items):
                inner += (((*path, number), item.cls) for number in range(len(items)))
        for place, cls in inner:
            yield from type_problems(tree, cls, root, dec_hook=dec_hook, at=place)
        if inner:
            continue
        try:
            convert(value, hints[field.name], dec_hook=dec_hook)
        except ValidationError as error:
            yield problem_of(error, tree, root, at=path)
    for key, field in fields.items():
        if field.required and key not in values:
            path = (*at, key)
            wanted = expected(type_at(path, root))
            yield Problem(path, "config.missing", f"missing; expected {wanted}")


def _items(value: Any) -> list[Any]:
    return [*value]


def problem_of(
    error: ValidationError,
    tree: Mapping[str, Any],
    root: inspect.Type,
    *,
    at: KeyPath = (),
    group: str = TABLES,
) -> Problem:
    """Say in the words of the configuration what msgspec says of JSON.

    Args:
        error: what it has said.
        tree: the values of the whole file.
        root: the type of the whole file.
        at: where the value is that it was given.
        group: as of `unknown_key`.
    """
    failed = _FAILED_AT.match(str(error))
    said, place = (failed[1], failed[2] or "") if failed else (str(error), "")
    place = place.removesuffix("[...]")
    path = (*at, *(parse_path(place) if place else ()))
    named = _QUOTED.findall(said)
    if "unknown field" in said:
        return unknown_key(path, named[-1], root, group)
    if "missing required field" in said:
        path = (*path, named[-1])
        return Problem(path, "config.missing", f"missing; expected {expected(type_at(path, root))}")
    value: Any = tree
    for part in path:
        value = value[part]
    shown = f"{value!r}: " if isinstance(value, str | int | float | bool) else ""
    kind = type_at(path, root)
    wanted = _brackets(path, kind, value) or expected(kind)
    units = {"seconds", "bytes"} if isinstance(value, str) else set[str]()
    for unit in units.intersection(str(path[-1]).split("_")):
        wanted = re.sub(r"^(a|a whole) number", rf"\1 number of {unit}", wanted)
    return Problem(path, "config.value", f"{shown}expected {wanted}")


def _brackets(path: KeyPath, kind: inspect.Type | None, value: object) -> str:
    """The header that a table should have had: with two brackets where there may be several."""
    name = ".".join(part for part in path if isinstance(part, str))
    match bare(kind):
        case inspect.VarTupleType(item_type=inspect.StructType()) if isinstance(value, dict):
            return f"[[{name}]], with two brackets, as there may be several"
        case inspect.StructType() if isinstance(value, list):
            return f"[{name}], with one pair of brackets, as there is only one"
        case _:
            return ""


def unknown_key(table: KeyPath, key: str, root: inspect.Type, group: str = TABLES) -> Problem:
    """That a table has no such key, and which it has; a file has the tables of a group, too."""
    kind = bare(type_at(table, root))
    if isinstance(kind, inspect.StructType) and (why := getattr(kind.cls, "unfit", {}).get(key)):
        return Problem((*table, key), "config.unknown_key", f"no key of such a table: {why}")
    allowed = keys_at(table, root)
    if not table:
        allowed += sorted(installed(group).keys() - {*allowed})
    close = get_close_matches(key, allowed, n=1) or [
        one for one in allowed if key.startswith(f"{one}_") or one.startswith(f"{key}_")
    ]
    meant = f"did you mean {close[0]}? " if close else ""
    if table and _is_value(type_at((key,), root)):
        meant = "it belongs above the first [table] of the file; "
    text = f"unknown key; {meant}allowed: {', '.join(allowed)}" if allowed else "unknown key"
    if not table:
        text += "; plug-ins that are not installed yet may have other tables"
    return Problem((*table, key), "config.unknown_key", text)


def _is_value(kind: inspect.Type | None) -> bool:
    return kind is not None and not isinstance(
        bare(kind), inspect.StructType | inspect.VarTupleType | inspect.DictType
    )
