"""The responses to requests that subscribe and unsubscribe."""

from rillnode.actors.streamr.requests import Subscribe, Unsubscribe
from rillnode.codecs.streamr.control_messages import SubscribeResponse, UnsubscribeResponse


def subscribed(request: Subscribe) -> None:
    """Tell a client that it is subscribed: before anything else that it gets of the stream."""
    request.outlet.send(
        SubscribeResponse(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id,
        )
    )


def unsubscribed(request: Unsubscribe) -> None:
    """Tell a client that nothing follows, where it waits for that."""
    if request.silent:
        return
    request.outlet.send(
        UnsubscribeResponse(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id,
        )
    )
