"""Stream messages as the REST interface tells them: JSON objects with a name for each field."""

from msgspec import Raw

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.json_text import check_value, write_json
from rillnode.codecs.streamr.stream_message import EncryptionType, StreamMessage


def encode_object(message: StreamMessage) -> str:
    """Write a message as an object; its content is JSON of its own unless it is encrypted.

    Raises:
        CodecError: `codec.utf8`.

    Source: streamr-client-protocol 8.0.2, StreamMessage.toObject.
    """
    name = message.id
    return write_json(
        {
            "streamId": name.stream_id,
            "streamPartition": name.partition,
            "timestamp": name.timestamp,
            "sequenceNumber": name.sequence,
            "publisherId": name.publisher_id,
            "msgChainId": name.chain_id,
            "messageType": int(message.message_type),
            "contentType": int(message.content_type),
            "encryptionType": int(message.encryption_type),
            "groupKeyId": message.group_key_id,
            "content": _content(message),
            "signatureType": int(message.signature_type),
            "signature": message.signature,
        }
    )


def _content(message: StreamMessage) -> Raw | str:
    """What is encrypted, or is no JSON although it should be, is told as a text."""
    if message.encryption_type == EncryptionType.NONE:
        try:
            check_value(message.content)
            return Raw(message.content)
        except CodecError:
            pass
    return message.content
