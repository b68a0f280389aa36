"""Answers of the HTTP door: JSON, and errors alike whoever has found them."""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.node.cli.failures import step_of
from rillnode.node.http.answers import HEADERS, Refusal

SHOWN: Final = "Rillnode-Next, Retry-After, Allow"
"""Headers that pages of other origins may see."""

STATUSES: Final = {
    code: status
    for status, codes in {
        400: "entries.header_name entries.headers entries.key gateway.event gateway.position "
        "index.invalid input.format input.key stream.invalid",
        401: "gateway.key gateway.ticket",
        403: "gateway.right quota.bytes quota.streams stream.signed_only",
        404: "address.unknown stream.partition stream.unknown",
        410: "stream.removed",
        413: "entries.size entries.many",
        421: "store.elsewhere",
        429: "gateway.busy quota.rate",
        503: "node.draining",
        504: "request.timeout",
    }.items()
    for code in codes.split()
}
"""The HTTP status of codes; of other refusals it is 400, of what the node cannot do now 503."""

_UNREAD: Final = frozenset({"http.broken", "http.slow", "http.too_large"})
"""After these nobody knows where the next request begins."""


def problem(error: RillnodeError | Refusal) -> dict[str, Any]:
    """An error as a document: status, code, text, and what to do about it."""
    found: dict[str, Any] = {"code": error.code, "text": str(error)}
    if isinstance(error, Refusal):
        found["status"] = error.status
    else:
        found["text"] = error.text
        theirs = isinstance(error, CodecError | RequestError) and not error.retryable
        found["status"] = STATUSES.get(error.code, 400 if theirs else 503)
        found.update((key, value) for key, value in error.context.items() if key == "indexes")
    return {**found, "next": step_of(error.code) or "try again"}


def answer(document: object, status: int = 200, kind: str = "json", **more: str) -> web.Response:
    """A document as JSON."""
    body, media = msgspec.json.encode(document), f"application/{kind}"
    return web.Response(body=body, status=status, content_type=media, headers={**HEADERS, **more})


def refused(error: RillnodeError | Refusal, headers: Mapping[str, str]) -> web.Response:
    """Why a request was not done."""
    document = problem(error)
    found = answer(document, document["status"], "problem+json", **headers)
    if found.status == 401:
        found.headers["WWW-Authenticate"] = "Bearer"
    if found.status in (429, 503):
        seconds = 0.0 if isinstance(error, Refusal) else error.retry_seconds
        found.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    if error.code in _UNREAD:
        found.force_close()
    return found
