"""Positions as text, and entries as CBOR.

A position is the next index to read: `17` in one partition, `0:17,1:4` in several. Behind it
`@1764277429000` says in which stream of the name that is, by when it was created, in milliseconds
since 1970; without it, it is of whichever has the name.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.cbor_items import Value, encode_value

_PART: Final = "[0-9]{1,4}:[0-9]{1,18}"
_POSITION: Final = re.compile(
    rf"((?P<index>[0-9]{{1,18}})|(?P<parts>{_PART}(,{_PART})*))(@(?P<created>[0-9]{{1,18}}))?"
)


def position_text(position: Mapping[int, int], created_at: int, *, plain: bool) -> str:
    """A position in the stream that was created then; empty, where there is none.

    Args:
        position: the next index to read of each partition.
        created_at: of the stream.
        plain: it is understood which the only partition is.
    """
    alone = plain and len(position) == 1
    texts = [str(at) if alone else f"{partition}:{at}" for partition, at in position.items()]
    return f"{','.join(texts)}@{created_at}" if texts else ""


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
    match = _POSITION.fullmatch(text)
    if match and match["created"] and int(match["created"]) != created_at:
        text = "The stream that this position is in was removed; another has its name now"
        raise RequestError("stream.removed", text)
    if match and match["index"]:
        return {min(partitions): int(match["index"])}
    parts = [part.split(":") for part in match["parts"].split(",")] if match else []
    found = {int(partition): int(index) for partition, index in parts}
    if not found or len(found) < len(parts) or not found.keys() <= {*partitions}:
        text = "A position is `17`, or `0:17,1:4`, of partitions that are asked for, each once"
        raise RequestError("gateway.position", f"{text}, and `@` with when the stream was created")
    return found


def encode_entry(entry: Entry) -> bytes:
    """An entry as CBOR: a map, in which data, key and headers are bytes."""
    fields: dict[str, Value] = {
        "partition": entry.partition, "index": entry.index, "received_at": entry.received_at,
        "kind": entry.kind.name.lower(), "data": entry.data,
    }  # fmt: skip
    more = {"key": entry.key, "headers": entry.headers}
    fields.update((name, value) for name, value in more.items() if value not in (None, {}))
    return encode_value(fields)
