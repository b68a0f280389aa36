"""Refusals, in the words that the asker understands."""

from typing import Final

from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.ockam.stream import ErrorResponse, encode_response, error_tag

INVALID_REQUEST: Final = "Invalid request"
"""The one reason that released Ockam nodes give."""


def invalid_request(cause: object, reason: str = INVALID_REQUEST) -> bytes:
    """The `error` of Ockam's protocols, spelt as the request was; a native request's Failure.

    Args:
        cause: the decoded request, or the CodecError that it gave instead.
        reason: for people.
    """
    request_id = getattr(cause, "request_id", None)
    tag = getattr(cause, "tag", None)
    if tag is None and request_id is not None:
        return native.encode(native.Failure(request_id, "request.invalid", reason))
    if isinstance(cause, CodecError):
        tag = cause.context.get("tag")
    return encode_response(ErrorResponse(reason, error_tag(str(tag or ""))))


def failed(request_id: int, error: RillnodeError) -> bytes:
    """The Failure that answers a native request."""
    failure = native.Failure(request_id, error.code, error.text, error.retryable)
    return native.encode(failure)
