"""Blocks, rows and queries for the tests of the Spark pipeline."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, Transaction
from pyspark.sql.types import StructType

from rillnode.codecs.entries import Block, EntryKind, encode_block, flags_of, pack_body
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta import add_actions, commit, create_table
from rillnode.node.spark.delta_log import LiveTable
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.parquet import write_files
from rillnode.node.spark.silver import KeptRows, SilverWriter

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


class RowWriter(SilverWriter):
    """Writes rows to files and commits them, as silver's writer does those of new events."""

    def __init__(self, table: str, checkpoint: str, schema: StructType) -> None:
        super().__init__(table, checkpoint, Schema.from_json(schema.json()), f"{table}_bronze")

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> KeptRows:
        files = write_files(self._table, iterator)
        return KeptRows({one.name: np.arange(one.rows, dtype=np.int32) for one in files})

    def positions(self, batch_id: int) -> list[Transaction]:
        return []


class Query:
    """A query as Spark runs it: a checkpoint, then write and commit per batch."""

    def __init__(self, directory: Path, checkpoint: str = "checkpoint") -> None:
        self.table = directory / "table"
        self.checkpoint = directory / checkpoint
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    def writer(self, schema: StructType = BRONZE_STRUCT) -> RowWriter:
        return RowWriter(str(self.table), str(self.checkpoint), schema)

    def run(self, batch_id: int, *tasks: pa.RecordBatch) -> None:
        (self.checkpoint / "offsets" / str(batch_id)).write_text("v1\n{}\n")
        writer = self.writer()
        writer.commit([writer.write(iter([task])) for task in tasks], batch_id)

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
        self._live = LiveTable(str(self.table))

    def run(self, batch_id: int, *tasks: pa.RecordBatch) -> None:
        location = str(self.table)
        table = self._live.open() or create_table(location, Schema.from_json(BRONZE_STRUCT.json()))
        files = [file for task in tasks for file in write_files(location, iter([task]))]
        commit(location, table, add_actions(files, data_change=True))
