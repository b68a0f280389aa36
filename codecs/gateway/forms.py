"""Positions as text, and entries as CBOR.

A position is the next index to read: `17` in one partition, `0:17,1:4` in several. Behind it
`@1764277429000` says in which stream of the name that is, by when it was created, in milliseconds
since 1970; without it, it is of whichever has the name.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.cbor_items import Value, encode_array, encode_value

_INDEX: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_PART: Final = re.compile(r"([0-9]{1,4}):([0-9]{1,18})", re.ASCII)


def position_text(position: Mapping[int, int], created_at: int, *, plain: bool) -> str:
    """A position in the stream that was created then; empty, where there is none.

    Args:
        position: the next index to read of each partition.
        created_at: of the stream.
        plain: it is understood which the only partition is.
    """
    if not position:
        return ""
    if plain and len(position) == 1:
        return f"{next(iter(position.values()))}@{created_at}"
    text = ",".join(f"{partition}:{index}" for partition, index in position.items())
    return f"{text}@{created_at}"


def read_position(text: str, partitions: Collection[int], created_at: int) -> dict[int, int]:
    """Take a position of these partitions out of a text.

    A number alone is the index in the first of them: it was told while the stream had no other, and
    all of those that have come since is still to be read.

    Args:
        text: the position.
        partitions: those that are asked for.
        created_at: of the stream that has the name now.

    Raises:
        RequestError: `gateway.position`, it is none; `stream.removed`, it is one in another stream.
    """
    place, names_stream, created = text.partition("@")
    if names_stream:
        if not _INDEX.fullmatch(created):
            raise _no_position()
        if int(created) != created_at:
            text = "The stream that this position is in was removed; another has its name now"
            raise RequestError("stream.removed", text)
    if _INDEX.fullmatch(place):
        return {min(partitions): int(place)}
    found: dict[int, int] = {}
    for part in place.split(","):
        match = _PART.fullmatch(part)
        partition = int(match[1]) if match else -1
        if match is None or partition in found or partition not in partitions:
            raise _no_position()
        found[partition] = int(match[2])
    return found


def _no_position() -> RequestError:
    text = (
        "A position is `17`, or `0:17,1:4`, of partitions that are asked for, each once, and `@` "
        "behind it with when the stream was created"
    )
    return RequestError("gateway.position", text)


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Entries as CBOR: maps, in which data, key and headers are bytes, in an array."""
    return encode_array(encode_value(_fields(entry)) for entry in entries)


def _fields(entry: Entry) -> Mapping[str, Value]:
    fields: dict[str, Value] = {
        "partition": entry.partition, "index": entry.index, "received_at": entry.received_at,
        "kind": entry.kind.name.lower(), "data": entry.data,
    }  # fmt: skip
    more = {"key": entry.key, "headers": entry.headers}
    return {**fields, **{name: value for name, value in more.items() if value not in (None, {})}}
