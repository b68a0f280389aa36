"""Changes the schemas of tables and of files, and gives rows the columns of a schema.

Schemas only ever grow: an old table gets the new columns, an old file's rows have nulls there. What
a column means never changes, so that neither names nor types of what is there do.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from rillnode.codecs.errors import ConfigError

FIELD_ID: Final = b"PARQUET:field_id"
"""Metadata by which pyarrow gives a column of a Parquet file its number."""

Tell = Callable[[str, pa.Field], dict[bytes, bytes] | None]
"""The metadata of a field, of its path, such as `pos.lat`, `tags.element` or `counts.value`."""


def with_metadata(schema: pa.Schema, tell: Tell) -> pa.Schema:
    """The same schema with other metadata; lists of large offsets become plain ones."""
    return pa.schema([_field(one, one.name, tell) for one in schema])


def renamed(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """The same schema with other names of some columns."""
    return pa.schema([one.with_name(names.get(one.name, one.name)) for one in schema])


def with_field_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """The same schema with the numbers of its fields, by their paths; itself where there are none.

    Raises:
        ConfigError: `table.schema`, a field has no number.
    """
    if not ids:
        return schema

    def number(path: str, _: pa.Field) -> dict[bytes, bytes]:
        if path not in ids:
            text = f"the table has no column {path!r} any more: another writer has changed it"
            raise ConfigError("table.schema", text)
        return {FIELD_ID: str(ids[path]).encode()}

    return with_metadata(schema, number)


def field_ids(schema: pa.Schema) -> dict[str, str]:
    """The numbers of a file's fields, by their paths; of one without a number an empty text."""
    found: dict[str, str] = {}

    def note(path: str, field: pa.Field) -> None:
        found[path] = (field.metadata or {}).get(FIELD_ID, b"").decode()

    with_metadata(schema, note)
    return found


def _field(field: pa.Field, path: str, tell: Tell) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        inner = (kind.field(at) for at in range(kind.num_fields))
        kind = pa.struct([_field(one, f"{path}.{one.name}", tell) for one in inner])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_inner(kind.value_field, path, "element", tell))
    elif pa.types.is_map(kind):
        key = _inner(kind.key_field, path, "key", tell)
        kind = pa.map_(key, _inner(kind.item_field, path, "value", tell))
    return pa.field(field.name, kind, field.nullable, tell(path, field))


def _inner(field: pa.Field, path: str, name: str, tell: Tell) -> pa.Field:
    return _field(field.with_name(name), f"{path}.{name}", tell)


def upgrade_table(table: DeltaTable, wanted: Schema) -> bool:
    """Add the last columns of `wanted` that the table does not have; returns whether it did.

    A table that has more columns was made by a newer version; an older one's rows have nulls there.

    Raises:
        ConfigError: neither schema begins with the other, so that it is another table.
    """
    present, asked = described(table.schema()), described(wanted)
    common = min(len(present), len(asked))
    if present[:common] != asked[:common]:
        raise ConfigError(
            "spark.table",
            f"the table {table.table_uri} has other columns than the query: {', '.join(present)} "
            f"instead of {', '.join(asked)}. Give the query a table directory of its own",
        )
    missing = [Field(field.name, field.type, nullable=True) for field in wanted.fields[common:]]
    if missing:
        table.alter.add_columns(missing)
        table.update_incremental()
    return bool(missing)


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with exactly a schema's columns: missing ones null, others left out."""
    if rows.schema.equals(schema):
        return rows
    names = set(rows.schema.names)
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def described(schema: Schema) -> list[str]:
    """Names and types of columns, as text."""
    return [f"{field.name} {json.loads(field.type.to_json())}" for field in schema.fields]
