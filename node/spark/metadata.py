"""Reads the metadata columns of the bronze schema from an entry's bytes.

Nothing is checked but the form: an entry whose bytes are not what their kind promises has no
metadata and keeps its bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.entry_key import key_of_topic as nextgraph_key
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.types import DirectPeer, ForwardedPeer, PeerId
from rillnode.codecs.streamr.entry_key import key_of_name as streamr_key
from rillnode.codecs.streamr.message import EncryptionType, StreamMessage, decode_message
from rillnode.node.spark.tables import BRONZE_SCHEMA

_INT64_MAX: Final = 2**63 - 1
TIME_MS_MAX: Final = 253_402_300_799_999
"""Last millisecond of the year 9999: readers such as pandas have no later time."""


class Metadata(NamedTuple):
    """Columns of the bronze schema; times in milliseconds since 1970.

    Attributes:
        publisher: an Ethereum address in lower case, or a NextGraph peer's key, hex.
        chain: Streamr's message chain, NextGraph's topic (hex).
        sig: the publisher's signature.
        enc: how the content is encrypted: none, rsa, aes, new_key_and_aes.
        key: the entry's key, as its protocol knows it.
    """

    ts: int | None = None
    publisher: str | None = None
    chain: str | None = None
    seq: int | None = None
    prev_ts: int | None = None
    prev_seq: int | None = None
    sig: bytes | None = None
    enc: str | None = None
    key: bytes | None = None


NO_METADATA: Final = Metadata()
_TIMES: Final = frozenset({"ts", "prev_ts"})


def read_metadata(kind: int, data: bytes) -> Metadata:
    """The metadata of one entry; none where it does not have its protocol's form."""
    reader = _READERS.get(kind)
    if reader is None:
        return NO_METADATA
    try:
        return reader(data)
    except CodecError:
        return NO_METADATA


def metadata_arrays(rows: Iterable[Metadata]) -> Mapping[str, pa.Array]:
    """Columns of the bronze schema, by name."""
    columns = list(zip(*rows, strict=True)) or [()] * len(Metadata._fields)
    arrays: dict[str, pa.Array] = {}
    for name, values in zip(Metadata._fields, columns, strict=True):
        kind = BRONZE_SCHEMA.field(name).type
        if name in _TIMES:
            micros = [None if value is None else value * 1000 for value in values]
            arrays[name] = pa.array(micros, pa.int64()).cast(kind)
        else:
            arrays[name] = pa.array(values, kind)
    return arrays


def streamr_metadata(message: StreamMessage) -> Metadata:
    """What a Streamr message says; numbers that no column can hold are left out."""
    name, previous = message.id, message.previous
    return Metadata(
        ts=_within(name.timestamp, TIME_MS_MAX),
        publisher=name.publisher_id.lower(),
        chain=name.chain_id,
        seq=_within(name.sequence, _INT64_MAX),
        prev_ts=None if previous is None else _within(previous.timestamp, TIME_MS_MAX),
        prev_seq=None if previous is None else _within(previous.sequence, _INT64_MAX),
        sig=_signature(message.signature),
        enc=_encryption_name(message.encryption_type),
        key=streamr_key(name),
    )


def nextgraph_metadata(event: Event) -> Metadata:
    """What a NextGraph event says in clear."""
    content = event.content
    return Metadata(
        publisher=_peer_text(content.publisher),
        chain=content.topic.hex(),
        # Delta has no unsigned numbers; a sequence that large is not one that was counted.
        seq=_within(content.seq, _INT64_MAX),
        sig=event.peer_sig,
        key=nextgraph_key(content.topic),
    )


def _encryption_name(number: int) -> str:
    """The name of a Streamr message's encryption type; its number where it has no name."""
    try:
        return EncryptionType(number).name.lower()
    except ValueError:
        return str(number)


def _peer_text(peer: PeerId) -> str:
    """A NextGraph peer's key, or what hides it, hex."""
    match peer:
        case DirectPeer() | ForwardedPeer():
            return peer.key.hex()
        case _:
            return peer.digest.hex()


_READERS: Final[Mapping[int, Callable[[bytes], Metadata]]] = {
    EntryKind.STREAMR: lambda data: streamr_metadata(decode_message(data)),
    EntryKind.NEXTGRAPH: lambda data: nextgraph_metadata(EVENT.decode(data)),
}


def _within(value: int | None, most: int) -> int | None:
    """A number that the column can hold; others are left out."""
    return value if value is not None and abs(value) <= most else None


def _signature(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return None
