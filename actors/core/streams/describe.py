"""A stream's record and extents as clients are told of them."""

from collections.abc import Sequence
from typing import Final

from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.log import LogExtent, Retention, StreamRecord
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing import stream_admin
from rillnode.codecs.routing.stream import Status

_LIMIT_MAX: Final = 2**53
"""A limit that a number of seconds still tells from the next."""


def stream_info(record: StreamRecord, extents: Sequence[LogExtent]) -> native.StreamInfo:
    """Describe a stream; `extents` has one item for each partition."""
    retention = record.retention
    return native.StreamInfo(
        name=record.name,
        created_at=record.created_at,
        owner=record.owner,
        retain_milliseconds=_milliseconds(retention),
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


def description(record: StreamRecord, extents: Sequence[LogExtent]) -> stream_admin.Description:
    """The same for who administers a stream by Ockam's protocols."""
    retention = record.retention
    return stream_admin.Description(
        record.name,
        record.created_at,
        record.owner,
        stream_admin.Limits(_milliseconds(retention), retention.entries_max, retention.bytes_max),
        [
            stream_admin.PartitionExtent(
                partition, extent.first_index, extent.next_index, extent.data_bytes
            )
            for partition, extent in enumerate(extents)
        ],
    )


def told(
    request: native.OpenRequest | native.DescribeRequest | stream_admin.AdminRequest,
    record: StreamRecord,
    extents: Sequence[LogExtent],
) -> bytes:
    """The answer to a request that was done: how the stream is now."""
    request_id = request.request_id
    if isinstance(request, stream_admin.AdminRequest):
        stream = description(record, extents)
        response = stream_admin.AdminResponse(request_id, Status.OK, stream=stream)
        return stream_admin.encode_response(response)
    return native.encode(native.StreamResponse(request_id, stream_info(record, extents)))


def retention_of(limits: stream_admin.Limits) -> Retention:
    """The limits that an administrator asks for.

    Raises:
        RequestError: `stream.invalid`, one of them is 0 or over 2**53.
    """
    milliseconds = limits.milliseconds
    given = (milliseconds, limits.entries_max, limits.bytes_max)
    if any(limit is not None and not 0 < limit <= _LIMIT_MAX for limit in given):
        raise RequestError("stream.invalid", f"A limit is a number from 1 to {_LIMIT_MAX}")
    return Retention(
        seconds=None if milliseconds is None else milliseconds / 1000,
        entries_max=limits.entries_max,
        bytes_max=limits.bytes_max,
    )


def _milliseconds(retention: Retention) -> int | None:
    return None if retention.seconds is None else round(retention.seconds * 1000)
