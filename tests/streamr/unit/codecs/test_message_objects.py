"""Messages as the objects of the REST interface."""

import json

from rillnode.codecs.streamr.message_objects import encode_object
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageId, StreamMessage

NAME = MessageId("s", 1, 1_000, 2, "0xAB", "chain")


def test_an_object_has_every_field_by_its_name() -> None:
    message = StreamMessage(id=NAME, content='{"a": 1.50}', signature_type=2, signature="0x1")
    text = encode_object(message)
    assert '"content":{"a": 1.50}' in text  # as it stands
    assert json.loads(text) == {
        "streamId": "s", "streamPartition": 1, "timestamp": 1_000, "sequenceNumber": 2,
        "publisherId": "0xAB", "msgChainId": "chain", "messageType": 27, "contentType": 0,
        "encryptionType": 0, "groupKeyId": None, "content": {"a": 1.5},
        "signatureType": 2, "signature": "0x1",
    }  # fmt: skip


def test_content_with_half_a_surrogate_pair_is_json() -> None:
    text = encode_object(StreamMessage(id=NAME, content='{"a":"\\ud83d"}'))
    assert json.loads(text)["content"] == {"a": "\ud83d"}


def test_encrypted_content_is_a_text() -> None:
    message = StreamMessage(
        id=NAME, content="1234", encryption_type=EncryptionType.AES, group_key_id="k"
    )
    found = json.loads(encode_object(message))
    assert (found["content"], found["encryptionType"], found["groupKeyId"]) == ("1234", 2, "k")


def test_content_that_is_no_json_is_a_text() -> None:
    for content in ("plain", "", '{"a":', '"', "\u20ac"):
        assert json.loads(encode_object(StreamMessage(id=NAME, content=content)))["content"] == (
            content
        )
