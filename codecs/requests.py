"""Requests of every payload protocol that a stream node answers, told apart by their names."""

from rillnode.codecs import native
from rillnode.codecs.ockam import stream


def decode_request(payload: bytes, *, speaks_native: bool) -> stream.Request | native.Request:
    """Decode a request; rillnode's own protocols only for an origin that may speak them.

    Raises:
        CodecError: `codec.protocol` for an unknown protocol, else what is malformed.
    """
    if speaks_native and native.is_native(payload):
        return native.decode_request(payload)
    return stream.decode_request(payload)
