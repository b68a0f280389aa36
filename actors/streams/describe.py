"""A stream's record and extents as clients are told of them."""

from collections.abc import Sequence

from rillnode.actors.storage import LogExtent, StreamRecord
from rillnode.actors.streams.context import stream_address
from rillnode.codecs import native


def stream_info(record: StreamRecord, extents: Sequence[LogExtent]) -> native.StreamInfo:
    """Describe a stream; `extents` has one item for each partition."""
    retention = record.retention
    seconds = retention.seconds
    return native.StreamInfo(
        name=record.name,
        created_at=record.created_at,
        owner=record.owner,
        retain_milliseconds=None if seconds is None else int(seconds * 1000),
        retain_entries_max=retention.entries_max,
        retain_bytes_max=retention.bytes_max,
        partitions=[
            native.PartitionInfo(
                partition,
                stream_address(record.name, partition),
                extent.first_index,
                extent.next_index,
                extent.data_bytes,
            )
            for partition, extent in enumerate(extents)
        ],
    )
