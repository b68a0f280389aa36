"""Errors as clients know them."""

import json

import pytest
from aiohttp import web

from rillnode.actors.streamr import requests
from rillnode.actors.streamr.answering import refusal
from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError, StoreError
from rillnode.node.streamr.rest.answers import error_answer


def told(answer: web.Response) -> tuple[int, str]:
    body = answer.body
    assert isinstance(body, bytes)
    found = json.loads(body)
    assert found["message"] == found["error"] == "text"
    return answer.status, found["code"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestError("stream.unknown", "text"), 404, "NOT_FOUND"),
        (RequestError("stream.invalid", "text"), 422, "VALIDATION_ERROR"),
        (RequestError("session.invalid", "text"), 401, "INVALID_SESSION_TOKEN_ERROR"),
        (RequestError("session.refused", "text"), 401, "CHALLENGE_VERIFICATION_FAILED_ERROR"),
        (RequestError("streamr.forbidden", "text"), 403, "FORBIDDEN"),
        (RequestError(requests.NOT_FOUND, "text"), 404, "NOT_FOUND"),
        (RequestError(requests.PERMISSION_DENIED, "text"), 403, "FORBIDDEN"),
        (RequestError(requests.FUTURE_TIMESTAMP, "text"), 400, "FUTURE_TIMESTAMP"),
        (CodecError("codec.json", "text"), 400, "BAD_PARAMETERS"),
        (StoreError("store.full", "text"), 503, "UNAVAILABLE"),
        (ActorError("message.timeout", "text"), 503, "UNAVAILABLE"),
        (refusal(StoreError("store.full", "text")), 503, "UNAVAILABLE"),
        (refusal(RequestError("quota.rate", "text")), 429, "TOO_MANY_REQUESTS"),
        (RequestError(requests.RESEND_FAILED, "text", retryable=True), 503, "UNAVAILABLE"),
    ],
)
def test_an_error_has_a_status_and_a_code(error: RillnodeError, status: int, code: str) -> None:
    assert told(error_answer(error)) == (status, code)


@pytest.mark.parametrize(
    ("code", "status", "told_code"),
    [
        ("actor.failed", 500, "INTERNAL_ERROR"),
        ("actor.busy", 503, "UNAVAILABLE"),
        ("actor.stopped", 503, "UNAVAILABLE"),
    ],
)
def test_a_failing_node_says_so_and_nothing_of_what_has_failed(
    code: str, status: int, told_code: str
) -> None:
    error = ActorError(code, "KeyError: 'a secret'")
    for one in (error, refusal(error)):
        answer = error_answer(one)
        assert isinstance(answer.body, bytes)
        body = json.loads(answer.body)
        assert (answer.status, body["code"]) == (status, told_code)
        assert "secret" not in answer.body.decode()
        assert ("Retry-After" in answer.headers) is (status == 503)


def test_who_is_told_to_wait_is_told_how_long() -> None:
    for code in ("session.too_many", "quota.rate", "rest.busy", "store.full"):
        answer = error_answer(RequestError(code, "text"))
        assert answer.headers["Retry-After"] == "1"
    assert "Retry-After" not in error_answer(RequestError("stream.unknown", "text")).headers
