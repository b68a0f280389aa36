"""Tells tables what Streamr messages say.

Contents under a group key are decrypted where there is a file of keys. Keys themselves, which
messages of other types carry, and some contents in front, come into no table.
"""

from typing import Final, Self

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.entry_key import key_of_name
from rillnode.codecs.streamr.key_lines import GroupKeys, read_lines
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
    """Reads Streamr messages.

    Args:
        keys: decrypt contents; None: none does.
    """

    kind = EntryKind.STREAMR

    def __init__(self, keys: GroupKeys | None = None) -> None:
        self._keys = keys

    def with_keys(self, text: bytes) -> Self:
        """A reader with group keys, one a line; see `key_lines`."""
        return type(self)(GroupKeys(read_lines(text)))

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
        content, fault = message.content, None
        if encrypted and message.message_type == _MESSAGE:
            try:
                opened = self._opened(message)
            except Unreadable as error:
                opened, fault = None, str(error)
            if opened is not None:
                content, encrypted = opened, False
        json = not encrypted and is_json(content)
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
            content=content,
            error=fault if encrypted or json else "the message's content is no JSON",
        )

    def payload(self, data: bytes) -> bytes:
        """The content of a message, if it is in clear or there is a key for it."""
        message = decode_message(data)
        if message.message_type != _MESSAGE:
            raise Unreadable(f"message type {message.message_type} carries no content")
        if message.encryption_type == EncryptionType.NONE:
            return message.content.encode()
        opened = self._opened(message)
        if opened is None:
            raise Unreadable(f"the content is encrypted, and there is no {_key_of(message)}")
        return opened.encode()

    def _opened(self, message: StreamMessage) -> str | None:
        """The content of an encrypted message; None where there is no key for it.

        Raises:
            Unreadable: it does not decrypt with the key that there is.
        """
        try:
            return None if self._keys is None else self._keys.open(message)
        except CodecError as error:
            raise Unreadable(f"{error.text}; tried was the {_key_of(message)}") from None


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


def _key_of(message: StreamMessage) -> str:
    """The key of a message, as users look for it."""
    if message.encryption_type == EncryptionType.RSA:
        return "group key for it: it is for the holder of an RSA key"
    named = f" {message.group_key_id!r}" if message.group_key_id else ""
    publisher, stream = message.id.publisher_id.lower(), message.id.stream_id
    return f"group key{named} of publisher {publisher} for stream {stream!r}"


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
