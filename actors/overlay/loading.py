"""Loads what a neighbours actor must know first: what was taken, what was announced."""

from dataclasses import dataclass
from typing import Final

from rillnode.actors.log import FindStream, ListRecords, Read, StreamRecord, log_id
from rillnode.actors.log.waiting import read
from rillnode.actors.overlay.announcing import LogReader
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.keeping import (
    read_chain_record,
    read_cursor,
    records_prefix,
)
from rillnode.actors.overlay.rendering import CHAIN
from rillnode.codecs.entries import decode_header

PAGE_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything is known.

    Attributes:
        next_index: the end of the log.
        last_received_at: when its last entry came; None where there is none.
    """

    next_index: int
    last_received_at: int | None


async def load(
    context: OverlayContext,
    record: StreamRecord,
    partition: int,
    intake: Intake,
    reader: LogReader,
) -> Loaded:
    """Take up what is kept, page after page, then follow the log and look at its end.

    Raises:
        StoreError: the store cannot be read; may be repeated.
    """
    store, log = context.streams.store, log_id(record.id, partition)
    own = (context.settings.identity, CHAIN)
    after = ""
    while True:
        page = ListRecords(prefix=records_prefix(log), after=after, limit=PAGE_RECORDS)
        await read(store, page)
        for name, value in page.records:
            if not name.endswith("~"):
                intake.restore(*read_chain_record(log, name, value))
                continue
            reader.next, reader.previous = read_cursor(value)
            if reader.previous is not None:
                intake.restore(own, (record.created_at, reader.previous))
        if len(page.records) < page.limit:
            break
        after, _ = page.records[-1]
    reader.follow()
    found = FindStream(name=record.name)
    await read(store, found)
    if found.record is None or found.record.id != record.id:
        return Loaded(0, None)
    next_index = found.extents[partition].next_index
    if not next_index:
        return Loaded(0, None)
    last = Read(log=log, index=next_index - 1, entries_max=1, bytes_max=1)
    await read(store, last)
    blocks = last.blocks
    return Loaded(next_index, decode_header(blocks[-1].value).received_at if blocks else None)
