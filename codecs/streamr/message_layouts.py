"""Layouts of stream messages: the arrays of each version, as schemas that read them.

    28  [28, stream, partition, timestamp, ttl, offset, previous_offset, 27, content]
    29  the same and signature_type, address, signature
    30  [30, id, previous, message_type, content, signature_type, signature]
    31  [31, id, previous, message_type, encryption_type, content, signature_type, signature]
    32  [32, id, previous, message_type, content_type, encryption_type, group_key_id, content,
         new_group_key, signature_type, signature]

    id = [stream, partition, timestamp, sequence, publisher, chain]
    previous = null | [timestamp, sequence]

Released readers pass over elements at the end that they do not know, and take those missing after
the content as absent; so do these. A content that is no text but null, an object or an array, is
the text that JavaScript makes of it, however it is written there: that is what released readers
pass on, and what its signature is over. A partition or sequence that is null is 0, as the
specifications say; version 30 may leave publisher and chain null as well: empty.

The specifications' own layouts are taken only where number and types of the elements are exactly
theirs, which no released array can be:

    30  [30, stream, partition, timestamp, sequence, producer, previous_timestamp,
         previous_sequence, ttl, 27, content, signature_type, signature]
    32  [32, id, previous, message_type, content_type, encryption_type, group_key_id, content,
         signature_type, signature]

The second's examples have nine elements, without `group_key_id`, and contents that are arrays.

Source: streamr-client-protocol-js 1.2 to 8.0; "Streamr Protocol" of 2018-11 (30) and 2020-07 (32).
"""

from typing import Final, Literal, Protocol

from msgspec import Raw, Struct
from msgspec.json import Decoder

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.json_text import (
    Name,
    Number,
    Text,
    javascript_text,
    read_json,
    whole,
)
from rillnode.codecs.streamr.stream_message import Layout, MessageId, MessageRef, StreamMessage

_STRING: Final = Decoder(str)


class RefArray(Struct, array_like=True, frozen=True):
    """A reference, for which released readers want no sequence."""

    timestamp: Number
    sequence: Number | None = None

    def to_ref(self) -> MessageRef:
        """The reference that this is; raises `codec.field`."""
        sequence = self.sequence
        return MessageRef(
            whole(self.timestamp, "timestamp"),
            None if sequence is None else whole(sequence, "sequence"),
        )


class _IdArray(Struct, array_like=True, frozen=True):
    stream_id: Name
    partition: Number | None
    timestamp: Number
    sequence: Number | None
    publisher_id: str
    chain_id: str


class _LooseIdArray(Struct, array_like=True, frozen=True):
    stream_id: Name
    partition: Number | None
    timestamp: Number
    sequence: Number | None = None
    publisher_id: str | None = None
    chain_id: str | None = None


class _KeyArray(Struct, array_like=True, frozen=True):
    group_key_id: str
    encrypted_key: str


_KEY: Final = Decoder(_KeyArray)


class _LayoutSchema(Protocol):
    def to_message(self) -> StreamMessage: ...


class _V28(Struct, array_like=True, frozen=True):
    version: Raw
    stream_id: Name
    partition: Number
    timestamp: Number
    ttl: Number | None
    offset: Number | None
    previous_offset: Number | None
    message_type: Literal[27]
    content: Raw

    def to_message(self) -> StreamMessage:
        return _old_message(self, 28, "", 0, None)


class _V29(_V28, array_like=True, frozen=True):
    signature_type: Literal[0, 1, 2] = 0
    address: str | None = None
    signature: str | None = None

    def to_message(self) -> StreamMessage:
        return _old_message(self, 29, self.address or "", self.signature_type, self.signature)


class _V30(Struct, array_like=True, frozen=True):
    version: Raw
    id: _LooseIdArray
    previous: RefArray | None
    message_type: Literal[27, 28, 29, 30, 31]
    content: Raw
    signature_type: Literal[0, 1, 2] = 0
    signature: str | None = None

    def to_message(self) -> StreamMessage:
        message_id = _message_id(self.id)
        return StreamMessage(
            id=message_id,
            previous=_previous(self.previous, message_id),
            message_type=self.message_type,
            content=_content(self.content),
            signature_type=self.signature_type,
            signature=self.signature,
            version=30,
        )


