"""Lists everything that has a route, page by page, as its desk tells administrators."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.native import ROUTES_MAX
from rillnode.node.client.client import Client
from rillnode.node.client.lookup import page
from rillnode.node.http.answers import Refusal

_SECONDS: Final = 10.0

_CURSOR_CHARS_MAX: Final = 2 * 2_049


class Routes:
    """The routes of one node."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._looking = asyncio.Lock()

    async def document(self, request: web.Request) -> dict[str, Any]:
        """The page that a request asks for: `pattern`, `kind`, and `after` of the page before.

        Raises:
            Refusal: it asks for none that can be; too much is asked at once.
        """
        if self._looking.locked():
            raise Refusal(429, "route.busy", "Another page of routes is being made")
        query = request.query
        async with self._looking:
            try:
                rows, after = await page(
                    self._client().messages, (), query.get("pattern", "*"), query.get("kind", ""),
                    _cursor(query.get("after", "")), _SECONDS,
                )  # fmt: skip
            except RequestError as error:
                raise Refusal(400, error.code, error.text) from None
            except RillnodeError as error:
                raise Refusal(503, error.code, error.text) from None
        return {
            "routes": [msgspec.to_builtins(one) for one in rows],
            "next_after": after.hex() or None,
            "listed_max": ROUTES_MAX,
        }


def _cursor(text: str) -> bytes:
    try:
        if len(text) <= _CURSOR_CHARS_MAX:
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise Refusal(400, "http.after", "`after` is `next_after` of the page before")
