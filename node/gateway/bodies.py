"""Reads the bodies of pushes: cuts them into what is to be an entry each, as they come.

A body may hold so many entries that the loop has to turn while they are read.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

from aiohttp import web

from rillnode.codecs.errors import RequestError
from rillnode.codecs.gateway import events
from rillnode.codecs.gateway.events import Event
from rillnode.node.client.producer import new_entry
from rillnode.node.entry_lines import InputReader
from rillnode.node.http import requests

LINES: Final = ("application/x-ndjson", "application/jsonl")

PUSH_ENTRIES_MAX: Final = 65_536
"""Entries of one request. Own choice: its answer has so many indexes."""

TURN_ENTRIES: Final = 64
TURN_BYTES: Final = 8_192
"""Entries, or bytes of lines and entries, that are read or told before the loop turns."""

T = TypeVar("T")


async def batches(request: web.Request, bytes_max: int) -> AsyncIterator[list[Event]]:
    """The entries of a body, those together that have come together.

    Args:
        request: its media type says what the body is; `key_field` of its query, where lines have
            their key.
        bytes_max: how large the body may be.

    Raises:
        RequestError: as `media_type` and `chunks` of `rillnode.node.http.requests`; `http.body`,
            `input.format` or `gateway.event`, it is not what its type says; an entry cannot be one.
    """
    media, body = requests.media_type(request), requests.chunks(request, bytes_max)
    if media in LINES:
        reader = InputReader("json", request.query.get("key_field"))
        async for chunk in body:
            batch = list[Event]()
            async for at in in_turns(range(0, len(chunk), TURN_BYTES), 1):
                piece = reader.feed(chunk[at : at + TURN_BYTES])
                batch += [Event(one, {}, reader.key) for one in piece]
            yield batch
        yield [Event(one, {}, reader.key) for one in reader.finish()]
        return
    ours = media in (events.STRUCTURED, events.BATCH)
    if media.startswith(("multipart/", "application/cloudevents")) and not ours:
        text = f"Send one entry, {LINES[0]}, {events.STRUCTURED} or {events.BATCH}"
        raise RequestError("http.type", text)
    content = b"".join([chunk async for chunk in body])
    content_type = request.headers.get("Content-Type", "")
    if media == events.BATCH:
        yield [one async for one in in_turns(events.read_batch(content, PUSH_ENTRIES_MAX))]
    elif media == events.STRUCTURED:
        yield [events.read_structured(content)]
    else:
        new_entry(content, None, None)  # before it is read as JSON, how large it may be
        is_event = any(header.lower().startswith(events.PREFIX) for header in request.headers)
        # An event may have no data, whatever type that would have.
        if events.is_json(content_type) and not (is_event and not content):
            requests.decoded(content, object, "The body is not JSON, though its type says so")
        if is_event:
            yield [events.read_binary(request.headers.items(), content_type, content)]
        else:
            yield [Event(content)]


async def in_turns(items: Iterable[T], each: int = TURN_ENTRIES) -> AsyncIterator[T]:
    """Some items, after so many of which the loop turns."""
    for count, item in enumerate(items, 1):
        yield item
        if count % each == 0:
            await asyncio.sleep(0)
