"""Loads the schema of a typed table: columns, a JSON Schema, or a class of the application.

A class keeps its own checks: bounds, patterns and `__post_init__` decide beside the columns what
fits. A column is made of each of its fields, under the name that the field has in JSON.
"""

import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, inspect

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.typed.columns import (
    DEPTH_MAX,
    Column,
    Columns,
    check_columns,
    read_columns,
    unfit,
)

Evolve = Literal["add", "widen", "freeze", "pause"]
"""What is done about fields that a schema does not have, and numbers that are too wide for it."""
Reject = Literal["table", "pause"]
"""What is done about an entry that does not fit: it goes to the rejects, or the table waits."""

STREAM: Final = "{stream}"
"""What stands for the stream's name in the directory of a table for each stream."""

_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def place_of(location: str) -> str:
    """The directory or URI that a table lies in, or those of all streams."""
    before, stream, _ = location.partition(STREAM)
    return before.rpartition("/")[0] if stream else location


class SchemaSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The source of a table's schema; one of the two is there.

    Attributes:
        schema: `module:Class`, or the path of a JSON Schema.
        columns: the columns as in TOML.
    """

    schema: str = ""
    columns: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def class_name(self) -> str:
        """The application's class, `module:Class`; empty where it is none."""
        # What stands in a file of a configuration has become a path in its directory.
        name = self.schema.rpartition("/")[2]
        return name if _CLASS.fullmatch(name) else ""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was declared.

    Attributes:
        columns: its columns.
        struct: the application's class; None where it is none.
    """

    columns: Columns
    struct: type | None = None


def load_schema(source: SchemaSource) -> Schema:
    """Load a schema.

    Raises:
        ConfigError: `table.schema`, it does not load; `table.column`, no table can have it.
    """
    if source.columns:
        columns = read_columns(source.columns)
        check_columns(columns)
        return Schema(columns)
    if name := source.class_name:
        return struct_schema(_load_class(name), name)
    try:
        document = msgspec.json.decode(Path(source.schema).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unloaded(source.schema, str(error)) from error
    return Schema(read_json_schema(document, source.schema))


def _load_class(name: str) -> object:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        # As of `python -m`, which starts the sink's job.
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        text = f"no module named {error.name!r}; add its directory to PYTHONPATH, or install it"
        raise _unloaded(name, text) from error
    except (ImportError, AttributeError, SyntaxError, NameError, TypeError, ValueError) as error:
        raise _unloaded(name, f"{type(error).__name__}: {error}") from error


def struct_schema(kind: object, name: str) -> Schema:
    """The schema that a class is.

    Raises:
        ConfigError: it is no msgspec class of JSON objects, or a field of it has no column type.
    """
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise _unloaded(name, "it is no subclass of msgspec.Struct")
    if kind.__struct_config__.array_like:
        raise _unloaded(name, "it is array_like, and columns come from objects")
    try:
        columns = _struct_columns(kind, name, 1)
    except (TypeError, NameError) as error:
        raise _unloaded(name, str(error)) from error
    check_columns(columns)
    return Schema(columns, kind)


def _struct_columns(kind: type[msgspec.Struct], path: str, depth: int) -> Columns:
    if depth > DEPTH_MAX:
        raise unfit(path, f"is nested more than {DEPTH_MAX} deep")
    described = cast("inspect.StructType", inspect.type_info(kind))
    columns: list[Column] = []
    for one, known in zip(msgspec.structs.fields(kind), described.fields, strict=True):
        column = _column(one.encode_name, known.type, f"{path}.{one.name}", depth)
        default: dict[str, Any] = {}
        if one.default is not msgspec.NODEFAULT:
            default = {"default": one.default}
        elif one.default_factory is not msgspec.NODEFAULT:
            default = {"default_factory": one.default_factory}
        if one.default is msgspec.UNSET:
            column = replace(column, optional=True)
        # msgspec decodes nothing but null as `Raw | None`.
        hint = msgspec.Raw if "msgspec.Raw" in str(one.type) and column.kind == "json" else one.type
        columns.append(replace(column, attribute=one.name, hint=hint, default=default))
    return tuple(columns)


def _column(name: str, kind: inspect.Type, path: str, depth: int) -> Column:
    """The column of a field of a class."""
    match kind:
        case inspect.UnionType(types=types):
            rest = [one for one in types if not isinstance(one, inspect.NoneType)]
            if len(rest) == 1 and len(types) > 1:
                return replace(_column(name, rest[0], path, depth), optional=True)
        case inspect.Metadata(type=inner):
            return _column(name, inner, path, depth)
        case inspect.StructType(cls=struct) if not kind.array_like:
            inner_columns = _struct_columns(struct, path, depth + 1)
            return Column(name, "struct", columns=inner_columns, struct=struct)
        case inspect.DataclassType(fields=fields):
            found = tuple(
                replace(_column(one.encode_name, one.type, f"{path}.{one.name}", depth + 1),
                        attribute=one.name)
                for one in fields
            )  # fmt: skip
            return Column(name, "struct", columns=found)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return Column(name, "list", columns=(_column("", item, f"{path}[]", depth + 1),))
        case inspect.SetType(item_type=item) | inspect.FrozenSetType(item_type=item):
            return Column(name, "list", columns=(_column("", item, f"{path}[]", depth + 1),))
        case inspect.DictType(key_type=inspect.StrType(), value_type=value):
            return Column(name, "map", columns=(_column("", value, f"{path}.*", depth + 1),))
        case inspect.EnumType(cls=cls):
            return Column(name, _kind_of_values([one.value for one in cls], path))
        case inspect.LiteralType(values=values):
            return Column(name, _kind_of_values(list(values), path))
        case _ if scalar := _SCALARS.get(type(kind)):
            return Column(name, scalar, isinstance(kind, inspect.AnyType))
        case _:
            pass
    raise unfit(path, f"has no column type: {_name_of(kind)}; declare it as msgspec.Raw for JSON")


_SCALARS: Final[dict[type, str]] = {
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.DecimalType: "decimal",
    inspect.StrType: "string",
    inspect.UUIDType: "string",
    inspect.DateTimeType: "timestamp",
    inspect.DateType: "date",
    inspect.BytesType: "binary",
    inspect.RawType: "json",
    inspect.AnyType: "json",
}


def _kind_of_values(values: list[object], path: str) -> str:
    kinds = {type(one) for one in values}
    if kinds == {str}:
        return "string"
    if kinds == {int}:
        return "int"
    raise unfit(path, "has no column type: its values are neither all texts nor all whole numbers")


def _name_of(kind: inspect.Type) -> str:
    return type(kind).__name__.removesuffix("Type").lower()


_FORMATS: Final = {
    "date-time": "timestamp",
    "date": "date",
}
_TYPES: Final = {"boolean": "bool", "integer": "int", "number": "float", "string": "string"}
_BOUNDS: Final = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
}


def read_json_schema(document: object, where: str) -> Columns:
    """The columns of a JSON Schema of objects; its bounds are kept as checks.

    Raises:
        ConfigError: `table.schema`, it is none of objects; `table.column`, a property of it has no
            column type.
    """
    if not isinstance(document, dict):
        raise _unloaded(where, "it is no JSON Schema of objects")
    root = cast("dict[str, Any]", document)
    column = _property("", root, root, "$", 1, required=True)
    if column.kind != "struct":
        raise _unloaded(where, "it is no JSON Schema of objects with properties")
    check_columns(column.columns)
    return column.columns


def _property(
    name: str, schema: object, root: Mapping[str, Any], path: str, depth: int, *, required: bool
) -> Column:
    if depth > DEPTH_MAX:
        raise unfit(path, f"is nested more than {DEPTH_MAX} deep, or refers to itself")
    if schema is True or schema == {}:
        return Column(name, "json", not required)
    if not isinstance(schema, dict):
        raise unfit(path, "has no column type: its schema is no object")
    found = cast("dict[str, Any]", schema)
    if "$ref" in found:
        target = _referred(found["$ref"], root, path)
        return _property(name, target, root, path, depth + 1, required=required)
    for word in ("anyOf", "oneOf"):
        if word in found:
            options = cast("list[Any]", found[word])
            rest = [one for one in options if one != {"type": "null"}]
            if len(rest) != 1:
                raise unfit(path, f"has no column type: {word} of several types")
            optional = len(rest) < len(options) or not required
            return _property(name, rest[0], root, path, depth + 1, required=not optional)
    types = found.get("type")
    several = cast("list[object]", types) if isinstance(types, list) else [types]
    optional = not required or "null" in several
    kinds = [one for one in several if one != "null"]
    if len(kinds) != 1:
        raise unfit(path, f"has no column type: it may be {', '.join(map(str, kinds)) or 'null'}")
    match kinds[0] or _implied(found):
        case "object" if "properties" in found:
            properties = cast("dict[str, Any]", found["properties"])
            needed = cast("list[str]", found.get("required", []))
            columns = tuple(
                _property(one, inner, root, f"{path}.{one}", depth + 1, required=one in needed)
                for one, inner in properties.items()
            )
            return Column(name, "struct", optional, columns)
        case "object" if isinstance(found.get("additionalProperties"), dict):
            value = _property("", found["additionalProperties"], root, f"{path}.*", depth + 1,
                              required=True)  # fmt: skip
            return Column(name, "map", optional, (value,))
        case "object":
            return Column(name, "json", optional)
        case "array":
            items = found.get("items", {})
            inner = _property("", items, root, f"{path}[]", depth + 1, required=True)
            return Column(name, "list", optional, (inner,))
        case str() as kind if kind in _TYPES:
            return _scalar(name, found, kind, optional, path)
        case other:
            raise unfit(path, f"has no column type: {other!r}")


def _scalar(name: str, found: Mapping[str, Any], kind: str, optional: bool, path: str) -> Column:
    scalar = _FORMATS.get(str(found.get("format")), "string") if kind == "string" else _TYPES[kind]
    listed: object = found.get("enum", [found["const"]] if "const" in found else None)
    hint: Any = None
    if isinstance(listed, list) and scalar in ("string", "int"):
        values = cast("list[object]", listed)
        allowed = [one for one in values if one is not None]
        if _kind_of_values(allowed, path) != scalar:
            raise unfit(path, f"has no column type: an enum of others than its type, {kind}")
        hint = Literal[tuple(allowed)]
    elif scalar in ("string", "int", "float"):
        bounds: dict[str, Any] = {
            mine: found[word] for word, mine in _BOUNDS.items() if word in found
        }
        if scalar == "int":
            bounds = {"ge": -(2**63), "le": 2**63 - 1} | bounds
            if "gt" in bounds:
                del bounds["ge"]
            if "lt" in bounds:
                del bounds["le"]
        if bounds:
            base = {"string": str, "int": int, "float": float}[scalar]
            try:
                hint = Annotated[base, Meta(**bounds)]
                msgspec.json.Decoder(hint)
            except (TypeError, ValueError, re.error) as error:
                raise unfit(path, f"has bounds that cannot be: {error}") from error
    if hint is not None and optional:
        hint = hint | None
    return Column(name, scalar, optional, hint=hint)


def _implied(found: Mapping[str, Any]) -> str | None:
    if "properties" in found:
        return "object"
    values: list[object] = found.get("enum", [found["const"]] if "const" in found else [])
    if values and all(isinstance(one, str) for one in values):
        return "string"
    return None


def _referred(reference: object, root: Mapping[str, Any], path: str) -> object:
    at: Any = root
    if not (isinstance(reference, str) and reference.startswith("#")):
        raise unfit(path, f"refers to {reference!r}, which is not in its file")
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(at, dict) or name not in at:
            raise unfit(path, f"refers to {reference!r}, which is not there")
        at = cast("dict[str, Any]", at)[name]
    return at


def _unloaded(name: str, why: str) -> ConfigError:
    return ConfigError("table.schema", f"the schema {name} does not load: {why}")
