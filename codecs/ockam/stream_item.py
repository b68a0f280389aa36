"""Items of bi-directional streams: an entry's data when two sides talk over two streams.

    Item { return_stream: string, message: data }

Without a payload envelope. Elixir nodes write and read these; Rust nodes push bare wire messages,
whose answers go to a stream agreed on elsewhere. The two are told apart by reading: what is an
item to its last byte, with a wire message inside, is an item; anything else is a wire message or
nothing. A wire message that also reads as an item does not occur: its first byte, the version 1,
would be the length of a stream's name.

Source: ockam-network/proposals, design 0009, bidirectional_worker; the Elixir nodes since 2021-05.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from rillnode.codecs.bare import Codec
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import WireMessage, decode_message, encode_message


class StreamItem(Struct):
    """One item.

    Attributes:
        return_stream: name of the stream that answers are pushed to.
        message: a wire message, encoded.
    """

    return_stream: str
    message: bytes


STREAM_ITEM: Final[Codec[StreamItem]] = Codec(StreamItem)


class StreamMessage(NamedTuple):
    """A message out of a stream, and where its answers go; None: no stream is named."""

    return_stream: str | None
    message: WireMessage


def decode_entry(data: bytes) -> StreamMessage:
    """Decode an entry's data, in the form of either language.

    Raises:
        CodecError: it is neither; the code and offset are those of the reading as a wire message.
    """
    try:
        item, end = STREAM_ITEM.decode_prefix(data, lenient=True)
        if end == len(data):
            return StreamMessage(item.return_stream, decode_message(item.message))
    except CodecError:
        pass
    return StreamMessage(None, decode_message(data))


def encode_entry(return_stream: str, message: WireMessage) -> bytes:
    """Encode an item.

    Raises:
        CodecError: `codec.limit`, a route or an address over its limit.
    """
    return STREAM_ITEM.encode(StreamItem(return_stream, encode_message(*message)))
