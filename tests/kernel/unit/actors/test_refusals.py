"""Tests the refusals of unhandled requests, each in its own protocol."""

from typing import Any

import pytest

from core_support import Core, Peer, Request, decode as decode_any, encode, with_core
from rillnode.actors.core.delivery import Delivery
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreatePartitionedRequest,
    CreateRequest,
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
)
from rillnode.codecs.routing.stream_admin import AdminRequest, AdminResponse, Describe

BUSY = ActorError("actor.busy", "later", retry_seconds=1.5)
STREAM = "ST_S_0_s"

ANSWERED: list[tuple[str, Request, Any]] = [
    (STREAM, PushRequest(7, b"x"), PushConfirm(7, Status.ERROR, 0)),
    (
        STREAM,
        PushRequest(7, b"x", "stream_push:request"),
        PushConfirm(7, Status.ERROR, 0, "stream_push:response"),
    ),
    (STREAM, PullRequest(7, 0, 1), ErrorResponse("later")),
    (
        STREAM,
        PullRequest(7, 0, 1, "stream_pull:request"),
        ErrorResponse("later", "error:response"),
    ),
    ("stream", CreateRequest("s"), ErrorResponse("later")),
    ("stream_service", CreatePartitionedRequest("s", 2), ErrorResponse("later")),
    ("stream_kafka_index", GetIndexRequest("c", "s"), ErrorResponse("later")),
    ("stream_index", GetPartitionIndexRequest("c", "s", 1), ErrorResponse("later")),
    ("stream", AdminRequest(7, Describe("s")), AdminResponse(7, Status.ERROR, "actor.busy")),
]
UNANSWERED: list[tuple[str, Request]] = [
    ("stream_index", SaveIndexRequest("c", "s", 1)),
    ("stream_index", SavePartitionIndexRequest("c", "s", 0, 1)),
    ("stream_subscribe", BidirectionalRequest("s", "c")),
    ("stream_subscribe", BidirectionalPublisherRequest("s", "t", "c")),
]


async def told(peer: Peer, onward: str, payload: bytes) -> list[Any]:
    """What comes back of a payload that its worker has not handled."""
    await peer.core.settle()
    message = WireMessage((local(onward),), peer.back, payload)
    peer.core.router.refuse("busy", Delivery(peer.origin, [message]), BUSY)
    await peer.core.settle()
    answers = [decode_any(answer.payload) for answer in peer.answers]
    peer.answers.clear()
    return answers


@pytest.mark.parametrize("native_too", [False, True])
@pytest.mark.parametrize(("onward", "request_", "answer"), ANSWERED)
def test_ockam_s_requests_are_answered_in_their_own_words(
    onward: str, request_: Request, answer: object, native_too: bool
) -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=native_too)
        assert await told(peer, onward, encode(request_)) == [answer]
        assert core.router.undelivered == {"busy": 1}

    with_core(test)


@pytest.mark.parametrize(("onward", "request_"), UNANSWERED)
def test_what_has_no_answer_is_refused_only_to_who_understands_a_failure(
    onward: str, request_: Request
) -> None:
    async def test(core: Core) -> None:
        assert await told(core.peer(native_too=False), onward, encode(request_)) == []
        (failure,) = await told(core.peer(), onward, encode(request_))
        assert failure == native.Failure(0, "actor.busy", "later", True, 1_500)

    with_core(test)


def test_native_requests_get_a_failure_that_says_when_to_ask_again() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        for onward in (STREAM, "stream", "stream_index", "node", "backup"):
            (failure,) = await told(peer, onward, native.encode(native.StatusRequest(9)))
            assert failure == native.Failure(9, "actor.busy", "later", True, 1_500)

    with_core(test)


def test_other_workers_messages_are_refused_only_to_who_understands_a_failure() -> None:
    async def test(core: Core) -> None:
        push = encode(PushRequest(7, b"x"))
        for onward in ("echo", "peer/core", "TCP_H_0123456789abcdef"):
            assert await told(core.peer(native_too=False), onward, push) == []
            (failure,) = await told(core.peer(), onward, push)
            assert failure == native.Failure(0, "actor.busy", "later", True, 1_500)

    with_core(test)


@pytest.mark.parametrize(
    "payload",
    [encode_response(ErrorResponse("no")), encode_response(ErrorResponse("no", "error:response"))],
)
def test_an_error_is_never_answered(payload: bytes) -> None:
    async def test(core: Core) -> None:
        for native_too in (False, True):
            assert await told(core.peer(native_too=native_too), STREAM, payload) == []

    with_core(test)


def test_what_awaits_no_answer_gets_none() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        messages = [
            WireMessage((local(STREAM),), (), encode(PushRequest(7, b"x"))),
            WireMessage((), peer.back, encode(PushRequest(8, b"x"))),
        ]
        core.router.refuse("busy", Delivery(peer.origin, messages), BUSY)
        await core.settle()
        assert peer.answers == []

    with_core(test)
