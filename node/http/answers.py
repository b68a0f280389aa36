"""What all answers of the `http` listener have in common."""

from typing import Any, Final

import msgspec
from aiohttp import web

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refusal(Exception):
    """A request that is not done: status and what to do about it, for people."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


def json_answer(document: Any, status: int = 200) -> web.Response:
    """A document as JSON."""
    return web.Response(
        body=msgspec.json.encode(document),
        status=status,
        content_type="application/json",
        headers=HEADERS,
    )


def refused(refusal: Refusal) -> web.Response:
    """Why a request was not done."""
    answer = json_answer({"error": refusal.code, "text": str(refusal)}, refusal.status)
    if refusal.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer
