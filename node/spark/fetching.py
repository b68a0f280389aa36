"""Fetches ranges of entries from a node, as they lie there: in whole blocks."""

from collections.abc import Generator, Iterable
from typing import Final

from rillnode.codecs.entries import Block
from rillnode.codecs.errors import RequestError
from rillnode.node.spark.offsets import Range
from rillnode.node.spark.ranges import ClientOptions, ask

FETCH_BYTES_MAX: Final = 2_097_152


def fetch_ranges(
    options: ClientOptions, ranges: Iterable[Range]
) -> Generator[tuple[Range, list[Block]], None, None]:
    """Blocks of ranges, in order, each list with the part that it covers; gaps without blocks.

    The first block of a part may begin before it, the last may end behind it. What was trimmed
    since the ranges were planned comes as a part that is a gap.

    Raises:
        RequestError: `sink.range`, the node's answers leave a hole.
        TransportError: the node cannot be reached.
    """
    for item in ranges:
        if item.gap:
            yield item, []
            continue
        yield from _fetch_range(options, item)


def _fetch_range(
    options: ClientOptions, item: Range
) -> Generator[tuple[Range, list[Block]], None, None]:
    index = item.start
    while index < item.until:
        first, blocks = _read_blocks(options, item._replace(start=index))
        if first > index:
            lost = item._replace(start=index, until=min(first, item.until), gap=True)
            yield lost, []
            index = lost.until
            continue
        end = index
        for block in blocks:
            if not block.first_index <= end < block.next_index:
                raise _hole(item, end, f"sent a block that begins at {block.first_index}")
            end = block.next_index
        if end == index:
            raise _hole(item, end, "sent nothing")
        yield item._replace(start=index, until=min(end, item.until)), blocks
        index = end


def _read_blocks(options: ClientOptions, item: Range) -> tuple[int, list[Block]]:
    return ask(options, lambda client: client.read(item, FETCH_BYTES_MAX))


def _hole(item: Range, index: int, what: str) -> RequestError:
    return RequestError(
        "sink.range",
        f"asked for stream {item.stream!r} partition {item.partition} from index {index} to "
        f"{item.until}, the node {what}",
    )
