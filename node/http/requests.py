"""Reads requests to listeners that speak HTTP: paths, queries, media types, bodies, origins."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from rillnode.codecs.errors import RequestError

CHUNK_SECONDS: Final = 10.0
"""How long nothing of a body may come."""

BODY_SECONDS: Final = 300.0
"""How long all of it may take."""

JSON_BYTES_MAX: Final = 16_384
"""Bytes of a body that is JSON, where nothing else is said."""

_RANGES_MAX: Final = 64
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_WEIGHT: Final = re.compile(r"q=([01](?:\.[0-9]{0,3})?)")
_HEADER_NAMES: Final = re.compile(r"[\w, -]{1,1024}", re.ASCII)

T = TypeVar("T")


def segment(request: web.Request, place: int) -> str:
    """A part of the path, by its place: percent-encoded UTF-8.

    Raises:
        RequestError: `http.name`, it is not.
    """
    raw = request.rel_url.raw_path.split("/")[place]
    try:
        if not _BAD_ESCAPE.search(raw):
            return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        pass
    raise RequestError("http.name", "A name in a path is UTF-8, percent-encoded, slashes included")


def accepted(request: web.Request, offered: Sequence[str]) -> str:
    """The media type that a client likes best, of those offered the first.

    Raises:
        RequestError: `http.accept`, it likes none.
    """
    liked: dict[str, float] = {}
    accept = ",".join(request.headers.getall("Accept", ["*/*"])).lower()
    for one in accept.split(",")[:_RANGES_MAX]:
        media, *parameters = (part.strip() for part in one.split(";"))
        weights = [float(found[1]) for part in parameters if (found := _WEIGHT.fullmatch(part))]
        liked[media] = weights[0] if weights else 1.0

    def weight(media: str) -> float:
        # The most specific range counts (RFC 9110, section 12.5.1).
        ranges = (media, media.partition("/")[0] + "/*", "*/*")
        return next((liked[one] for one in ranges if one in liked), 0.0)

    best = max(offered, key=weight)
    if not weight(best):
        raise RequestError("http.accept", f"This can be had as {' or '.join(offered)}")
    return best


def single(request: web.Request, name: str) -> str | None:
    """The value of a header of which there is one at most.

    Raises:
        RequestError: `http.repeated`, it comes several times.
    """
    values = request.headers.getall(name, ())
    if len(values) > 1:
        raise RequestError("http.repeated", f"The header {name} comes several times")
    return values[0] if values else None


def media_type(request: web.Request, taken: Iterable[str] = ()) -> str:
    """A body's media type in lower case; empty: none is said.

    Raises:
        RequestError: `http.type`, it is none of `taken`, if there are such, or is encoded, or not
            UTF-8.
    """
    found = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    for name, taken_as in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        if any(one.lower() != taken_as for one in request.headers.getall(name, ())):
            raise RequestError("http.type", f"Bodies are taken in no {name} but {taken_as}")
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise RequestError("http.type", "Text and JSON are taken in UTF-8")
    if taken and found not in taken:
        raise RequestError("http.type", f"Send {' or '.join(taken)}")
    return found


async def chunks(request: web.Request, bytes_max: int) -> AsyncIterator[bytes]:
    """A request's body, as it comes.

    Raises:
        RequestError: `http.length`, `http.too_large`, `http.slow` or `http.broken`: it is not said
            how long it is, it is too large or too slow, or not what its headers say.
    """
    length = request.content_length
    if length is None and "Transfer-Encoding" not in request.headers:
        raise RequestError("http.length", "Send Content-Length, or the body in chunks")
    clock = asyncio.get_running_loop().time
    deadline, come = clock() + BODY_SECONDS, 0
    while max(length or 0, come) <= bytes_max:
        try:
            async with asyncio.timeout_at(min(deadline, clock() + CHUNK_SECONDS)):
                chunk = await request.content.readany()
        except TimeoutError:
            raise RequestError("http.slow", "The body did not come in time") from None
        except (web.RequestPayloadError, ConnectionError):
            raise RequestError("http.broken", "The body is not what its headers say") from None
        if not chunk:
            return
        come += len(chunk)
        if come <= bytes_max:
            yield chunk
    raise RequestError("http.too_large", f"A body has at most {bytes_max:,} bytes")


def decoded(body: bytes, kind: type[T], text: str) -> T:
    """The JSON value of a kind that a body is.

    Raises:
        RequestError: `http.body`, it is none; `text` says what to send.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError("http.body", text) from None


async def json_body(
    request: web.Request, kind: type[T], text: str, bytes_max: int = JSON_BYTES_MAX
) -> T:
    """A body that is JSON of a kind.

    Raises:
        RequestError: as `media_type`, `chunks` and `decoded`.
    """
    # The only type that a foreign page cannot send without asking first.
    media_type(request, ("application/json",))
    return decoded(b"".join([one async for one in chunks(request, bytes_max)]), kind, text)


def cors_headers(request: web.Request, origins: Collection[str], shown: str) -> Mapping[str, str]:
    """What lets a browser show an answer to the page that has asked for it.

    Args:
        request: may have an origin; programs' have none.
        origins: of pages that may ask; `*`: all.
        shown: names of the answer's own headers that the page may see.

    Raises:
        RequestError: `http.origin`, the page may not ask.
    """
    origin = request.headers.get("Origin")
    if origin is None:
        return {}
    if origin not in origins and "*" not in origins:
        text = "Pages of this origin may not ask: it is not among the listener's `origins`"
        raise RequestError("http.origin", text)
    asked = request.headers.get("Access-Control-Request-Headers", "")
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, OPTIONS",
        "Access-Control-Allow-Headers": asked if _HEADER_NAMES.fullmatch(asked) else "",
        "Access-Control-Expose-Headers": shown,
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
