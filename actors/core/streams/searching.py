"""Picks the entries that meet a condition out of blocks that were read, a bounded number at a time.

What matches goes out as blocks, too: each run of neighbours is one, with the times and kinds that
they had. Whoever goes on begins where this has got to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.actors.core.delivery import Origin
from rillnode.actors.log import LogStore, Read
from rillnode.codecs.entries import (
    Block,
    Entry,
    decode_header,
    encode_block,
    entries_of,
    flags_of,
    pack_body,
)
from rillnode.codecs.where import Where

SEARCH_ENTRIES: Final = 1_000
SEARCH_BYTES: Final = 131_072
"""Entries and bytes of data that are looked at in one turn, but one entry at least. Own choice: a
millisecond or two."""

_STEPS: Final = 4
"""What a condition takes of an entry, at that many entries: of one that takes more, fewer are
looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one look.

    Attributes:
        blocks: the entries that match.
        reached: the index behind the last entry that was looked at.
    """

    blocks: list[Block]
    reached: int


def search(
    blocks: Sequence[Block], where: Where, first: int, until: int, entries_max: int
) -> Found:
    """Look at entries from `first` to before `until`, until `entries_max` match or it is much."""
    runs: list[tuple[Block, list[Entry]]] = []
    looks = max(1, SEARCH_ENTRIES * _STEPS // max(_STEPS, where.steps))
    looked = size = matched = 0
    for block in blocks:
        end = min(until, first + looks - looked)
        for entry in entries_of(block, first=first, until=end):
            size += len(entry.data)
            if (looked and size > SEARCH_BYTES) or matched == entries_max:
                return Found(_packed(runs), first)
            looked += 1
            first = entry.index + 1
            if where.matches(entry):
                matched += 1
                if runs and runs[-1][0] is block and runs[-1][1][-1].index == entry.index - 1:
                    runs[-1][1].append(entry)
                else:
                    runs.append((block, [entry]))
    return Found(_packed(runs), first)


def only(store: LogStore, origin: Origin, operation: Read, size: int) -> None:
    """Have a link's room count `size` bytes in place of all that was read for it."""
    room = origin.room(store)
    if room is not None:
        room.keep(operation, 0)
        room.post(size)


def _packed(runs: Sequence[tuple[Block, list[Entry]]]) -> list[Block]:
    return [_block(block, entries) for block, entries in runs]


def _block(block: Block, entries: list[Entry]) -> Block:
    """The block that some neighbours of a block make; its position is that of the whole one."""
    if len(entries) == block.count:
        return block
    header = decode_header(block.value)
    metas = [entry.meta for entry in entries]
    keys = [entry.pushed_key for entry in entries]
    headers = [entry.encoded_headers for entry in entries]
    columns = (
        metas if any(metas) else None,
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
    )
    value = encode_block(
        count=len(entries),
        kind=header.kind,
        received_at=header.received_at,
        position=header.position,
        body=pack_body([entry.data for entry in entries], *columns),
        flags=flags_of(*columns),
    )
    return Block(entries[0].index, value)
