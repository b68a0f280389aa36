"""Describes the configuration: reference, JSON schema, a new file, effective values.

All of it is made from the structs and their docstrings.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import inspect as types, structs

from rillnode.node.config.docstrings import descriptions_of, summary_of, without_attributes
from rillnode.node.config.file_type import table_type, whole_type
from rillnode.node.config.loading import Loaded
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath, bare, expected, format_path
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.tables import HttpListener, NoiseListener, for_process
from rillnode.node.installed import TABLES, installed

_COMMENT_COLUMNS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table; `example` stands where there is no default."""

    name: str
    expected: str
    required: bool
    default: Any
    example: Any
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the file.

    Attributes:
        header: `[noise]`, `[[grant]]`, or nothing for the keys above all tables.
        optional: whether nothing of it takes effect until the table is present.
    """

    header: str
    struct: type[msgspec.Struct]
    optional: bool
    summary: str
    keys: list[Key]


def tables(root: type[msgspec.Struct] | None = None) -> list[Table]:
    """Every table of a configuration, or of another file, in the order of the file."""
    return list(_tables(root or whole_type(), "", False))


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration."""
    described: dict[str, Any] = msgspec.json.schema(whole_type(), schema_hook=_path_schema)
    for table in tables():
        entry = described["$defs"][table.struct.__name__]
        entry["description"] = table.summary
        for key in table.keys:
            entry["properties"][key.name]["description"] = key.description
    for entry in described["$defs"].values():
        entry["description"] = without_attributes(entry["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rillnode node.toml",
        **described,
    }


def template(name: str, admin: str) -> str:
    """The text of a new `node.toml`: what is edited first, and a grant for the admin key."""
    tables = [table_type(name) for name in installed(TABLES)]
    written = [one for one in tables if one.written]
    offered = [one.table for one in tables if one.tried and not one.written]
    lines = [
        "# A rillnode node. `rillnode config show --defaults` has every other key and its default;",
        "# `rillnode config check` checks this file.",
        f"name = {toml_value(name)}",
        'data_dir = "data"',
        "",
        "[noise]  # rillnode's own encrypted link, for its clients and other nodes",
        f"listen = {toml_value(NoiseListener().listen)}",
        "",
        "[http]  # status page, health and metrics",
        f"listen = {toml_value(HttpListener().listen)}",
        "",
        "# Take away the # before the protocols that your clients speak.",
        *(f"# [{one}]" for one in offered),
        "",
        *map(_titled, written),
        "",
        "[[grant]]  # the key that `rillnode init` made for you, data/admin.key",
        f'who = "noise:{admin}"',
        'streams = "*"',
        'addresses = "*"',
        'may = ["admin"]',
    ]
    return "\n".join(lines) + "\n"


def defaults() -> str:
    """Every table and key with its default or an example, as comments that can be taken over."""
    lines = ["# Every key of node.toml with its default, or an example where it has none."]
    for table in tables():
        if table.header:
            lines += ["", *_comment(table.summary), f"# {table.header}"]
        for key in table.keys:
            shown = key.example if key.default is None or key.required else key.default
            lines += [*_comment(key.description), f"# {key.name} = {toml_value(shown)}"]
    return "\n".join(lines) + "\n"


def effective(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    """Every value in effect for `rillnode run`: key, value, and where it comes from.

    Nothing here is secret: keys are configured by the paths of their files.
    """
    config = for_process(loaded.config)
    identity = structs.replace(
        config.identity, key_file=config.key_file, admin_key_file=config.admin_key_file
    )
    filled = structs.replace(
        config, identity=identity, tables=[one.in_effect(config) for one in config.tables]
    )
    for path, value in _leaves((), msgspec.to_builtins(filled.by_name(), enc_hook=str)):
        yield format_path(path), value, loaded.origin(path)


def toml_value(value: Any) -> str:
    """Write a value as TOML does."""
    match value:
        case bool() | str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int():
            return f"{value:_}"
        case list() | tuple():
            return f"[{', '.join(map(toml_value, cast(list[Any], value)))}]"
        case dict():
            pairs = cast(dict[str, Any], value).items()
            return "{" + ", ".join(f"{key} = {toml_value(one)}" for key, one in pairs) + "}"
        case _:
            return str(value) if isinstance(value, float) else json.dumps(str(value))


def _tables(
    struct: type[msgspec.Struct], name: str, item: bool, off: bool = False
) -> Iterator[Table]:
    fields = cast(types.StructType, types.type_info(struct)).fields
    inner: list[tuple[types.Field, types.StructType, bool]] = []
    keys: list[Key] = []
    descriptions = descriptions_of(struct)
    for field in fields:
        kind = bare(field.type)
        if isinstance(kind, types.StructType):
            inner.append((field, kind, False))
        elif isinstance(kind, types.VarTupleType) and isinstance(kind.item_type, types.StructType):
            inner.append((field, kind.item_type, True))
        else:
            keys.append(_key(field, descriptions[field.name]))
    if keys:
        header = f"[[{name}]]" if item else f"[{name}]" if name else ""
        yield Table(
            header=header,
            struct=struct,
            optional=item or off,
            summary=summary_of(struct),
            keys=keys,
        )
    for field, kind, is_item in inner:
        path = f"{name}.{field.encode_name}".removeprefix(".")
        yield from _tables(
            kind.cls,
            path,
            is_item,
            off=off or (field.default is None and not getattr(kind.cls, "written", False)),
        )


def _key(field: types.Field, description: str) -> Key:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Key(
        name=field.encode_name,
        expected=expected(field.type),
        required=field.required,
        default=None if field.required else default,
        example=_example(field.type),
        description=description,
    )


def _example(kind: types.Type) -> Any:
    if isinstance(kind, types.Metadata):
        extra = cast(dict[str, list[Any]], kind.extra_json_schema or {})
        return extra["examples"][0] if "examples" in extra else _example(kind.type)
    return None


def _titled(table: type[PlugInTable]) -> str:
    """A table's header, and behind it what it is."""
    what = summary_of(table).splitlines()[0].removesuffix(".")
    return f"[{table.table}]  # {what[0].lower()}{what[1:]}"


def _comment(text: str) -> list[str]:
    paragraphs = text.replace("\n\n", "\0").replace("\n", " ").split("\0")
    wrapped = (textwrap.wrap(one, _COMMENT_COLUMNS) for one in paragraphs)
    return [f"# {line}" for lines in wrapped for line in lines]


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in cast(dict[str, Any], value).items():
            yield from _leaves((*path, key), inner)
    elif isinstance(value, list | tuple) and any(
        isinstance(one, dict) for one in cast(list[Any], value)
    ):
        for at, inner in enumerate(cast(list[Any], value)):
            yield from _leaves((*path, at), inner)
    else:
        yield path, value


def _path_schema(kind: type) -> dict[str, Any]:
    if kind is Path:
        return {"type": "string", "format": "path"}
    if kind is Location:
        return {"type": "string"}
    raise TypeError(f"no JSON schema for {kind}")
