"""Makes the OpenAPI document of the HTTP door, which it serves from its own folder."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

import rillnode
from rillnode.codecs.errors import RequestError
from rillnode.codecs.gateway.events import BATCH, STRUCTURED
from rillnode.node.gateway.bodies import LINES
from rillnode.node.gateway.plugin import CBOR, PULL_LIMIT_MAX, ROUTES, STATUSES
from rillnode.node.http import answers
from rillnode.node.http.answers import EVENTS, status_of

Schema = Mapping[str, Any]


class Operation(NamedTuple):
    """What is done at a path with a method.

    Attributes:
        summary: what it does.
        parameters: of query and headers, by name.
        takes: what a body may be, by media type.
        gives: what the answer is, by media type.
        codes: of errors, beside those that every operation has.
        status: of success.
    """

    summary: str
    parameters: Sequence[str] = ()
    takes: Mapping[str, Schema] = {}
    gives: Mapping[str, Schema] = {}
    codes: Sequence[str] = ()
    status: int = 200


def _text(text: str = "") -> Schema:
    return {"type": "string", "description": text} if text else {"type": "string"}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": [*required], "properties": properties}


_POSITION: Final = _text(
    "The next index to read: `17` in one partition, `0:17,1:4` in partitions 0 and 1. Behind it "
    "`@1764277429000` says when the stream was created, in milliseconds since 1970, where another "
    "of its name is not meant."
)
_NUMBER: Final = {"type": "integer", "minimum": 0}
_PLACE: Final = {
    "type": ["object", "null"],
    "properties": {"partition": _NUMBER, "index": _NUMBER},
    "description": "Where an entry is; null: it was refused.",
}
_INDEXES: Final = _object("indexes", indexes={"type": "array", "items": _PLACE})
_ENTRY: Final = _object(
    "partition", "index", "received_at", "kind",
    partition=_NUMBER,
    index=_NUMBER,
    received_at={"type": "string", "format": "date-time"},
    kind={"enum": ["bytes", "streamr", "nextgraph"]},
    json={"type": ["object", "array"], "description": "The data, where it is such JSON;"},
    text=_text("or else the data as text, where it is UTF-8;"),
    base64=_text("or else the data in Base64."),
    key=_text("If it has one."),
    key_base64=_text("The same, where it is no UTF-8."),
    headers={"type": "object", "additionalProperties": {"type": "string"}},
    headers_base64={"type": "object", "additionalProperties": {"type": "string"}},
)  # fmt: skip
_BINARY_ENTRY: Final = {
    "type": "object",
    "description": "As in JSON, but for `received_at` in milliseconds since 1970, and for `data`, "
    "`key` and the values of `headers`, which are bytes.",
}
_EVENT: Final = _object(
    "specversion", "id", "source", "type",
    specversion={"const": "1.0"}, id=_text(), source=_text(), type=_text(),
)  # fmt: skip
_TICKET: Final = _object(
    "ticket", "expires_at", ticket=_text(), expires_at={"type": "string", "format": "date-time"}
)
_SAVED: Final = {"application/json": _object("position", position=_POSITION)}

PARAMETERS: Final[Mapping[str, tuple[str, Schema, str]]] = {
    "from": ("query", _POSITION, "Where to begin: a position, `start` or `end`."),
    "since": (
        "query",
        _text(),
        "Where to begin, if there is no `from`: a time in ISO 8601 with a zone, or how long ago, "
        "as `90s` or `1d12h`.",
    ),
    "until": ("query", _text(), "Where to end: likewise."),
    "where": (
        "query",
        _text(),
        "What entries have to meet, such as `mag > 5 and not place.test`. Some 32,000 entries, or "
        "4 MiB of them, are looked at for an answer, so it may have less than `limit`: go on at "
        "`Rillnode-Next`, which stays the same at the end.",
    ),
    "limit": (
        "query",
        {"type": "integer", "minimum": 0, "maximum": PULL_LIMIT_MAX, "default": 100},
        "How many entries at most; an answer of some 4 MiB takes no more.",
    ),
    "partition": (
        "query",
        {"type": "integer", "minimum": 0, "maximum": 1_023},
        "Which partition. Reading, all if left out; pushing, that of the key, or else 0.",
    ),
    "key_field": (
        "query",
        _text(),
        "The field of each line's JSON object that is its key; dots lead into inner objects.",
    ),
    "ticket": ("query", _text(), "A ticket of POST /tickets, in place of an API key."),
    "Last-Event-ID": ("header", _POSITION, "Where to go on, in place of `from`."),
    "Idempotency-Key": (
        "header",
        _text(),
        "The request's own: sent again, it is stored once, and answered as before, for a day and "
        "while the partition has had no 4,096 others. Another body under the same key is refused.",
    ),
    "Rillnode-Key": ("header", _text(), "What the entries are about; it chooses the partition."),
}
"""Where each parameter is, its schema, and what it says."""

_READS: Final = (
    "stream.unknown", "stream.removed", "stream.partition", "store.elsewhere", "gateway.right",
    "gateway.position", "http.number", "http.accept",
)  # fmt: skip
_FROM: Final = ("client.time", "where.depth", "where.length", "where.syntax")
_BODY: Final = (
    "http.broken",
    "http.length",
    "http.too_large",
    "http.type",
    "http.body",
    "http.slow",
)

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("POST", "/streams/{name}"): Operation(
        "Push entries; the answer comes once they are durable. A body is one entry, unless it is "
        "lines of JSON or CloudEvents. Headers `Rillnode-Header-NAME` become headers of the "
        "entries, and attributes of CloudEvents headers `ce-NAME`.",
        ("partition", "key_field", "Rillnode-Key", "Idempotency-Key"),
        {
            **{media: _text("JSON on each line, an entry each.") for media in LINES},
            STRUCTURED: _EVENT,
            BATCH: {"type": "array", "items": _EVENT},
            "*/*": {},
        },
        {"application/json": _INDEXES},
        (
            *_BODY, "stream.unknown", "stream.partition", "store.elsewhere", "gateway.right",
            "gateway.event", "entries.size", "entries.many", "entries.key", "entries.headers",
            "entries.header_name", "input.format", "input.key", "stream.invalid", "quota.rate",
            "quota.bytes", "quota.streams", "once.key", "once.other", "once.size",
        ),
    ),
    ("GET", "/streams/{name}"): Operation(
        "Read entries. The header `Rillnode-Next` has the position that follows.",
        ("from", "since", "until", "where", "limit", "partition", "ticket"),
        gives={
            **dict.fromkeys(LINES, _ENTRY), CBOR: {"type": "array", "items": _BINARY_ENTRY}
        },
        codes=(*_READS, *_FROM),
    ),
    ("GET", "/streams/{name}/tail"): Operation(
        "Follow a stream as server-sent events, from the end unless `from` or `Last-Event-ID` says "
        "where. Each entry is a message, whose data is the entry as JSON and whose id is the "
        "position after it. Other events are `gap` (entries that retention has removed), `ticket` "
        "(another, in time) and `problem` (why the tail ends).",
        ("from", "since", "where", "partition", "ticket", "Last-Event-ID"),
        gives={EVENTS: _text()},
        codes=(*_READS, *_FROM, "gateway.busy"),
    ),
    ("GET", "/streams/{name}/indexes/{client}"): Operation(
        "The saved position of a client; partitions without one are left out.",
        ("partition",),
        gives=_SAVED,
        codes=(*_READS, "index.invalid"),
    ),
    ("PUT", "/streams/{name}/indexes/{client}"): Operation(
        "Save a client's position; the answer is what is saved then, never less than before.",
        ("partition",),
        _SAVED,
        _SAVED,
        (*_READS, *_BODY, "index.invalid"),
    ),
    ("POST", "/tickets"): Operation(
        "Make a ticket: with it in the query, one stream may be read as by its maker, for five "
        "minutes and for as long as a tail is open by it.",
        takes={"application/json": _object("stream", stream=_text("The stream's name."))},
        gives={"application/json": _TICKET},
        codes=(*_BODY, "stream.unknown", "gateway.right"),
        status=201,
    ),
    ("GET", "/openapi.json"): Operation("This document.", gives={"application/json": {}}),
}  # fmt: skip

_ALWAYS: Final = (
    "gateway.key", "gateway.ticket", "http.origin", "http.name", "http.repeated", "node.draining",
)  # fmt: skip
_PROBLEM: Final = _object(
    "status", "code", "text", "next",
    status={"type": "integer"},
    code=_text("Stable; the reference of error codes has all."),
    text=_text("What is wrong."),
    next=_text("What to do."),
    indexes={**_INDEXES["properties"]["indexes"], "description": "What was stored all the same."},
)  # fmt: skip


def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in ROUTES:
        paths.setdefault(path, {})[method.lower()] = _operation(
            path, handler, OPERATIONS[method, path]
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rillnode",
            "version": rillnode.__version__,
            "description": "Streams over HTTP. Names in paths are one percent-encoded segment.",
        },
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
        },
    }


def served() -> str:
    """The document as it is served."""
    return msgspec.json.encode(document()).decode() + "\n"


def page() -> str:
    """The same for people."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def _operation(path: str, handler: str, one: Operation) -> dict[str, Any]:
    named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _text()} for name in named
    ]
    for name in one.parameters:
        where, schema, text = PARAMETERS[name]
        parameters.append({"name": name, "in": where, "schema": schema, "description": text})
    found: dict[str, Any] = {
        "operationId": handler,
        "summary": one.summary,
        "parameters": parameters,
        "responses": {str(one.status): {"description": "Done.", "content": _content(one.gives)}},
    }
    if one.takes:
        found["requestBody"] = {"required": True, "content": _content(one.takes)}
    codes: dict[int, set[str]] = {}
    for code in (*_ALWAYS, *one.codes):
        status = status_of(RequestError(code, ""), answers.STATUSES | STATUSES)
        codes.setdefault(status, set()).add(code)
    problem = _content({"application/problem+json": {"$ref": "#/components/schemas/Problem"}})
    for status, same in sorted(codes.items()):
        text = ", ".join(f"`{code}`" for code in sorted(same))
        found["responses"][str(status)] = {"description": text, "content": problem}
    return found


def _content(media: Mapping[str, Schema]) -> dict[str, Any]:
    return {name: {"schema": schema} for name, schema in media.items()}
