"""Refusals, in the words that the asker understands."""

from typing import Final

from rillnode.actors.core.refusals import quoted
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.requests import decode_service_request
from rillnode.codecs.routing import stream_admin
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    BinaryRequest,
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    PullRequest,
    PushConfirm,
    PushRequest,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    encode_response,
    error_tag,
    response_tag,
)

INVALID_REQUEST: Final = "Invalid request"
"""The one reason that released Ockam nodes give."""

_ERROR_TAGS: Final = frozenset({"error", "error:response"})


def unknown_stream(name: str) -> RequestError:
    """Says to who may know of a stream that there is none."""
    text = f"There is no stream {quoted(name)}: see `rillnode stream ls`"
    return RequestError("stream.unknown", text)


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


def is_error(cause: CodecError) -> bool:
    """Whether what could not be read as a request is an `error`, which is never answered.

    Two nodes that answer each other's errors would never end.
    """
    return cause.context.get("tag") in _ERROR_TAGS


def failed(request_id: int, error: RillnodeError) -> bytes:
    """The Failure that answers a native request."""
    return native.encode(native.Failure.of(request_id, error))


def refused(request: object, error: RillnodeError) -> bytes:
    """Why a request to the stream service was not done, as its protocol can say it."""
    if isinstance(request, stream_admin.AdminRequest):
        response = stream_admin.AdminResponse(request.request_id, Status.ERROR, error.code)
        return stream_admin.encode_response(response)
    request_id = getattr(request, "request_id", None)
    if request_id is not None:
        return failed(request_id, error)
    # No more than released nodes tell, but for where to ask instead.
    elsewhere = error.code == "store.elsewhere"
    return invalid_request(request, error.text) if elsewhere else invalid_request(request)


def not_done(payload: bytes, speaks_native: bool, error: RillnodeError) -> bytes | None:
    """Why a stream or one of its services has not handled a payload, as its protocol can say it.

    None: it has no words for that. Saving an index has no answer in Ockam's protocols, and one to
    who asks for a publisher would be taken for the publisher's.
    """
    try:
        request = decode_service_request(payload, speaks_native=speaks_native)
    except CodecError as cause:
        return None if is_error(cause) else invalid_request(cause)
    match request:
        case PushRequest():
            tag = response_tag(request.tag)
            return encode_response(PushConfirm(request.request_id, Status.ERROR, 0, tag))
        case (
            SaveIndexRequest()
            | SavePartitionIndexRequest()
            | BidirectionalRequest()
            | BidirectionalPublisherRequest()
        ):
            return native.failure_for(payload, error) if speaks_native else None
        case (
            CreateRequest()
            | CreatePartitionedRequest()
            | PullRequest()
            | GetIndexRequest()
            | GetPartitionIndexRequest()
            | BinaryRequest()
        ):
            return invalid_request(request, error.text)
        case _:  # rillnode's own, and stream_admin
            return refused(request, error)


def removal_done(request: native.RemoveRequest | stream_admin.AdminRequest) -> bytes:
    """The stream is no more."""
    if isinstance(request, stream_admin.AdminRequest):
        response = stream_admin.AdminResponse(request.request_id, Status.OK)
        return stream_admin.encode_response(response)
    return native.encode(native.DoneResponse(request.request_id))


def creation_done(
    request: CreateRequest | CreatePartitionedRequest, name: str, partition: int
) -> bytes:
    """One of the stream's partitions is there: the INIT that its address is told by."""
    tag = response_tag(request.tag)
    if isinstance(request, CreateRequest):
        return encode_response(CreateResponse(name, tag))
    return encode_response(CreatePartitionedResponse(name, partition, tag))
