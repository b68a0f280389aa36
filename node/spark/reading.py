"""Fetches ranges of entries in a Spark task, and gives them to Spark as Arrow batches.

A thread fetches the next blocks while Spark takes the last ones, so that node and Spark work at
the same time; at most two fetches are held in memory.
"""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
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
    items: queue.Queue[tuple[_Item] | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def run() -> None:
        try:
            for item in source:
                if not _put(items, (item,), stopped):
                    return
            _put(items, None, stopped)
        except BaseException as error:  # whatever it is, the thread that takes items must see it
            _put(items, error, stopped)
        finally:
            source.close()

    thread = threading.Thread(target=run, name="rillnode-fetch", daemon=True)
    thread.start()
    try:
        while (got := items.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            yield got[0]
    finally:
        stopped.set()
        thread.join()


def _put(items: "queue.Queue[_Item]", item: _Item, stopped: threading.Event) -> bool:
    """Put, unless nobody takes items any more."""
    while not stopped.is_set():
        try:
            items.put(item, timeout=0.2)
        except queue.Full:
            continue
        return True
    return False
