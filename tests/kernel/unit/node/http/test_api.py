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
from rillnode.node.http.answers import STATUSES, problem, refused

OWN = {**STATUSES, "own.code": 402}


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
        (RequestError("http.origin", "from elsewhere"), 403),
    ],
)
def test_every_error_has_a_status(error: RillnodeError, status: int) -> None:
    document = problem(error, OWN)
    assert (document["status"], document["code"]) == (status, error.code)
    assert document["text"]
    assert document["next"]
    answer = refused(error, OWN)
    assert answer.status == status
    assert answer.content_type == "application/problem+json"
    assert ("Retry-After" in answer.headers) is (status in (429, 503))


def test_when_to_come_again_is_told_in_whole_seconds() -> None:
    error = RequestError("quota.rate", "slower", retryable=True, retry_seconds=2.1)
    assert refused(error).headers["Retry-After"] == "3"


def test_a_request_that_is_not_read_whole_ends_its_connection() -> None:
    assert refused(RequestError("http.too_large", "less")).keep_alive is False
    assert refused(RequestError("http.accept", "else")).keep_alive is None


def test_statuses_are_those_of_errors() -> None:
    assert all(400 <= status < 600 for status in STATUSES.values())
    assert isinstance(refused(RequestError("own.code", "none")), web.Response)
