"""Signed stream messages for the tests of the Spark pipeline."""

from msgspec.structs import replace

from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.message import MessageId, MessageRef, StreamMessage, encode_message
from rillnode.codecs.streamr.signing import sign_message

KEY = EthereumKey(b"\x11" * 32)
START_MS = 1_700_000_000_000


def make_message(
    ts: int,
    *,
    previous: int | None = None,
    content: str = '{"n":1}',
    chain: str = "c",
    stream: str = "s",
    signed: bool = False,
    **changes: object,
) -> bytes:
    """A message `ts` milliseconds after START_MS as version 32."""
    message = StreamMessage(
        id=MessageId(stream, 0, START_MS + ts, 0, KEY.address, chain),
        previous=None if previous is None else MessageRef(START_MS + previous, 0),
        content=content,
    )
    message = replace(message, **changes)
    return encode_message(sign_message(message, KEY) if signed else message, 32).encode()
