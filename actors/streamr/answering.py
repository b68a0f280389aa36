"""Answers requests to a relay: each once, whoever gives the answer.

A relay that fails, has too much to do or ends leaves requests: they are answered all the same.
"""

from collections.abc import Iterable
from typing import Final

from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.streamr.requests import (
    REQUEST_FAILED,
    Publication,
    Publish,
    Published,
    Revoked,
    Subscribe,
    SubscribeFailed,
    Unsubscribe,
)
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.streamr.control_messages import SubscribeResponse, UnsubscribeResponse

_TEXTS: Final = {
    "actor.failed": "The node failed at this request: its log says why",
    "actor.busy": "Too much waits here: try again",
    "actor.stopped": "This was ended before it was done: try again",
}


def text_of(error: RillnodeError) -> str:
    """What clients are told of an error: of the node's own failures never what failed inside."""
    return _TEXTS.get(error.code, error.text)


def refusal(error: RillnodeError, code: str = REQUEST_FAILED) -> RequestError:
    """An error of the node as clients are told of it; `cause` in its context is its own code."""
    again = error.retryable or error.code in _TEXTS
    return RequestError(code, text_of(error), retryable=again, cause=error.code)


def answer_failures(system: AsyncioSystemBase) -> None:
    """Have requests answered that no relay does."""

    def publish(request: Publish, error: RillnodeError) -> None:
        refuse_all(system, request, refusal(error))

    def subscribe(request: Subscribe, error: RillnodeError) -> None:
        not_subscribed(system, request, refusal(error))

    def unsubscribe(request: Unsubscribe, _: RillnodeError) -> None:
        request.outlet.leave(request.stream_id, request.partition)
        unsubscribed(request)

    def revoke(request: Revoked, _: RillnodeError) -> None:
        request.outlet.leave(request.stream_id, request.partition)
        revoked(request)

    system.outcomes[Publish] = publish
    system.outcomes[Subscribe] = subscribe
    system.outcomes[Unsubscribe] = unsubscribe
    system.outcomes[Revoked] = revoke


def published(
    system: AsyncioSystemBase, request: Publish, refused: Iterable[tuple[Publication, RequestError]]
) -> None:
    """Tell who has asked what was not published, and that all else is durable."""
    if not request.answered and request.asker is not None:
        request.answered = True
        system.post(request.asker, Published(request, tuple(refused)))


def refuse_all(system: AsyncioSystemBase, request: Publish, error: RequestError) -> None:
    """Tell who has asked that nothing was published."""
    published(system, request, [(publication, error) for publication in request.publications])


def subscribed(request: Subscribe) -> None:
    """Tell a client that it is subscribed: before anything else that it gets of the stream."""
    if not request.answered:
        request.answered = True
        request.outlet.send(
            SubscribeResponse(
                stream_id=request.stream_id,
                partition=request.partition,
                request_id=request.request_id,
            )
        )


def not_subscribed(system: AsyncioSystemBase, request: Subscribe, error: RequestError) -> None:
    """Tell a client that it is not subscribed, and its connection."""
    if not request.answered:
        request.answered = True
        request.outlet.refuse(error, request.request_id)
        if request.asker is not None:
            system.post(request.asker, SubscribeFailed(request))


def unsubscribed(request: Unsubscribe) -> None:
    """Tell a client that nothing follows, where it waits for that."""
    if request.answered or request.silent:
        return
    request.answered = True
    request.outlet.send(
        UnsubscribeResponse(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id,
        )
    )


def revoked(request: Revoked) -> None:
    """Tell a client that it may have no more.

    One that would disconnect at an error, and so lose what else it follows, is told that it is
    unsubscribed.
    """
    if request.answered:
        return
    request.answered = True
    if request.outlet.survives_errors:
        request.outlet.refuse(request.error, request.request_id)
    else:
        request.outlet.send(
            UnsubscribeResponse(
                stream_id=request.stream_id,
                partition=request.partition,
                request_id=request.request_id,
            )
        )
