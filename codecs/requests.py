"""Requests of every payload protocol that a stream node answers, told apart by their names."""

from rillnode.codecs import native
from rillnode.codecs.routing import stream, stream_admin


def decode_request(payload: bytes, *, speaks_native: bool) -> stream.Request | native.Request:
    """Decode a request; rillnode's own protocols only for an origin that may speak them.

    Raises:
        CodecError: `codec.protocol` for an unknown protocol, else what is malformed.
    """
    if speaks_native and native.is_native(payload):
        return native.decode_request(payload)
    return stream.decode_request(payload)


def decode_service_request(
    payload: bytes, *, speaks_native: bool
) -> stream.Request | native.Request | stream_admin.AdminRequest:
    """Decode a request to the stream service, which administers streams too; raises as above."""
    if stream_admin.is_admin(payload):
        return stream_admin.decode_request(payload)
    return decode_request(payload, speaks_native=speaks_native)