class _V31(Struct, array_like=True, frozen=True):
    version: Raw
    id: _IdArray
    previous: RefArray | None
    message_type: Literal[27, 28, 29, 30, 31]
    encryption_type: Literal[0, 1, 2, 3]
    content: Raw
    signature_type: Literal[0, 1, 2] = 0
    signature: str | None = None

    def to_message(self) -> StreamMessage:
        message_id = _message_id(self.id)
        return StreamMessage(
            id=message_id,
            previous=_previous(self.previous, message_id),
            message_type=self.message_type,
            encryption_type=self.encryption_type,
            content=_content(self.content),
            signature_type=self.signature_type,
            signature=self.signature,
            version=31,
        )


class _V32(Struct, array_like=True, frozen=True):
    version: Raw
    id: _IdArray
    previous: RefArray | None
    message_type: Literal[27, 28, 29, 30, 31]
    content_type: Literal[0]
    encryption_type: Literal[0, 1, 2]
    group_key_id: str | None
    content: Raw
    new_group_key: str | None = None
    signature_type: Literal[0, 1, 2] = 0
    signature: str | None = None

    def to_message(self) -> StreamMessage:
        message_id = _message_id(self.id)
        _check_new_key(self.new_group_key)
        return StreamMessage(
            id=message_id,
            previous=_previous(self.previous, message_id),
            message_type=self.message_type,
            content_type=self.content_type,
            encryption_type=self.encryption_type,
            group_key_id=self.group_key_id,
            content=_content(self.content),
            new_group_key=self.new_group_key,
            signature_type=self.signature_type,
            signature=self.signature,
        )


