"""The demo's events: read from a file, in time order, with what partitions them."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its JSON text as it came, what partitions it, and when it happened."""

    data: bytes
    key: str | None
    time: float | None


class _Collection(msgspec.Struct):
    """A GeoJSON feature collection; each feature is kept as its own text."""

    features: list[msgspec.Raw]


def load_events(path: Path, key_field: str, time_field: str) -> list[Event]:
    """Read a GeoJSON file, or one JSON object per line.

    The events are in time order if every one of them has a time, else in the order of the file.

    Raises:
        DemoError: the file cannot be read, or holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DemoError(f"{path}: {error.strerror}") from None
    events = [
        _event(text, f"{path}: event {number}", key_field, time_field)
        for number, text in enumerate(_texts(content), 1)
    ]
    if not events:
        raise DemoError(f"{path} holds no events")
    if all(event.time is not None for event in events):
        events.sort(key=lambda event: event.time or 0)
    return events


def partition_of(event: Event, number: int, partitions: int) -> int:
    """Events of one key share a partition; those without one go round by their number."""
    return (number if event.key is None else zlib.crc32(event.key.encode())) % partitions


def _texts(content: bytes) -> list[bytes]:
    try:
        collection = msgspec.json.decode(content, type=_Collection)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [line for line in content.splitlines() if line.strip()]
    return [bytes(feature) for feature in collection.features]


def _event(text: bytes, where: str, key_field: str, time_field: str) -> Event:
    try:
        decoded = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DemoError(f"{where} is not a JSON object: {error}") from None
    key, moment = field_of(decoded, key_field), field_of(decoded, time_field)
    number = isinstance(moment, int | float) and not isinstance(moment, bool)
    return Event(text, None if key is None else str(key), moment if number else None)


def field_of(event: dict[str, Any], path: str) -> Any:
    """The value at a dotted path of a decoded event, or None."""
    value: Any = event
    for part in path.split("."):
        value = cast(dict[str, Any], value).get(part) if isinstance(value, dict) else None
    return value
