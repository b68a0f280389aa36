"""Reads clients' requests to resend."""

from functools import partial

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
    make = partial(
        ResendQuery,
        stream_id=request.stream_id,
        partition=request.partition,
        principal=principal,
        token=token,
    )
    match request:
        case ResendLastRequest():
            return make(last=request.number_last)
        case ResendFromRequest():
            return make(
                from_ref=request.from_ref,
                publisher_id=request.publisher_id,
                chain_id=request.chain_id,
            )
        case ResendRangeRequest():
            return make(
                from_ref=request.from_ref,
                to_ref=request.to_ref,
                publisher_id=request.publisher_id,
                chain_id=request.chain_id,
            )
        case _:
            return make(
                last=request.resend_last,
                first_index=None if request.resend_last is not None else request.resend_from or 0,
                last_index=request.resend_to,
            )
