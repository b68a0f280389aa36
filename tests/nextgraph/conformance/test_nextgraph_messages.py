"""NextGraph: recorded messages are read, say what is noted, and are written back unchanged.

The records are in vectors/, their origin in vectors/README.md.
"""

import json
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from each_row import each_row
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.adverts import check_publisher_advert
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.commits import commit_header
from rillnode.codecs.nextgraph.events import EVENT, Event, check_event
from rillnode.codecs.nextgraph.messages import AppMessage, decode_message, encode_message
from rillnode.codecs.nextgraph.requests import (
    ClientRequest,
    InboxRegister,
    PinRepo,
    TopicSub,
    inbox_register_holds,
)
from rillnode.codecs.nextgraph.responses import ClientResponse, TopicSyncRes
from rillnode.codecs.nextgraph.start import ClientAuth, client_auth_holds

VECTORS: Final = Path(__file__).parent / "vectors"
MESSAGES: Final[list[dict[str, Any]]] = json.loads((VECTORS / "nextgraph.json").read_text())[
    "messages"
]
WIRE: Final[list[dict[str, Any]]] = json.loads((VECTORS / "nextgraph_wire.json").read_text())
PLAIN: Final = [r for r in WIRE if "_plain_" in r["name"] or r["name"].startswith("kind_")]

BROKER: Final = Identity.from_seed(b"\x11" * 32).public_key


def name(record: dict[str, Any]) -> str:
    called: str = record["name"]
    return called


Noted = dict[str, "Noted"] | list["Noted"] | str | int | None


def noted_leaves(value: Noted) -> Iterator[str | int]:
    """What a noted value says, in the order of the wire, without the types' names."""
    if isinstance(value, dict):
        for item in value.values():
            yield from noted_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from noted_leaves(item)
    elif value is not None and value != "none":
        yield value


def leaves(value: object) -> Iterator[object]:
    """The same of a decoded one; bytes as hex."""
    if isinstance(value, Struct):
        for field in value.__struct_fields__:
            yield from leaves(getattr(value, field))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from leaves(item)
    elif isinstance(value, bytes):
        yield value.hex()
    elif value is not None and not isinstance(value, IntEnum):
        yield value


def noted_names(value: Noted) -> set[str]:
    """The names of the types in a noted value."""
    if isinstance(value, list):
        return set[str]().union(*map(noted_names, value))
    if isinstance(value, dict):
        return set(value).union(*map(noted_names, value.values()))
    return set()


def event_of(message: object) -> Event | None:
    """The event that a message carries."""
    content: object = message.content if isinstance(message, ClientMessage) else None
    if isinstance(content, ClientRequest | ClientResponse):
        content = content.content
    if isinstance(content, TopicSyncRes):
        content = content.item
    return content if isinstance(content, Event) else None


def test_every_record_is_looked_at() -> None:
    assert len(MESSAGES) == 52
    assert len(PLAIN) == 75 + 31
    assert len(EVENTS) == 32
    assert len(REQUESTS) == 61


@each_row(MESSAGES, name)
def test_messages_say_what_is_noted_and_are_written_back(record: dict[str, Any]) -> None:
    data = bytes.fromhex(record["hex"])
    message = decode_message(data)
    assert encode_message(message) == data
    assert decode_message(data + b"later") == message or isinstance(message, AppMessage)
    if not isinstance(message, AppMessage):
        assert list(leaves(message)) == list(noted_leaves(record["value"]))
    shown: list[object] = [message]
    if isinstance(message, ClientMessage):
        shown.append(message.content)
        if isinstance(message.content, ClientRequest | ClientResponse):
            shown.append(message.content.content)
    names = noted_names(record["value"])
    for part in shown:
        called = {type(part).__name__}
        assert names & ({"PublishEvent", "ForwardedEvent"} if isinstance(part, Event) else called)


@each_row(PLAIN, name)
def test_recorded_messages_are_written_back(record: dict[str, Any]) -> None:
    data = bytes.fromhex(record["hex"])
    message = decode_message(data)
    assert encode_message(message) == data
    assert type(message).__name__ in record["name"] + record["note"]
    if isinstance(message, ClientAuth):
        assert client_auth_holds(message)


EVENTS: Final = [
    (record["name"], event)
    for record in PLAIN
    if (event := event_of(decode_message(bytes.fromhex(record["hex"]))))
]


@each_row([event for _, event in EVENTS])
def test_recorded_events_are_signed_and_show_their_header(event: Event) -> None:
    publisher, stored = check_event(event)
    assert len(publisher) == 32
    assert stored == EVENT.encode(event)
    assert EVENT.decode(stored) == event
    header = commit_header(event.content.blocks)
    assert bool(header.acks or header.deps) == (
        event.content.blocks[0].commit_header_key is not None
    )


REQUESTS: Final = [
    message.content.content
    for record in PLAIN + MESSAGES
    if isinstance(message := decode_message(bytes.fromhex(record["hex"])), ClientMessage)
    and isinstance(message.content, ClientRequest)
]


def test_recorded_adverts_and_registrations_hold() -> None:
    checked = 0
    for request in REQUESTS:
        adverts = request.rw_topics if isinstance(request, PinRepo) else []
        if isinstance(request, TopicSub) and request.publisher is not None:
            adverts = [request.publisher]
        for advert in adverts:
            check_publisher_advert(advert, BROKER)
            checked += 1
        if isinstance(request, InboxRegister):
            assert inbox_register_holds(request)
            checked += 1
    assert checked > 20
