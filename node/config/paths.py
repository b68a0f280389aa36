"""Key paths such as `peer[0].noise`: as texts, and what belongs at each."""

import re
from typing import cast

from msgspec import inspect

KeyPath = tuple[str | int, ...]

_PART = re.compile(r"[.\[]?([A-Za-z0-9_-]+)\]?")


def format_path(path: KeyPath) -> str:
    """Write a path as errors and `--set` do."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def parse_path(text: str) -> KeyPath:
    """Read a path; an index may stand in brackets or, for the environment, between dots.

    Raises:
        ValueError: it is none.
    """
    parts = _PART.findall(text)
    path = tuple(int(part) if part.isdecimal() else part for part in parts)
    if not path or format_path(path) != re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", text):
        raise ValueError(f'expected a key such as "noise.listen", not {text!r}')
    return path


def type_at(path: KeyPath, root: inspect.Type) -> inspect.Type | None:
    """The type of what stands at a path below a table, or None where nothing may stand."""
    found: inspect.Type | None = root
    for part in path:
        found = _child(bare(found), part)
        if found is None:
            return None
    return found


def keys_at(path: KeyPath, root: inspect.Type) -> list[str]:
    """The keys that the table at a path may have."""
    match bare(type_at(path, root)):
        case inspect.StructType(fields=fields):
            return [field.encode_name for field in fields]
        case inspect.DictType(key_type=inspect.LiteralType(values=values)):
            return [str(value) for value in values]
        case _:
            return []


def bare(kind: inspect.Type | None) -> inspect.Type | None:
    """A type without its annotations and without `None`."""
    while True:
        match kind:
            case inspect.Metadata(type=inner):
                kind = inner
            case inspect.UnionType(types=types):
                kind = next(one for one in types if not isinstance(one, inspect.NoneType))
            case _:
                return kind


def expected(kind: inspect.Type | None) -> str:
    """What a value of a type must be, in words."""
    title = _title(kind)
    if title:
        return title
    match bare(kind):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=low, le=high):
            return f"a whole number{_bounds(None, low, high)}"
        case inspect.FloatType(gt=over, ge=low, le=high):
            return f"a number{_bounds(over, low, high)}"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f'"{value}"' for value in values)
        case inspect.CustomType():
            return "a path"
        case inspect.VarTupleType(item_type=item):
            return f"a list, each item {expected(item)}"
        case inspect.DictType(key_type=key, value_type=value):
            return f"a table, each key {expected(key)}, each value {expected(value)}"
        case inspect.StructType():
            return "a table"
        case _:
            return "a text"


def _title(kind: inspect.Type | None) -> str:
    match kind:
        case inspect.Metadata():
            extra = cast(dict[str, str], kind.extra_json_schema or {})
            return extra.get("title", "") or _title(kind.type)
        case inspect.UnionType(types=types):
            return next((text for text in map(_title, types) if text), "")
        case _:
            return ""


def _bounds(over: float | None, low: float | None, high: float | None) -> str:
    if over is not None:
        return f" over {over:g}" if high is None else f" over {over:g}, up to {high:.15g}"
    if low is None:
        return ""
    return f" of at least {low:g}" if high is None else f" from {low:g} to {high:.15g}"


def _child(kind: inspect.Type | None, part: str | int) -> inspect.Type | None:
    match kind:
        case inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == part), None)
        case inspect.VarTupleType(item_type=item) if isinstance(part, int):
            return item
        case inspect.DictType(key_type=inspect.LiteralType(values=values), value_type=value):
            return value if part in cast(tuple[object, ...], values) else None
        case _:
            return None
