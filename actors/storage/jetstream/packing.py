"""What batches of appends make: one frame."""

from collections.abc import Sequence
from typing import Final

from rillnode.actors.storage import Append
from rillnode.actors.storage.jetstream.frames import LogFrame, Stamp
from rillnode.actors.storage.jetstream.stamps import Batch
from rillnode.actors.storage.layout import Change, LogState, indexed_keys, record_key
from rillnode.codecs.entries import data_bytes, encode_block

_BLOCK_BYTES: Final = 64
_KEY_BYTES: Final = 32
"""What a block, and a key or record, counts for beside its bytes."""


def pack(batches: Sequence[Batch], old: LogState, token: bytes) -> LogFrame:
    """The frame of batches for a log, the results of whose appends are set."""
    next_index, position = old.next_index, old.next_position
    blocks: list[bytes] = []
    keys: list[bytes] = []
    records: list[Change] = []
    stamps: list[Stamp] = []
    for batch in batches:
        if batch.origin:
            stamps.append(Stamp(batch.origin, batch.number, len(blocks), len(batch.appends)))
        for operation in batch.appends:
            block = encode_block(
                count=operation.count,
                kind=operation.kind,
                received_at=operation.received_at,
                position=position,
                body=operation.body,
                flags=operation.flags,
            )
            blocks.append(block)
            keys += indexed_keys(operation.keys, next_index)
            records += [(record_key(key), value) for key, value in operation.records]
            operation.first_index = next_index
            next_index += operation.count
            position += data_bytes(operation.count, operation.body, operation.flags)
            operation.kept_bytes = position - old.first_position
    return LogFrame(token, old.next_index, blocks, keys, records, stamps)


def size_of_append(append: Append) -> int:
    """What an append counts for in its frame."""
    size = len(append.body) + _BLOCK_BYTES
    for key, _ in append.keys:
        size += len(key) + _KEY_BYTES
    for name, value in append.records:
        size += len(name) + len(value or b"") + _KEY_BYTES
    return size
