"""Streams: made, told, listed, changed, removed."""

import asyncio
from collections.abc import AsyncIterator, Set
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from rillnode.actors.core.access import ANONYMOUS
from rillnode.actors.log import FindStream, ListStreams, StreamRecord
from rillnode.actors.streamr import metadata, permissions
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_STREAMS_LISTED_MAX
from rillnode.codecs.streamr.rest_bodies import read_stream
from rillnode.node.streamr.rest.answers import empty_answer, json_answer
from rillnode.node.streamr.rest.query import flag, number
from rillnode.node.streamr.rest.rest import Rest, body_of, principal_of

SLICE_STREAMS: Final = 250
"""Streams described in one turn of the loop: each takes 4 us. Own choice."""


async def create(rest: Rest, request: web.Request) -> web.Response:
    """POST /streams: make one; its maker may do everything with it."""
    principal = principal_of(rest, request)
    body = read_stream(await body_of(request))
    random = rest.context.streams.entropy(metadata.GENERATED_ID_BYTES)
    name = metadata.stream_id(body.id, principal, random, rest.access)
    if not rest.access.allows(principal, "create", name):
        if principal == ANONYMOUS:
            raise RequestError("session.needed", "Log in to make streams")
        raise RequestError("streamr.forbidden", f"You are not allowed to make {name}")
    revise = metadata.creation(body, principal, rest.now_ms())
    record = await rest.revise(name, principal, revise)
    return _told(record)


async def get(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}."""
    principal = principal_of(rest, request)
    return _told(await rest.find(request.match_info["id"], principal, permissions.GET))


async def edit(rest: Rest, request: web.Request) -> web.Response:
    """PUT /streams/{id}: what the body does not say stays as it is."""
    principal, name = principal_of(rest, request), request.match_info["id"]
    body = read_stream(await body_of(request))
    revise = metadata.edition(body, principal, rest.access, rest.now_ms())
    return _told(await rest.revise(name, principal, revise))


async def delete(rest: Rest, request: web.Request) -> web.Response:
    """DELETE /streams/{id}: the stream and all that it holds."""
    principal, name = principal_of(rest, request), request.match_info["id"]
    await rest.revise(name, principal, metadata.removal(principal, rest.access))
    return empty_answer(204)


async def validation(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/validation: what a message has to be like."""
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    return json_answer(
        {
            "partitions": record.partitions,
            "requireSignedData": record.require_signed,
            "requireEncryptedData": record.require_encrypted,
        }
    )


def _told(record: StreamRecord | None) -> web.Response:
    return json_answer(metadata.describe(record) if record else {})


# Lists ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a list is to hold.

    Attributes:
        name: called exactly so.
        search: with this in name or description, whatever the case.
        operation: on which the asker may do this.
        public: also streams that are the asker's only as they are everybody's.
    """

    name: str | None
    search: str
    operation: str
    public: bool


async def list_all(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams?name=&search=&operation=&public=&max=&offset=: by id, the asker's."""
    described: list[dict[str, Any]] = []
    for record in await asked_for(rest, request):
        described.append(metadata.describe(record))
        if not len(described) % SLICE_STREAMS:
            await asyncio.sleep(0)
    return json_answer(described)


async def asked_for(rest: Rest, request: web.Request) -> list[StreamRecord]:
    """The streams that a request's query describes."""
    principal, query = principal_of(rest, request), request.query
    operation = query.get("operation", permissions.GET).lower()
    if operation not in permissions.OPERATIONS:
        raise RequestError("rest.query", f"operation is none of {permissions.OPERATIONS}")
    wanted = _Filter(
        query.get("name"), query.get("search", "").lower(), operation, flag(query, "public")
    )
    skip = number(query, "offset", 0, STREAMR_INTEGER_MAX)
    room = number(query, "max", STREAMR_STREAMS_LISTED_MAX, STREAMR_INTEGER_MAX)
    room = min(room, STREAMR_STREAMS_LISTED_MAX)
    found: list[StreamRecord] = []
    async for record in _candidates(rest, principal, wanted):
        if len(found) >= room:
            break
        if not _is_wanted(rest, record, principal, wanted):
            continue
        if skip:
            skip -= 1
            continue
        found.append(record)
    return found


async def _candidates(rest: Rest, principal: str, wanted: _Filter) -> AsyncIterator[StreamRecord]:
    """Streams that may be wanted, by id: few where few can be."""
    names: Set[str]
    if wanted.name is not None:
        names = rest.catalogue.named(wanted.name)
    elif not wanted.public and not rest.access.names(principal):
        names = rest.access.granted(principal)
    else:
        page = ListStreams(more=True)
        while page.more:
            after = page.records[-1].name if page.records else ""
            page = await rest.question(ListStreams(after=after, names_only=True))
            for record in page.records:
                yield record
        return
    for name in sorted(names):
        record = (await rest.question(FindStream(name=name))).record
        if record is not None:
            yield record


def _is_wanted(rest: Rest, record: StreamRecord, principal: str, wanted: _Filter) -> bool:
    if not metadata.reachable(record, rest.access):
        return False
    if wanted.name is not None and metadata.display_name(record) != wanted.name:
        return False
    if wanted.search:
        text = f"{metadata.display_name(record)}\n{record.attributes.get('description', '')}"
        if wanted.search not in text.lower():
            return False
    if not wanted.public and record.grants and principal not in record.grants:
        return False
    return permissions.allows(record, rest.access, principal, wanted.operation)
