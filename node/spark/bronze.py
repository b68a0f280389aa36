"""Reads bronze tables: their files, and how far their own transactions say that they have come.

Whoever lands entries says in the transaction that adds them the next index of each partition that
it has come further in, how many entries were lost, and which batch it is. So a job goes on where
the table ends, whatever kind of job was there before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Transaction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta_log import ANEW, PLACE, LogFile
from rillnode.node.spark.offsets import TASK_ROWS_MIN, Created, Key, Offset, Positions
from rillnode.node.spark.parquet import TableFile, file_rows

_LOST: Final = "rillnode.entries_lost"
"""As what a bronze table's transactions count lost entries."""


def entries_lost(table: DeltaTable) -> int:
    """How many entries a bronze table has rows of kind `gap` in place of, as far as is known."""
    return table.transaction_version(_LOST) or 0


def landed_in(table: DeltaTable, keys: Iterable[Key], created: Created) -> Positions:
    """Where a bronze table ends in each of some partitions of which it says anything."""
    found = {
        key: table.transaction_version(_place(key, created[key[0]]))
        for key in keys
        if key[0] in created
    }
    return {key: index for key, index in found.items() if index is not None}


def landed_until(table: DeltaTable, start: Offset) -> Offset:
    """An offset, moved on to where a bronze table has its partitions already."""
    landed = landed_in(table, start.positions, start.created)
    ahead = {key: max(index, start.positions[key]) for key, index in landed.items()}
    return start._replace(positions=start.positions | ahead)


def is_overtaken(table: DeltaTable, start: Offset, end: Offset) -> bool:
    """Whether a bronze table is further than `start` in a partition that a batch until `end` has.

    One that the batch does not go on in, because it is new or its stream was made anew, begins at
    its first entry.
    """
    begin = start.still(end.created)
    landed = landed_in(table, end.positions, end.created)
    return any(index > begin.get(key, 0) for key, index in landed.items())


def transactions(
    table: DeltaTable, before: Offset, until: Offset, files: Sequence[TableFile]
) -> list[Transaction]:
    """What the transaction of a batch says beside its files.

    Args:
        table: the table as of now.
        before: where the batch begins.
        until: where it ends.
        files: what it adds.
    """
    anew = before.made_anew(until.created)
    ends = [
        Transaction(_place(key, until.created[key[0]]), index)
        for key, index in until.positions.items()
        if key[0] in until.created and (key[0] in anew or before.positions.get(key) != index)
    ]
    lost = sum(file.entries_lost for file in files)
    return [*ends, Transaction(_LOST, entries_lost(table) + lost)] if lost else ends


def _place(key: Key, created_at: int) -> str:
    """A partition as the table's transactions name it; a stream made anew is another one."""
    stream, partition = key
    return f"{stream}/{partition}/{created_at}"


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
