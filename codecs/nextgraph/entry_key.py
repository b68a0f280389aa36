"""Tells the key of what a NextGraph client has published: its topic."""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import Codec
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.types import V0, PublicKey


class _Head(Struct):
    """The begin of an Event, before its blocks."""

    topic: PublicKey


_HEAD: Final[Codec[_Head]] = Codec(Annotated[_Head, V0])


def key_of(data: bytes) -> bytes | None:
    """The key of an entry's data, its topic in hexadecimal; None where that is no event."""
    try:
        return key_of_topic(_HEAD.decode_prefix(data)[0].topic)
    except CodecError:
        return None


def key_of_topic(topic: bytes) -> bytes:
    """The key of the entries that a topic's events become."""
    return topic.hex().encode()