class _Flat30(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    version: Raw
    stream_id: Name
    partition: Number | None
    timestamp: Number
    sequence: Number | None
    producer_id: str
    previous_timestamp: Number | None
    previous_sequence: Number | None
    ttl: Number | None
    content_type: Literal[27]
    content: str
    signature_type: Literal[0, 1, 2]
    signature: str | None

    def to_message(self) -> StreamMessage:
        message_id = MessageId(
            self.stream_id,
            whole(self.partition or 0, "partition"),
            whole(self.timestamp, "timestamp"),
            whole(self.sequence or 0, "sequence"),
            self.producer_id,
            "",
        )
        previous = None
        if self.previous_timestamp is not None:
            previous = RefArray(self.previous_timestamp, self.previous_sequence)
        return StreamMessage(
            id=message_id,
            previous=_previous(previous, message_id),
            content=_not_empty(self.content),
            signature_type=self.signature_type,
            signature=self.signature,
            version=30,
            layout=Layout.SPECIFICATION,
            ttl=_whole_or_none(self.ttl, "ttl"),
        )


class _Nine32(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    version: Raw
    id: _IdArray
    previous: RefArray | None
    message_type: Literal[27, 28, 29, 30, 31, 32]
    content_type: Literal[0]
    encryption_type: Literal[0, 1, 2]
    content: Raw
    signature_type: Literal[0, 1, 2]
    signature: str | None

    def to_message(self) -> StreamMessage:
        return _specified_message(self, None)


class _Ten32(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    version: Raw
    id: _IdArray
    previous: RefArray | None
    message_type: Literal[27, 28, 29, 30, 31, 32]
    content_type: Literal[0]
    encryption_type: Literal[0, 1, 2]
    group_key_id: str | None
    content: Raw
    signature_type: Literal[0, 1, 2]
    signature: str | None

    def to_message(self) -> StreamMessage:
        return _specified_message(self, self.group_key_id)


class _Start32(Struct, array_like=True, frozen=True):
    version: Raw
    id: Raw
    previous: Raw
    message_type: Raw
    content_type: Raw
    encryption_type: Raw
    group_key_id: Raw
    content: Raw


_START_32: Final = Decoder(_Start32)

_LAYOUTS: Final[dict[int, tuple[Decoder[_LayoutSchema], ...]]] = {
    28: (Decoder(_V28),),
    29: (Decoder(_V29),),
    30: (Decoder(_V30), Decoder(_Flat30)),
    31: (Decoder(_V31),),
    32: (Decoder(_V32), Decoder(_Ten32), Decoder(_Nine32)),
}

VERSIONS: Final = tuple(_LAYOUTS)


def read_layout(version: int, text: Text) -> StreamMessage:
    """Read an array of one of VERSIONS in whichever of its layouts it is.

    Raises:
        CodecError: as `read_json`, and `codec.field`; that of the released layout where none fits.
    """
    reason: CodecError | None = None
    for reader in _LAYOUTS[version]:
        try:
            return read_json(reader, text).to_message()
        except CodecError as error:
            if error.code != "codec.field":
                raise
            reason = reason or error
    assert reason
    raise reason


def content_is_string(text: Text) -> bool:
    """Whether a message of version 32 has its content as a string, not as a value.

    Args:
        text: what a message was decoded from.

    Raises:
        CodecError: as `read_json`.
    """
    start = read_json(_START_32, text)
    last = bytes(start.content)
    # Of nine elements the content is the one before, and its signature's type stands here.
    content = bytes(start.group_key_id) if last[:1].isdigit() else last
    return content[:1] == b'"'


def _old_message(
    old: _V28, version: int, publisher_id: str, signature_type: int, signature: str | None
) -> StreamMessage:
    return StreamMessage(
        id=MessageId(
            old.stream_id,
            whole(old.partition, "partition"),
            whole(old.timestamp, "timestamp"),
            0,
            publisher_id,
            "",
        ),
        content=_content(old.content),
        signature_type=signature_type,
        signature=signature,
        version=version,
        ttl=_whole_or_none(old.ttl, "ttl"),
        offset=_whole_or_none(old.offset, "offset"),
        previous_offset=_whole_or_none(old.previous_offset, "previous offset"),
    )


def _specified_message(array: _Ten32 | _Nine32, group_key_id: str | None) -> StreamMessage:
    message_id = _message_id(array.id)
    return StreamMessage(
        id=message_id,
        previous=_previous(array.previous, message_id),
        message_type=array.message_type,
        content_type=array.content_type,
        encryption_type=array.encryption_type,
        group_key_id=group_key_id,
        content=_content(array.content),
        signature_type=array.signature_type,
        signature=array.signature,
        layout=Layout.SPECIFICATION,
    )


def _message_id(array: _IdArray | _LooseIdArray) -> MessageId:
    return MessageId(
        array.stream_id,
        whole(array.partition or 0, "partition"),
        whole(array.timestamp, "timestamp"),
        whole(array.sequence or 0, "sequence"),
        array.publisher_id or "",
        array.chain_id or "",
    )


def _previous(array: RefArray | None, message_id: MessageId) -> MessageRef | None:
    if array is None:
        return None
    previous = array.to_ref()
    if (previous.timestamp, previous.sequence or 0) >= (message_id.timestamp, message_id.sequence):
        text = "the previous message's reference is not before the message's own"
        raise CodecError("codec.field", text)
    return previous


def _check_new_key(text: str | None) -> None:
    if text is not None:
        try:
            read_json(_KEY, text)
        except CodecError:
            reason = "the new group key is not the text of an id and a key"
            raise CodecError("codec.field", reason) from None


def _content(raw: Raw) -> str:
    text = bytes(raw)
    match text[:1]:
        case b'"':
            return _not_empty(read_json(_STRING, text))
        case b"{" | b"[" | b"n":
            return javascript_text(text.decode())
        case _:
            raise CodecError("codec.field", "content is a bare number or a boolean")


def _not_empty(content: str) -> str:
    if not content:
        raise CodecError("codec.field", "content is empty")
    return content


def _whole_or_none(number: int | float | None, name: str) -> int | None:
    return None if number is None else whole(number, name)
