"""CloudEvents 1.0 out of HTTP messages: binary, structured as JSON, and batches.

Whatever the mode, an event becomes its data, and its attributes as headers `ce-id`, `ce-source`,
..., as the binary mode has them; `datacontenttype` is the header `content-type`.

Source: CloudEvents 1.0.2: core, JSON event format, HTTP protocol binding, partitioning extension.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import ENTRY_BYTES_MAX, HEADERS_MAX

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
PREFIX: Final = "ce-"

_NEEDED: Final = ("id", "source", "specversion", "type")
_NAME: Final = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
_JSON: Final = re.compile(r"[^/;\s]+/(?:json|[^/;\s]+\+json)\s*(?:;.*)?", re.ASCII | re.DOTALL)

EVENT_BYTES_MAX: Final = 2 * ENTRY_BYTES_MAX
"""Bytes of an event as JSON. Own choice: in so many there are not too many names to look at."""

T = TypeVar("T")


class _Item(Struct):
    """All that is kept of an event when a batch is first read, which ends at anything else."""

    specversion: str


_ITEMS: Final = Decoder(list[_Item])
_OBJECT: Final = Decoder(dict[str, Raw])
_ATTRIBUTE: Final = Decoder(str | bool | int | None)


class Event(NamedTuple):
    """An event as it is stored; `key` is that of its attribute `partitionkey`."""

    data: bytes
    headers: Mapping[str, str] = {}
    key: str | bytes | None = None


def is_json(content_type: str) -> bool:
    """Whether a media type is JSON's."""
    return _JSON.fullmatch(content_type) is not None


def read_structured(body: bytes) -> Event:
    """Read one event, whose JSON data is kept as its text stands; RequestError: it is none."""
    if len(body) > EVENT_BYTES_MAX:
        raise RequestError("entries.size", f"An event has at most {EVENT_BYTES_MAX:,} bytes")
    members = _decoded(_OBJECT, body, "A CloudEvents message is a JSON object")
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if len(members) > HEADERS_MAX:
        raise _wrong(f"An event has at most {HEADERS_MAX} attributes")
    attributes: dict[str, str] = {}
    for name, raw in members.items():
        text = f"The attribute {name[:64]!a} is no text, integer or boolean"
        if (value := _decoded(_ATTRIBUTE, raw, text)) is not None:
            attributes[name] = value if isinstance(value, str) else bytes(raw).decode()
    if encoded is not None:
        if data is not None:
            raise _wrong("An event has data or data_base64, not both")
        return _event(attributes, _decoded(Decoder(bytes), encoded, "data_base64 is not Base64"))
    content = b"" if data is None else bytes(data)
    if content[:1] == b'"' and not is_json(attributes.get("datacontenttype", "a/json")):
        content = _decoded(Decoder(str), content, "The data is no text").encode()
    return _event(attributes, content)


def read_batch(body: bytes, events_max: int) -> Iterator[Event]:
    """Read a batch of events one by one, of which each must be one; RequestError: it is none."""
    text = "A batch of CloudEvents is a JSON array of events"
    if len(_decoded(_ITEMS, body, text)) > events_max:
        raise RequestError("entries.many", f"A batch has at most {events_max:,} events")
    for place, raw in enumerate(_decoded(Decoder(list[Raw]), body, text)):
        try:
            yield read_structured(bytes(raw))
        except RequestError as error:
            raise RequestError(error.code, f"Event {place} of the batch: {error.text}") from None


def read_binary(headers: Iterable[tuple[str, str]], content_type: str, body: bytes) -> Event:
    """Read an event whose attributes are in headers; RequestError: it is none."""
    attributes: dict[str, str] = {}
    for header, value in headers:
        if not header.lower().startswith(PREFIX):
            continue
        name = header.lower().removeprefix(PREFIX)
        if name in attributes:
            raise _wrong(f"The header ce-{name[:64]} comes twice")
        try:  # section 3.1.3.2 of the binding
            unquoted = re.sub(r"\\(.)", r"\1", value[1:-1]) if re.match('".*"$', value) else value
            attributes[name] = unquote_to_bytes(unquoted.encode(errors="surrogateescape")).decode()
        except UnicodeDecodeError:
            raise _wrong(f"The header ce-{name[:64]} is not UTF-8, percent-encoded") from None
    if content_type:
        attributes["datacontenttype"] = content_type
    return _event(attributes, body)


def _event(attributes: dict[str, str], data: bytes) -> Event:
    if missing := [name for name in _NEEDED if not attributes.get(name)]:
        raise _wrong(f"The event has no {' and no '.join(missing)}")
    if attributes["specversion"] != "1.0":
        raise _wrong("Only CloudEvents of specversion 1.0 are taken")
    if strange := [name for name in attributes if not _NAME.fullmatch(name)]:
        raise _wrong(f"{strange[0][:64]!a} is no attribute: these have only a to z and 0 to 9")
    content_type = attributes.pop("datacontenttype", None)
    headers = {PREFIX + name: value for name, value in attributes.items()}
    headers |= {} if content_type is None else {"content-type": content_type}
    return Event(data, headers, attributes.get("partitionkey"))


def _decoded(decoder: Decoder[T], body: bytes | Raw, text: str) -> T:
    try:
        str(body, "utf-8")  # what is passed over as raw is not looked at so closely
        return decoder.decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(f"{text}: {error}") from None


def _wrong(text: str) -> RequestError:
    return RequestError("gateway.event", text)
