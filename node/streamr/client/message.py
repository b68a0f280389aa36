"""A message as an application gets it."""

from dataclasses import dataclass
from typing import Any

from rillnode.codecs.streamr.json_text import read_value
from rillnode.codecs.streamr.stream_message import EncryptionType, StreamMessage


@dataclass(frozen=True, slots=True)
class Message:
    """One message, verified and in clear.

    Attributes:
        content: what its JSON says.
        text: exactly that JSON, decrypted where it was encrypted.
        source: the message as it came, with its number, signature and encryption.
    """

    content: Any
    text: str
    source: StreamMessage

    @property
    def stream_id(self) -> str:
        """The stream that it is on."""
        return self.source.id.stream_id

    @property
    def partition(self) -> int:
        """The partition that it is on."""
        return self.source.id.partition

    @property
    def timestamp(self) -> int:
        """When it was published, as its publisher says: milliseconds since 1970."""
        return self.source.id.timestamp

    @property
    def publisher(self) -> str:
        """Who published it: an address, in the case it came in, or an unsigned publisher's id."""
        return self.source.id.publisher_id

    @property
    def is_signed(self) -> bool:
        """Whether its publisher has proved to be one."""
        return self.source.signature is not None

    @property
    def is_encrypted(self) -> bool:
        """Whether it was encrypted on its way."""
        return self.source.encryption_type != EncryptionType.NONE


def message_of(source: StreamMessage, text: str) -> Message:
    """Read a message's content.

    Raises:
        CodecError: it is no JSON.
    """
    return Message(read_value(text), text, source)
