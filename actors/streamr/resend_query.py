"""Reads clients' requests to resend."""

from rillnode.actors.streamr.requests import ResendQuery
from rillnode.actors.streamr.resend_answer import AnyResendRequest
from rillnode.codecs.streamr.control_messages import (
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
)


def resend_query(request: AnyResendRequest, principal: str, token: str | None) -> ResendQuery:
    """The query of a request, in any version's form.

    Args:
        request: the request.
        principal: who asks.
        token: of whose session, if any.
    """
    stream_id, partition = request.stream_id, request.partition
    match request:
        case ResendLastRequest():
            return ResendQuery(
                stream_id=stream_id,
                partition=partition,
                principal=principal,
                token=token,
                last=request.number_last,
            )
        case ResendFromRequest():
            return ResendQuery(
                stream_id=stream_id,
                partition=partition,
                principal=principal,
                token=token,
                from_ref=request.from_ref,
                publisher_id=request.publisher_id,
                chain_id=request.chain_id,
            )
        case ResendRangeRequest():
            return ResendQuery(
                stream_id=stream_id,
                partition=partition,
                principal=principal,
                token=token,
                from_ref=request.from_ref,
                to_ref=request.to_ref,
                publisher_id=request.publisher_id,
                chain_id=request.chain_id,
            )
        case _:
            return ResendQuery(
                stream_id=stream_id,
                partition=partition,
                principal=principal,
                token=token,
                last=request.resend_last,
                first_index=None if request.resend_last is not None else request.resend_from or 0,
                last_index=request.resend_to,
            )
