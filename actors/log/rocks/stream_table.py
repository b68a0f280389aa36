"""The rules of the table of streams, which every LogStore keeps in its own way."""

import msgspec

from rillnode.actors.log import StreamRecord
from rillnode.codecs.errors import StoreError


def settled_record(
    record: StreamRecord, known: StreamRecord | None, next_id: int
) -> tuple[StreamRecord, bool]:
    """What a PutStream stores, and whether it is a new stream, which then has `next_id`.

    Args:
        record: what is to be stored; id 0 asks for a new stream.
        known: the stream of this name, where there is one.
        next_id: never given before.

    Raises:
        StoreError: `store.exists`, `store.unknown`.
    """
    if not record.id:
        if known is not None:
            raise StoreError(
                "store.exists", f"a stream {record.name!r} exists already", retryable=False
            )
        return msgspec.structs.replace(record, id=next_id), True
    if known is None or known.id != record.id:
        raise StoreError(
            "store.unknown",
            f"no stream has the name {record.name!r} and the id {record.id}",
            retryable=False,
        )
    return record, False


def unknown_stream(name: str) -> StoreError:
    """The answer where no stream has this name."""
    return StoreError("store.unknown", f"no stream has the name {name!r}", retryable=False)
