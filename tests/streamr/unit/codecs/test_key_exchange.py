import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.key_exchange import (
    DatedKey,
    DatedKeyRequest,
    DatedKeyReset,
    DatedKeyResponse,
    EncryptedKey,
    GroupKeyAnnounce,
    GroupKeyErrorResponse,
    GroupKeyRequest,
    GroupKeyReset,
    GroupKeyResponse,
    GroupKeyRotate,
    KeyContent,
    KeyRange,
    decode_encrypted_key,
    decode_key_content,
    encode_key_content,
    is_key_stream,
    key_stream_of,
    types_of,
)
from rillnode.codecs.streamr.limits import STREAMR_KEY_IDS_MAX
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageType

CONTENTS: list[tuple[KeyContent, int, str]] = [
    (GroupKeyRequest("r", "s", "pem", ("a", "b")), 28, '["r","s","pem",["a","b"]]'),
    (GroupKeyResponse("r", "s", (EncryptedKey("a", "00"),)), 29, '["r","s",[["a","00"]]]'),
    (GroupKeyAnnounce("s", (EncryptedKey("a", "00"),)), 30, '["s",[["a","00"]]]'),
    (GroupKeyErrorResponse("r", "s", "C", "why", ("a",)), 31, '["r","s","C","why",["a"]]'),
    (GroupKeyReset("s", "a", "00"), 30, '["s","a","00"]'),
    (GroupKeyRotate("a", "00"), 32, '["a","00"]'),
    (DatedKeyRequest(public_key="pem", stream_id="s"), 28, '{"publicKey":"pem","streamId":"s"}'),
    (
        DatedKeyRequest(public_key="pem", stream_id="s", range=KeyRange(start=1, end=2)),
        28,
        '{"publicKey":"pem","streamId":"s","range":{"start":1,"end":2}}',
    ),
    (
        DatedKeyResponse(stream_id="s", keys=(DatedKey(group_key="00", start=5),)),
        29,
        '{"streamId":"s","keys":[{"groupKey":"00","start":5}]}',
    ),
    (
        DatedKeyReset(stream_id="s", group_key="00", start=5),
        30,
        '{"streamId":"s","groupKey":"00","start":5}',
    ),
]


@each_row(CONTENTS)
def test_content_is_read_and_written(content: KeyContent, message_type: int, text: str) -> None:
    assert encode_key_content(content) == text
    assert decode_key_content(message_type, text) == content
    assert types_of(content)[0] == message_type


def test_what_carries_keys_is_sent_as_encrypted() -> None:
    encrypted = {MessageType.GROUP_KEY_RESPONSE, MessageType.GROUP_KEY_ANNOUNCE}
    for content, message_type, _ in CONTENTS:
        is_encrypted = types_of(content)[1] == EncryptionType.RSA
        assert is_encrypted == (message_type in encrypted)


def test_the_specifications_examples_of_key_pairs_are_read() -> None:
    pair = EncryptedKey("keyId", "123abc")
    response = '["requestId","streamId",["keyId","123abc"]]'
    assert decode_key_content(29, response) == GroupKeyResponse("requestId", "streamId", (pair,))
    assert decode_key_content(30, '["keyId","123abc"]') == GroupKeyReset("", "keyId", "123abc")
    assert decode_key_content(32, '["keyId","123abc"]') == GroupKeyRotate("keyId", "123abc")


def test_elements_beyond_the_known_are_ignored() -> None:
    assert decode_key_content(32, '["a","00",1,null]') == GroupKeyRotate("a", "00")


@each_row(
    [
        (27, "[]", "key.type"),
        (33, "[]", "key.type"),
        (31, "{}", "codec.field"),
        (27, "{}", "key.type"),
        (32, "{}", "key.type"),
        (28, "", "codec.json"),
        (28, "[" * 100_000, "codec.limit"),
        (28, "null", "codec.field"),
        (30, "5", "codec.field"),
        (30, '"s"', "codec.field"),
        (30, "[]", "codec.field"),
        (30, '["s"]', "codec.field"),
        (30, '["","a","00"]', "codec.field"),
        (30, '["s",null]', "codec.field"),
        (28, '["r","s","pem"]', "codec.field"),
        (28, '["r","","pem",[]]', "codec.field"),
        (28, '["r","s","pem",[1]]', "codec.field"),
        (28, '[null,"s","pem",[]]', "codec.field"),
        (29, '["r","s",["a"]]', "codec.field"),
        (29, '["r","s",["a",["00"]]]', "codec.field"),
        (29, '["r","s",[["a"]]]', "codec.field"),
        (29, '{"streamId":"s","keys":[{"groupKey":"00","start":-1}]}', "codec.field"),
        (28, '["r","s","pem",["k"' + ',"k"' * STREAMR_KEY_IDS_MAX + "]]", "codec.field"),
    ]
)
def test_no_content(message_type: int, text: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_key_content(message_type, text)
    assert caught.value.code == code


def test_no_encrypted_key() -> None:
    with pytest.raises(CodecError, match=r"codec\.field"):
        decode_encrypted_key('["k"]')


def test_key_stream_is_named_by_its_address_in_lower_case() -> None:
    stream_id = key_stream_of("0x" + "AB" * 20)
    assert stream_id == "SYSTEM/keyexchange/0x" + "ab" * 20
    assert is_key_stream(stream_id)
    assert is_key_stream("0x" + "ab" * 20)
    assert not any(map(is_key_stream, ("sandbox/test", "0x" + "ab" * 19, "0x" + "ab" * 20 + "/a")))
    with pytest.raises(CodecError, match=r"ethereum\.address"):
        key_stream_of("somebody")
