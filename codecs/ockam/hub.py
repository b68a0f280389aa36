"""Payloads of a hub's plain services: one BARE string, without a protocol's envelope.

    static_forwarding   request and answer: the alias's name; see `api` for its other interface
    pub_sub             request and answer: "name:topic", the subscriber's name and the topic
    uppercase           request and answer: any text

Source: the Elixir nodes of 2021-08 to 2024-10 (static_forwarding, pub_sub), the Rust nodes
(uppercase).
"""

from typing import Final, NamedTuple

from rillnode.codecs.bare import Codec
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import NAME_BYTES_MAX

TEXT: Final[Codec[str]] = Codec(str)


class TopicName(NamedTuple):
    """A subscriber's name and its topic."""

    subscriber: str
    topic: str


def decode_name(payload: bytes) -> str:
    """Decode an alias's name.

    Raises:
        CodecError: no BARE string, bytes after it, or not 1 to NAME_BYTES_MAX bytes of text.
    """
    name = TEXT.decode(payload)
    _check(name)
    return name


def read_name(data: bytes) -> str:
    """Read an alias's name that stands alone, as a request's body in the form of `api`.

    Raises:
        CodecError: no text, or not 1 to NAME_BYTES_MAX bytes of it.
    """
    try:
        name = data.decode()
    except UnicodeDecodeError as error:
        raise CodecError("codec.utf8", "no text", offset=error.start) from None
    _check(name)
    return name


def decode_topic(payload: bytes) -> TopicName:
    """Decode a subscription to a topic.

    Raises:
        CodecError: as `decode_name` does, for both names; `hub.topic`, not exactly one colon.
    """
    text = TEXT.decode(payload)
    subscriber, colon, topic = text.partition(":")
    if not colon or ":" in topic:
        raise CodecError("hub.topic", "a subscription is a name, a colon and a topic")
    _check(subscriber)
    _check(topic)
    return TopicName(subscriber, topic)


def uppercase(payload: bytes) -> bytes:
    """Write a text in capitals: a BARE string as such, any other payload as plain text.

    Raises:
        CodecError: `codec.utf8`, the payload is neither.
    """
    try:
        return TEXT.encode(TEXT.decode(payload).upper())
    except CodecError:
        try:
            return payload.decode().upper().encode()
        except UnicodeDecodeError as error:
            raise CodecError("codec.utf8", "no text", offset=error.start) from None


def _check(name: str) -> None:
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise CodecError("codec.limit", f"a name has 1 to {NAME_BYTES_MAX} bytes")
