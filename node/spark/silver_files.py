"""Files of silver whose rows wait for Spark to say which of them are seen for the first time.

Spark looks for duplicates among *keys*: the event, a digest of what it says, and where its row
lies. The rows themselves stay in the files that the tasks which decoded them have written; through
Java and a shuffle they would cost more than all the rest. A file all of whose keys come back is
added to the table as it is. Of another, the rows whose keys came back are written anew: in the
driver, because the keys of one file come back through several tasks.

Entries of kind `bytes` have no name but their index, and bronze has each once. Those that follow
one another share a key, that of the first: it only tells that their file is not to be forgotten.

A key that comes back from a task that Spark has run twice may name either one's file: each row is
in exactly one of them, whichever it is. A file that no key names is in no transaction; the table's
maintenance removes it.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema

from rillnode.node.spark.parquet import (
    TableFile,
    describe_file,
    filesystem,
    remove_files,
    write_files,
)
from rillnode.node.spark.tables import schema_of

EVENT: Final = ("stream", "partition", "event_id", "_said")
"""The columns that tell two events apart."""
KEY_SCHEMA: Final = schema_of(
    stream="text", partition="int", event_id="text", _said="long", landed_at="time",
    # Where the rows lie: name of the file, number of the first in it, how many share the key.
    file="text", row="int", rows="int",
)  # fmt: skip
KEY_STRUCT: Final = from_arrow_schema(KEY_SCHEMA)
_READ_ROWS: Final = 4_096
_TIME: Final = struct.Struct("<q")
_DIGEST_BYTES: Final = 8

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class KeptRows(WriterCommitMessage):
    """The rows that one task has seen for the first time: numbers, by file."""

    rows: Mapping[str, Rows]


def write_candidates(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of silver to files of the table; yields the keys of each file when it is durable.

    Args:
        table: the table's directory or URI.
        batches: rows of the silver schema.
    """
    held: list[_Keys] = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                held.append(_keys(batch))
                yield batch

    for file in write_files(table, noted()):
        first = 0
        for events, starts, counts in held:
            names = pa.array([file.name] * len(starts), pa.string())
            where = [names, pa.array(first + starts), pa.array(counts)]
            yield pa.RecordBatch.from_arrays([*events, *where], schema=KEY_SCHEMA)
            first += int(counts.sum())
        held.clear()


def kept_rows(batches: Iterable[pa.RecordBatch]) -> KeptRows:
    """Keys that came back, as numbers of rows."""
    found: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("file", "row", "rows"))
        for name, first, count in zip(*columns, strict=True):
            found[name].extend(range(first, first + count))
    return KeptRows({name: np.array(rows, np.int32) for name, rows in found.items()})


def settle(table: str, messages: Sequence[WriterCommitMessage | None]) -> Iterator[TableFile]:
    """The files that hold exactly the rows that are kept; files with others are written anew."""
    kept: dict[str, list[Rows]] = {}
    for message in messages:
        if isinstance(message, KeptRows):
            for name, rows in message.rows.items():
                kept.setdefault(name, []).append(rows)
    system, root = filesystem(table)
    for name, parts in sorted(kept.items()):
        rows = np.concatenate(parts)
        with pq.ParquetFile(f"{root}/{name}", filesystem=system) as parquet:
            if len(rows) == parquet.metadata.num_rows:
                yield describe_file(table, name)
                continue
            mask = np.zeros(parquet.metadata.num_rows, np.bool_)
            mask[rows] = True
            yield from write_files(table, _masked(parquet, mask))
        remove_files(table, [name])


def _masked(parquet: pq.ParquetFile, mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in parquet.iter_batches(batch_size=_READ_ROWS, use_threads=False):
        chosen = pa.array(mask[first : first + batch.num_rows])
        yield from pa.Table.from_batches([batch]).filter(chosen).to_batches()
        first += batch.num_rows


class _Keys(NamedTuple):
    """Keys of the rows of a batch: the events, and which rows share each."""

    events: list[pa.Array]
    starts: Rows
    counts: Rows


def _keys(rows: pa.RecordBatch) -> _Keys:
    """The keys of a batch: one of each row, but of rows that cannot repeat one of each run.

    They depend on nothing but the rows: a task that Spark runs again makes the same.
    """
    once = np.array([kind == "bytes" for kind in rows.column("kind").to_pylist()], np.bool_)
    begins = ~once
    begins[0] = True
    begins[1:] |= ~once[:-1]
    starts = np.flatnonzero(begins).astype(np.int32)
    counts = np.diff(starts, append=np.int32(rows.num_rows))
    return _Keys(_events(rows.take(pa.array(starts))), starts, counts)


def _events(rows: pa.RecordBatch) -> list[pa.Array]:
    """The columns of the keys that are known before the rows are in a file."""
    said = [
        _said(
            (data or b"") if content is None else content.encode(),
            received_at if kind == "bytes" else None,
        )
        for content, data, kind, received_at in zip(
            rows.column("content").to_pylist(),
            rows.column("data").to_pylist(),
            rows.column("kind").to_pylist(),
            rows.column("received_at").cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]
    stream, partition, event_id, landed_at = (
        rows.column(name) for name in ("stream", "partition", "event_id", "landed_at")
    )
    return [stream, partition, event_id, pa.array(said, pa.int64()), landed_at]


def _said(content: bytes, received_at: int | None) -> int:
    """A digest of what an event says.

    Two messages under one id are no duplicates if they say different things: both are kept. The id
    of what belongs to no protocol is its index, which a stream that was made anew has once more:
    such an entry only comes again as the node took it.
    """
    key = b"" if received_at is None else _TIME.pack(received_at)
    digest = blake2b(content, digest_size=_DIGEST_BYTES, key=key).digest()
    number: int = _TIME.unpack(digest)[0]
    return number
