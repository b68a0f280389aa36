"""Calls of a Streamr server's REST interface.

Source: streamr-client 5.2.1 and core-api, /api/v1.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from yarl import URL

from rillnode.codecs.errors import RequestError, TransportError
from rillnode.codecs.limits import FRAME_BYTES_MAX

REQUEST_SECONDS: Final = 30.0

Token = Callable[[bool], Awaitable[str | None]]
"""Gives the session token; True has a new one made first. None: there is none."""

Answer = TypeVar("Answer")

_UNAUTHORIZED: Final = 401
_RETRYABLE: Final = (429, 502, 503, 504)


class _Problem(msgspec.Struct):
    """What an error's body says, if it is JSON."""

    code: str | None = None
    message: str | None = None


class Rest:
    """Calls one server; answers are JSON, of at most FRAME_BYTES_MAX bytes.

    Args:
        http: makes the connections.
        base: address without a slash at its end.
        token: of the session that calls belong to.
    """

    def __init__(self, http: aiohttp.ClientSession, base: str, token: Token) -> None:
        self._http = http
        self._base = base
        self._token = token

    async def get(self, path: str, *, query: dict[str, str] | None = None) -> Any:
        """Ask for a document.

        Args:
            path: below the base, its parts quoted.
            query: the parameters after it.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: it is not reached, or gives no sensible answer.
        """
        return await self._call("GET", path, query=query)

    async def post(self, path: str, body: object) -> Any:
        """Hand in a document; raises as `get`."""
        return await self._call("POST", path, body=body)

    async def delete(self, path: str) -> None:
        """Have something removed; raises as `get`."""
        await self._call("DELETE", path)

    async def _call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: object = None
    ) -> Any:
        url = self._base + path
        token = await self._token(False)
        try:
            return await call(self._http, method, url, query=query, body=body, token=token)
        except RequestError as error:
            # Its time may be over, or the server has forgotten it.
            if token is None or error.context.get("status") != _UNAUTHORIZED:
                raise
        token = await self._token(True)
        return await call(self._http, method, url, query=query, body=body, token=token)


def check_open(http: aiohttp.ClientSession) -> None:
    """See that a client is not closed, of which its session of HTTP has no error of ours.

    Raises:
        TransportError: `client.closed`.
    """
    if http.closed:
        raise TransportError("client.closed", "the client is closed")


async def call(
    http: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    query: dict[str, str] | None = None,
    body: object = None,
    token: str | None = None,
) -> Any:
    """Make one call; arguments and errors as of `Rest`."""
    check_open(http)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    data = None
    if body is not None:
        data = msgspec.json.encode(body)
        headers["Content-Type"] = "application/json"
    try:
        async with http.request(
            method,
            URL(url, encoded=True),
            params=query,
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(REQUEST_SECONDS),
            allow_redirects=False,
        ) as response:
            text = await _body(response)
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise TransportError("rest.unreachable", f"{method} {url}: {_cause(error)}") from None
    if status // 100 == 2:
        return _document(text)
    problem = _problem(text)
    raise RequestError(
        problem.code or "rest.status",
        problem.message or f"the server answers with status {status}",
        retryable=status in _RETRYABLE,
        status=status,
        url=url,
    )


def convert(found: object, kind: type[Answer]) -> Answer:
    """Take an answer as what it should be.

    Raises:
        RequestError: `rest.answer`, it is something else.
    """
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise RequestError("rest.answer", f"the server gives another answer: {error}") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > FRAME_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"an answer of more than {FRAME_BYTES_MAX} bytes")
    return bytes(found)


def _document(text: bytes) -> Any:
    """What a body holds; None where that is no JSON: some answers are empty or plain text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _problem(text: bytes) -> _Problem:
    try:
        return msgspec.json.decode(text, type=_Problem)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Problem()


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {REQUEST_SECONDS:g} s"
    return str(error) or type(error).__name__
