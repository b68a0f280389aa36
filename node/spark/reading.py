"""Fetches ranges of entries in a Spark task, and gives them to Spark as Arrow batches.

A thread fetches the next blocks while Spark takes the last ones, so that node and Spark work at
the same time; at most two fetches are held in memory.
"""

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.offsets import Range, data_loss
from rillnode.node.spark.ranges import ClientOptions, fetch_ranges

BATCH_BYTES_MAX: Final = 4_194_304
BATCH_ROWS_MAX: Final = 16_384

_Item = TypeVar("_Item")


def read_ranges(
    options: ClientOptions, ranges: Iterable[Range], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Read ranges in order as batches of the bronze schema.

    Raises:
        RequestError: entries were trimmed and `fail_on_data_loss` is set, or the node's answers
            leave a hole.
        CodecError: a block is damaged.
        TransportError: the node cannot be reached.
    """
    builder = BatchBuilder()
    for part, blocks in ahead(fetch_ranges(options, ranges)):
        if part.gap:
            if fail_on_data_loss:
                raise data_loss(part)
            builder.add_gap(*_place(part), created_at=part.created_at)
        for block in blocks:
            stream, partition, start, until = _place(part)
            builder.add_block(stream, partition, block, start, until, created_at=part.created_at)
            if builder.data_bytes >= BATCH_BYTES_MAX or builder.rows >= BATCH_ROWS_MAX:
                yield builder.finish()
                builder = BatchBuilder()
    if builder.rows:
        yield builder.finish()


def _place(part: Range) -> tuple[str, int, int, int]:
    return part.stream, part.partition, part.start, part.until


def ahead(source: Generator[_Item, None, None]) -> Generator[_Item, None, None]:
    """Run a generator in a thread, one item ahead of who takes them; errors come through."""
    with ThreadPoolExecutor(1, "rillnode-fetch") as thread:
        try:
            coming = thread.submit(next, source, None)
            while (item := coming.result()) is not None:
                coming = thread.submit(next, source, None)
                yield item
        finally:
            thread.submit(source.close).result()
