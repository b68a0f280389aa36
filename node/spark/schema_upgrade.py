"""Schemas only ever grow: an old table gets the new columns, an old file's rows have nulls there.

What a column means never changes, so that neither names nor types of what is there do.
"""

import json

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from rillnode.codecs.errors import ConfigError


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
