"""Tells tables what Streamr messages say."""

from typing import Final

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.entry_key import key_of_name
from rillnode.codecs.streamr.message import EncryptionType, StreamMessage, decode_message
from rillnode.codecs.streamr.signing import verify_message
from rillnode.node.entries import (
    Decoded,
    EntryReader,
    Metadata,
    Unreadable,
    is_json,
    number_within,
    time_within,
)

_MESSAGE: Final = 27
"""The type of a message that carries content; others carry keys."""


class StreamrEntries(EntryReader):
    """Reads Streamr messages."""

    kind = EntryKind.STREAMR

    def metadata(self, data: bytes) -> Metadata:
        """What a message says."""
        return _metadata(decode_message(data))

    def decoded(self, data: bytes) -> Decoded:
        """A message, and what its signature is worth."""
        message = decode_message(data)
        said, name = _metadata(message), message.id
        if said.ts is None or (message.previous is not None and said.prev_ts is None):
            raise CodecError("streamr.time", "a time of the message is after the year 9999")
        encrypted = message.encryption_type != EncryptionType.NONE
        json = not encrypted and is_json(message.content)
        return Decoded(
            event_id=f"{said.publisher}/{said.chain}/{name.timestamp}/{name.sequence}",
            ts=said.ts,
            publisher=said.publisher,
            chain=said.chain,
            seq=said.seq,
            prev_ts=said.prev_ts,
            prev_seq=said.prev_seq,
            message_type=message.message_type,
            encryption=said.enc,
            group_key_id=message.group_key_id,
            signature=verify_message(message).value,
            format="encrypted" if encrypted else "json" if json else "text",
            content=message.content,
            error=None if encrypted or json else "the message's content is no JSON",
        )

    def payload(self, data: bytes) -> bytes:
        """The content of a message that is not encrypted."""
        message = decode_message(data)
        if message.message_type != _MESSAGE:
            raise Unreadable(f"message type {message.message_type} carries no content")
        if message.encryption_type != EncryptionType.NONE:
            raise Unreadable("the content is encrypted, and there is no key for it")
        return message.content.encode()


def _metadata(message: StreamMessage) -> Metadata:
    name, previous = message.id, message.previous
    return Metadata(
        ts=time_within(name.timestamp),
        publisher=name.publisher_id.lower(),
        chain=name.chain_id,
        seq=number_within(name.sequence),
        prev_ts=None if previous is None else time_within(previous.timestamp),
        prev_seq=None if previous is None else number_within(previous.sequence),
        sig=_signature(message.signature),
        enc=_encryption_name(message.encryption_type),
        key=key_of_name(name),
    )


def _encryption_name(number: int) -> str:
    """The name of an encryption type; its number where it has no name."""
    try:
        return EncryptionType(number).name.lower()
    except ValueError:
        return str(number)


def _signature(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return None
