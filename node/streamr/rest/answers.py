"""Answers of the REST interface: JSON, and errors as clients know them.

Clients look at the status, and at the codes NOT_FOUND and VALIDATION_ERROR; after a 400 or a 401
they log in again and try once more.
"""

from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from rillnode.actors.streamr import requests
from rillnode.actors.streamr.answering import text_of
from rillnode.codecs.errors import CodecError, RillnodeError

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Problem(NamedTuple):
    """An error as it is told."""

    status: int
    code: str


BAD_REQUEST: Final = Problem(400, "BAD_PARAMETERS")
UNAVAILABLE: Final = Problem(503, "UNAVAILABLE")
FAILED: Final = Problem(500, "INTERNAL_ERROR")

_PROBLEMS: Final = {
    "actor.failed": FAILED,
    "session.api_key": Problem(401, "INVALID_API_KEY_ERROR"),
    "session.invalid": Problem(401, "INVALID_SESSION_TOKEN_ERROR"),
    "session.needed": Problem(401, "NOT_AUTHENTICATED"),
    "session.refused": Problem(401, "CHALLENGE_VERIFICATION_FAILED_ERROR"),
    "session.too_many": Problem(429, "TOO_MANY_REQUESTS"),
    "quota.bytes": Problem(403, "FORBIDDEN"),
    "quota.rate": Problem(429, "TOO_MANY_REQUESTS"),
    "quota.streams": Problem(403, "FORBIDDEN"),
    "rest.unknown": Problem(404, "NOT_FOUND"),
    "rest.broken": BAD_REQUEST,
    "rest.busy": UNAVAILABLE,
    "rest.query": BAD_REQUEST,
    "rest.too_large": Problem(413, "BODY_TOO_LARGE"),
    "rest.too_slow": Problem(408, "BODY_TOO_SLOW"),
    "store.elsewhere": Problem(421, "SERVED_ELSEWHERE"),
    "stream.invalid": Problem(422, "VALIDATION_ERROR"),
    "stream.unknown": Problem(404, "NOT_FOUND"),
    "streamr.exists": Problem(400, "DUPLICATE_NOT_ALLOWED"),
    "streamr.forbidden": Problem(403, "FORBIDDEN"),
    "streamr.metadata": Problem(422, "VALIDATION_ERROR"),
    "streamr.origin": Problem(403, "ORIGIN_NOT_ALLOWED"),
    "streamr.permissions": Problem(422, "VALIDATION_ERROR"),
    "streamr.stream_id": Problem(422, "VALIDATION_ERROR"),
    "streamr.user": Problem(422, "VALIDATION_ERROR"),
    requests.NOT_FOUND: Problem(404, "NOT_FOUND"),
    requests.PERMISSION_DENIED: Problem(403, "FORBIDDEN"),
    requests.AUTHENTICATION_FAILED: Problem(401, "NOT_AUTHENTICATED"),
    requests.FUTURE_TIMESTAMP: Problem(400, "FUTURE_TIMESTAMP"),
    requests.REQUEST_FAILED: Problem(400, "REQUEST_FAILED"),
}


def json_answer(value: object, status: int = 200) -> web.Response:
    """A value as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=HEADERS)


def empty_answer(status: int) -> web.Response:
    """An answer without a body."""
    return web.Response(status=status, headers=HEADERS)


def error_answer(error: RillnodeError) -> web.Response:
    """What went wrong, as `{"code", "message"}`; `error` is the message too, for older clients."""
    problem = problem_of(error)
    text = text_of(error)
    body = {"code": problem.code, "message": text, "error": text}
    answer = json_answer(body, problem.status)
    if problem.status in (429, 503):
        answer.headers["Retry-After"] = "1"
    return answer


def problem_of(error: RillnodeError) -> Problem:
    """How an error is told; what no client has caused is the node's own trouble."""
    if isinstance(error, CodecError):
        return BAD_REQUEST
    return _PROBLEMS.get(str(error.context.get("cause", error.code)), UNAVAILABLE)
