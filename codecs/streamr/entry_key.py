"""Tells the key of what a Streamr client has published: its publisher and message chain.

Messages of one chain of one publisher follow each other, as entries of one key do.
"""

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.message import decode_message
from rillnode.codecs.streamr.stream_message import MessageId


def key_of(data: bytes) -> bytes | None:
    """The key of an entry's data; None where that is no message."""
    try:
        return key_of_name(decode_message(data).id)
    except CodecError:
        return None


def key_of_name(name: MessageId) -> bytes:
    """The key of the entry that a message becomes: `publisher/chain`, the publisher lower case."""
    return f"{name.publisher_id.lower()}/{name.chain_id}".encode()
