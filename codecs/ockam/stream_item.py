"""Items of bi-directional streams: what an entry's data is when two sides talk over two streams.

    Item { return_stream: string, message: data }

Without a payload envelope. Elixir nodes write and read these; Rust nodes push bare wire messages.

Source: ockam-network/proposals, design 0009, bidirectional_worker; the Elixir nodes since 2021-05.
"""

from dataclasses import dataclass
from typing import Final

from rillnode.codecs.bare import Codec


@dataclass(slots=True)
class StreamItem:
    """One item.

    Attributes:
        return_stream: name of the stream that answers are pushed to.
        message: a wire message, encoded.
    """

    return_stream: str
    message: bytes


STREAM_ITEM: Final[Codec[StreamItem]] = Codec(StreamItem)
