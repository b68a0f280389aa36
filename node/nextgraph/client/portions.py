"""Blocks in as many requests as it takes to put them."""

from collections.abc import Iterator, Sequence
from typing import Final

from rillnode.codecs.nextgraph.blocks import BLOCK, Block
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_BLOCKS_MAX, NEXTGRAPH_MESSAGE_BYTES_MAX

_PORTION_BYTES: Final = NEXTGRAPH_MESSAGE_BYTES_MAX // 2
"""Blocks of one request, unless one alone is larger: half a message, so that others get a turn."""


def portions(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Cut blocks into what one request may hold."""
    some: list[Block] = []
    size = 0
    for block in blocks:
        block_bytes = len(BLOCK.encode(block))
        if some and (size + block_bytes > _PORTION_BYTES or len(some) == NEXTGRAPH_BLOCKS_MAX):
            yield some
            some, size = [], 0
        some.append(block)
        size += block_bytes
    if some:
        yield some
