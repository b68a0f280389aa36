"""Reads files of bronze, for the tables that are made of it, and shares them out among tasks."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta_log import ANEW, PLACE, LogFile
from rillnode.node.spark.offsets import TASK_ROWS_MIN
from rillnode.node.spark.parquet import file_rows


def share_files(files: list[LogFile], tasks_max: int) -> list[list[LogFile]]:
    """Share files out among tasks in order, none for fewer rows than a task is worth."""
    total = sum(max(1, file.rows) for file in files)
    count = max(1, min(tasks_max, -(-total // TASK_ROWS_MIN)))
    tasks: list[list[LogFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        tasks[min(count - 1, before * count // total)].append(file)
        before += max(1, file.rows)
    return [task for task in tasks if task]


def read_rest(uri: str, holders: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of one file that its table still has, in files that have come in its place.

    Raises:
        StoreError: a file was removed, long after its rows had moved to another.
    """
    wanted = pa.concat_arrays([_places(rows) for rows in read_file(uri, PLACE)])
    is_left = np.zeros(len(wanted), np.bool_)
    for holder in holders:
        for rows in read_file(holder, PLACE):
            found = pc.index_in(_places(rows), value_set=wanted).drop_null()
            is_left[np.array(found.to_pylist(), np.int64)] = True
    first = 0
    for rows in read_file(uri):
        yield rows.filter(pa.array(is_left[first : first + rows.num_rows]))
        first += rows.num_rows


def _places(rows: pa.RecordBatch) -> pa.Array:
    """What tells the rows of bronze apart, one text for each."""
    stream, partition, index, received_at = (rows.column(name) for name in PLACE)
    numbers = [
        partition.cast(pa.string()),
        index.cast(pa.string()),
        received_at.cast(pa.int64()).cast(pa.string()).fill_null("gap"),
    ]
    return pc.binary_join_element_wise(*numbers, stream.cast(pa.string()), " ")


def streams_in(uris: Iterable[str]) -> set[str]:
    """The streams that files of bronze have entries of."""
    read = (rows.column("stream") for uri in uris for rows in read_file(uri, ["stream"]))
    return {name for column in read for name in pc.unique(column).to_pylist()}


def read_file(uri: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one file of a table, all of their columns or some.

    Raises:
        StoreError: it was removed, long after its rows had moved to another.
    """
    try:
        yield from file_rows(uri, columns=columns)
    except FileNotFoundError:
        raise StoreError(
            "spark.log",
            f"{uri} was merged, or rows of it deleted, and then removed before it was read: the "
            f"query was stopped for too long. {ANEW}",
        ) from None
