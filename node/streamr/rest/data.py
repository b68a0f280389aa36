"""Stored messages: the newest, from a time on, or between two; streamed as they are read.

    GET /streams/{id}/data/partitions/{partition}/last?count=
    GET ... /from?fromTimestamp=&fromSequenceNumber=&publisherId=&msgChainId=
    GET ... /range?fromTimestamp=&fromSequenceNumber=&toTimestamp=&toSequenceNumber=&publisherId=...

The answer is an array of objects, or with `format=protocol&version=` one of messages as texts.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from aiohttp import web

from rillnode.actors.streamr import permissions
from rillnode.actors.streamr.requests import ResendQuery
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.streamr.json_text import write_json
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_RESEND_MESSAGES_MAX
from rillnode.codecs.streamr.message import STORED_VERSION, VERSIONS, encode_either
from rillnode.codecs.streamr.message_objects import encode_object
from rillnode.codecs.streamr.stream_message import MessageRef, StreamMessage
from rillnode.node.streamr.rest.answers import HEADERS
from rillnode.node.streamr.rest.query import needed_number, number, whole_number
from rillnode.node.streamr.rest.rest import Rest, cors_headers, principal_of, token_of

_Encode = Callable[[StreamMessage], str]


async def last(rest: Rest, request: web.Request) -> web.StreamResponse:
    """GET .../last: the newest `count` messages, 1 where that is not said; oldest first."""
    count = number(request.query, "count", 1, STREAMR_INTEGER_MAX)
    query = replace(_all(rest, request), last=min(count, STREAMR_RESEND_MESSAGES_MAX))
    return await _answer(rest, request, query)


async def from_ref(rest: Rest, request: web.Request) -> web.StreamResponse:
    """GET .../from: from a time on, that included."""
    query = replace(_all(rest, request), from_ref=_ref(request, "from"))
    return await _answer(rest, request, query)


async def between(rest: Rest, request: web.Request) -> web.StreamResponse:
    """GET .../range: between two times, both included."""
    lower, upper = _ref(request, "from"), _ref(request, "to")
    if upper.timestamp < lower.timestamp:
        raise RequestError("rest.query", '"fromTimestamp" must not be after "toTimestamp"')
    query = replace(_all(rest, request), from_ref=lower, to_ref=upper)
    return await _answer(rest, request, query)


def _all(rest: Rest, request: web.Request) -> ResendQuery:
    partition = request.match_info["partition"]
    return ResendQuery(
        stream_id=request.match_info["id"],
        partition=whole_number(partition, 'Path parameter "partition"', PARTITIONS_MAX),
        principal=principal_of(rest, request),
        token=token_of(request),
        publisher_id=request.query.get("publisherId"),
        chain_id=request.query.get("msgChainId"),
    )


def _ref(request: web.Request, side: str) -> MessageRef:
    """A bound; without a sequence, that of the whole millisecond."""
    query, name = request.query, f"{side}SequenceNumber"
    timestamp = needed_number(query, f"{side}Timestamp", STREAMR_INTEGER_MAX)
    sequence = number(query, name, 0, STREAMR_INTEGER_MAX) if name in query else None
    return MessageRef(timestamp, sequence)


def _encoder(request: web.Request) -> _Encode:
    form = request.query.get("format", "object")
    if form == "object":
        return encode_object
    if form != "protocol":
        raise RequestError("rest.query", 'Query parameter "format" is object or protocol')
    version = number(request.query, "version", STORED_VERSION, STREAMR_INTEGER_MAX)
    if version not in VERSIONS:
        raise RequestError("rest.query", f'Query parameter "version" is none of {VERSIONS}')
    return lambda message: write_json(encode_either(message, version))


class _Page:
    """A ResendSink that keeps what is read until the client takes it."""

    def __init__(self, encode: _Encode) -> None:
        self._encode = encode
        self._texts: list[bytes] = []
        self._filled = asyncio.Event()
        self._ended = False
        self.error: RequestError | None = None
        self.buffered_bytes = 0

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """Keep messages; what the format has no form for stays out."""
        for message in messages:
            try:
                text = self._encode(message).encode()
            except CodecError:
                continue
            self._texts.append(text)
            self.buffered_bytes += len(text)
        self._filled.set()

    def finished(self, error: RequestError | None) -> None:
        """Nothing follows."""
        self.error, self._ended = error, True
        self._filled.set()

    async def take(self) -> list[bytes]:
        """What has come since, as soon as something has; nothing, once all was taken."""
        while not self._texts and not self._ended:
            self._filled.clear()
            await self._filled.wait()
        taken, self._texts = self._texts, []
        self.buffered_bytes = 0
        return taken


async def _answer(rest: Rest, request: web.Request, query: ResendQuery) -> web.StreamResponse:
    page = _Page(_encoder(request))
    if not is_key_stream(query.stream_id):
        record = await rest.find(query.stream_id, query.principal, permissions.GET)
        if query.partition >= record.partitions:
            raise RequestError("rest.query", f"The stream has {record.partitions} partitions")
    resend = rest.begin_resend(query, page)
    try:
        taken = await page.take()
        if page.error is not None:
            raise page.error
        return await _stream(rest, request, page, taken)
    finally:
        rest.end_resend(resend)


async def _stream(
    rest: Rest, request: web.Request, page: _Page, taken: list[bytes]
) -> web.StreamResponse:
    answer = web.StreamResponse(headers={**HEADERS, **cors_headers(rest, request)})
    answer.content_type = "application/json"
    await answer.prepare(request)
    if request.method == "HEAD":
        return answer
    # Whoever goes away in the middle of his answer is no error.
    with suppress(ConnectionError):
        separator = b"["
        while taken:
            await answer.write(separator + b",".join(taken))
            separator = b","
            taken = await page.take()
        if page.error is None:
            await answer.write_eof(b"]" if separator == b"," else b"[]")
        elif request.transport is not None:
            # It has begun as a success: all that can be told is that it is not whole.
            request.transport.abort()
    return answer
