"""Positions as text, and entries as CBOR.

A position is the next index to read: `17` in one partition, `0:17,1:4` in several.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.cbor_items import Value, encode_array, encode_value

_INDEX: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_PART: Final = re.compile(r"([0-9]{1,4}):([0-9]{1,18})", re.ASCII)


def position_text(position: Mapping[int, int], *, plain: bool) -> str:
    """A position as text; `plain`: it is understood which the only partition is."""
    if plain and len(position) == 1:
        return str(*position.values())
    return ",".join(f"{partition}:{index}" for partition, index in position.items())


def read_position(text: str, partitions: Collection[int]) -> dict[int, int]:
    """Take a position of these partitions out of a text, or raise RequestError `gateway.position`.

    A number alone is the index in the first of them: it was told while the stream had no other, and
    all of those that have come since is still to be read.
    """
    if _INDEX.fullmatch(text):
        return {min(partitions): int(text)}
    found: dict[int, int] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part)
        partition = int(match[1]) if match else -1
        if match is None or partition in found or partition not in partitions:
            text = "A position is `17`, or `0:17,1:4`, of partitions that are asked for, each once"
            raise RequestError("gateway.position", text)
        found[partition] = int(match[2])
    return found


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
