"""Blocks, rows and queries for the tests of the Spark pipeline."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from rillnode.codecs.entries import Block, EntryKind, encode_block, flags_of, pack_body
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta import add_actions, commit, create_table, open_to_write, summary
from rillnode.node.spark.delta_log import LiveTable
from rillnode.node.spark.parquet import write_files
from rillnode.node.spark.tables import BRONZE_SCHEMA

TIME = 1_700_000_000_123


def make_block(
    first: int,
    items: list[bytes],
    *,
    metas: list[bytes] | None = None,
    keys: list[bytes | None] | None = None,
    headers: list[bytes] | None = None,
    kind: EntryKind = EntryKind.BYTES,
    received_at: int = TIME,
) -> Block:
    value = encode_block(
        count=len(items),
        kind=kind,
        received_at=received_at,
        position=0,
        body=pack_body(items, metas, keys, headers),
        flags=flags_of(metas, keys, headers),
    )
    return Block(first, value)


def streamr_text(**changes: Any) -> bytes:
    """A message of a Streamr client, as it is stored."""
    values: dict[str, Any] = {
        "id": ["s", 0, TIME, 3, "0xABcd", "chain"],
        "previous": [TIME - 1, 2],
        "encryption": 2,
        "signature": "0x0aff",
    } | changes
    head = (32, values["id"], values["previous"], 27, 0, values["encryption"])
    return json.dumps([*head, "key", "00ff", None, 2, values["signature"]]).encode()


def rows(first: int, count: int, *, stream: str = "s") -> pa.RecordBatch:
    builder = BatchBuilder()
    block = make_block(first, [b"%d" % i for i in range(first, first + count)])
    builder.add_block(stream, 0, block, first, first + count)
    return builder.finish()


class Query:
    """A table that rows are added to, those of each batch in one transaction.

    Args:
        directory: where it is.
        schema: its columns.
    """

    def __init__(self, directory: Path, schema: pa.Schema = BRONZE_SCHEMA) -> None:
        self.table = directory / "table"
        self._schema = Schema.from_arrow(schema)

    @property
    def location(self) -> str:
        return str(self.table)

    def run(self, batch_id: int, *tasks: pa.RecordBatch) -> None:
        table = open_to_write(self.location, self._schema)
        files = [file for task in tasks for file in write_files(self.location, [task])]
        told = {"batch": summary("query", batch_id, files)}
        commit(self.location, table, add_actions(files, data_change=True), (), told)

    def indexes(self) -> list[int]:
        table = DeltaTable(self.table)
        return sorted(
            row["index"]
            for name in table.file_uris()
            for row in pq.read_table(name, columns=["index"]).to_pylist()
        )


class Bronze(Query):
    """A table to which entries are added as they are, each time in one transaction."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._live = LiveTable(self.location)

    def run(self, batch_id: int, *tasks: pa.RecordBatch) -> None:
        table = self._live.open() or create_table(self.location, self._schema)
        files = [file for task in tasks for file in write_files(self.location, [task])]
        commit(self.location, table, add_actions(files, data_change=True))
