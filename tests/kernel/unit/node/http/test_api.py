"""The HTTP status that an error has, and what it tells."""

import pytest
from aiohttp import web

from rillnode.codecs.errors import (
    ActorError,
    CodecError,
    RequestError,
    RillnodeError,
    StoreError,
    TransportError,
)
from rillnode.node.http.answers import Refusal
from rillnode.node.http.api import STATUSES, Api

API = Api({}, origins=(), shown="", statuses={"own.code": 402}, listed="")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("stream.unknown", "none"), 404),
        (RequestError("own.code", "pay"), 402),
        (RequestError("stream.new", "who asks is wrong"), 400),
        (RequestError("node.new", "later", retryable=True), 503),
        (CodecError("codec.new", "bad bytes"), 400),
        (RillnodeError("input.format", "bad line"), 400),
        (StoreError("store.full", "no room"), 503),
        (StoreError("store.elsewhere", "ask there"), 421),
        (ActorError("actor.busy", "too much"), 503),
        (TransportError("link.closed", "gone"), 503),
        (Refusal(418, "http.teapot", "short and stout"), 418),
    ],
)
def test_every_error_has_a_status(error: RillnodeError | Refusal, status: int) -> None:
    document = API.problem(error)
    assert (document["status"], document["code"]) == (status, error.code)
    assert document["text"]
    assert document["next"]
    answer = API.refused(error, {})
    assert answer.status == status
    assert answer.content_type == "application/problem+json"
    assert ("Retry-After" in answer.headers) is (status in (429, 503))


def test_when_to_come_again_is_told_in_whole_seconds() -> None:
    error = RequestError("quota.rate", "slower", retryable=True, retry_seconds=2.1)
    assert API.refused(error, {}).headers["Retry-After"] == "3"


def test_a_request_that_is_not_read_whole_ends_its_connection() -> None:
    assert API.refused(Refusal(413, "http.too_large", "less"), {}).keep_alive is False
    assert API.refused(Refusal(406, "http.accept", "else"), {}).keep_alive is None


def test_statuses_are_those_of_errors() -> None:
    assert all(400 <= status < 600 for status in STATUSES.values())
    assert isinstance(API.refused(RequestError("own.code", "none"), {}), web.Response)
