"""Renders a log's entries for other nodes, and other nodes' messages as entries.

Messages of Streamr's clients travel as they are. What clients of other protocols have pushed
travels in a message of the node that has taken it, on a chain of its own: numbered by the
stream's creation and the entry's index, so that the same entry makes the same message at any
time. At the other end it is an entry of bytes again, exactly those that were pushed; beside them
stands which message they came in, so that they can be handed on and are never sent twice.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.stored import expiry_of
from rillnode.codecs.entries import Entry, EntryKind, NewEntry, check_entry_size
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import check_headers, check_headers_size, check_key_size
from rillnode.codecs.streamr.json_text import read_json
from rillnode.codecs.streamr.message import decode_message, stored_text
from rillnode.codecs.streamr.sort_keys import published_keys
from rillnode.codecs.streamr.stream_message import (
    MessageId,
    MessageRef,
    SignatureType,
    StreamMessage,
)

CHAIN: Final = "rillnode"
"""The chain of what a node carries for clients of other protocols."""

CARRIED_KEYS: Final = b"o"
"""Begins the secondary keys of entries that came in such messages."""

_IDENTITY_CHARS: Final = 64
_ANY: Final = msgspec.json.Decoder[Any](Any)


class _Carried(msgspec.Struct, array_like=True):
    """Which message an entry of bytes came in; kept beside the entry."""

    publisher_id: str
    timestamp: int
    sequence: int
    previous: tuple[int, int] | None = None


_CARRIED: Final = msgspec.json.Decoder(_Carried)


class Item(NamedTuple):
    """A message of another node as it is appended."""

    kind: EntryKind
    entry: NewEntry
    meta: bytes
    keys: Sequence[bytes]


def is_carried(message: StreamMessage) -> bool:
    """Whether a node carries it for clients of other protocols."""
    name = message.id
    return (
        name.chain_id == CHAIN
        and len(name.publisher_id) == _IDENTITY_CHARS
        and message.signature_type == SignatureType.NONE
    )


def is_own(entry: Entry) -> bool:
    """Whether a client of this node has pushed an entry as bytes: its node numbers it."""
    return entry.kind is EntryKind.BYTES and not entry.meta


class Renderer:
    """Makes messages of the entries of one stream partition.

    Args:
        record: the stream.
        partition: the partition.
        identity: the node's.
    """

    def __init__(self, record: StreamRecord, partition: int, identity: str) -> None:
        self._record = record
        self._partition = partition
        self._identity = identity

    def message(self, entry: Entry, previous: int | None = None) -> StreamMessage | None:
        """The message of an entry; None where it has none.

        Args:
            entry: an entry of the log.
            previous: index of the entry before it that this node has taken as bytes, where known.
        """
        match entry.kind:
            case EntryKind.STREAMR:
                try:
                    return decode_message(entry.data)
                except CodecError:
                    return None
            case EntryKind.BYTES:
                return self._carrying(entry, previous)
            case _:
                return None

    def _carrying(self, entry: Entry, previous: int | None) -> StreamMessage:
        if entry.meta:
            said = _CARRIED.decode(entry.meta)
        else:
            created = self._record.created_at
            before = None if previous is None else (created, previous)
            said = _Carried(self._identity, created, entry.index, before)
        name = MessageId(
            self._record.name,
            self._partition,
            said.timestamp,
            said.sequence,
            said.publisher_id,
            CHAIN,
        )
        before = said.previous
        return StreamMessage(
            id=name,
            content=_content(NewEntry(entry.data, entry.pushed_key, entry.encoded_headers)),
            previous=None if before is None else MessageRef(*before),
        )


def item_of(message: StreamMessage, text: bytes | None) -> Item:
    """What another node's message becomes in the log.

    Raises:
        CodecError: it cannot be kept.
    """
    keys = [key for key, _ in published_keys([message.id])]
    if not is_carried(message):
        entry = NewEntry(stored_text(message, text))
        return Item(EntryKind.STREAMR, entry, expiry_of(message), keys)
    name, previous = message.id, message.previous
    before = None if previous is None else (previous.timestamp, previous.sequence or 0)
    said = _Carried(name.publisher_id, name.timestamp, name.sequence, before)
    carried = [CARRIED_KEYS + key[1:] for key in keys if key.startswith(b"p")]
    return Item(EntryKind.BYTES, _entry(message.content), msgspec.json.encode(said), carried)


def _content(entry: NewEntry) -> str:
    """JSON texts as they are; in base64 anything else, and what could be taken for that as well.

    So is what has a key or headers, which stand there beside the data.
    """
    try:
        text = entry.data.decode()
        if entry.key is None and not entry.headers and _base64_in(text) is None:
            return text
    except (UnicodeDecodeError, CodecError):
        pass
    parts = {"data": entry.data, "key": entry.key, "headers": entry.headers or None}
    given = {name: part for name, part in parts.items() if part is not None}
    return msgspec.json.encode(given).decode()  # which writes bytes in base64


def _entry(content: str) -> NewEntry:
    """What `_content` was made of.

    Raises:
        CodecError: `network.content`; as `read_json`; or as of data, a key or headers beyond their
            limit.
    """
    try:
        encoded = _base64_in(content)
        if encoded is None:
            encoded_content = content.encode()
            check_entry_size(len(encoded_content))
            return NewEntry(encoded_content)
        parts = {name: base64.b64decode(part, validate=True) for name, part in encoded.items()}
    except ValueError:
        raise CodecError("network.content", "a carried entry is JSON or base64") from None
    key, headers = parts.get("key"), parts.get("headers", b"")
    check_entry_size(len(parts["data"]))
    check_key_size(len(key or b""))
    check_headers_size(len(headers))
    check_headers((headers,))
    return NewEntry(parts["data"], key, headers)


def _base64_in(text: str) -> dict[str, str] | None:
    """What a JSON object has that holds texts only: `data`, and perhaps `key` and `headers`.

    Raises:
        CodecError: as `read_json`.
    """
    match read_json(_ANY, text):
        case {"data": _, **others} as found if others.keys() <= {"key", "headers"}:
            return found if all(isinstance(one, str) for one in found.values()) else None
        case _:
            return None
