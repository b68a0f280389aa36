import pytest
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import GroupKey
from rillnode.codecs.streamr.key_exchange import GroupKeyReset, GroupKeyResponse
from rillnode.codecs.streamr.key_messages import KeyMessageWriter, KeyStore, read_key_message
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.signing import Verdict, verify_message
from streamr_keys_support import FIRST, PUBLISHER, SECOND, STRANGER, SUBSCRIBER

RESPONSE = GroupKeyResponse("r", "s", ())


def test_store_keeps_publishers_apart() -> None:
    store = KeyStore()
    other = GroupKey(FIRST.id, SECOND.secret)
    store.add("0xAB", FIRST)
    store.add("0xCD", other)
    assert store.get("0xab", FIRST.id) is FIRST
    assert store.get("0xcd", FIRST.id) is other
    assert store.get("0xab", "key-3") is None
    assert list(store) == [("0xab", FIRST), ("0xcd", other)]


def test_store_forgets_the_longest_unused() -> None:
    store = KeyStore(keys_max=2)
    store.add("0xa", FIRST)
    store.add("0xb", FIRST)
    store.add("0xa", FIRST)
    assert store.get("0xb", FIRST.id)
    store.add("0xc", FIRST)
    assert (len(store), "0xA" in store, "0xB" in store) == (2, False, True)


def test_key_messages_of_a_writer_follow_each_other() -> None:
    writer = KeyMessageWriter(PUBLISHER, "chain")
    times = (50, 50, 49, 51)
    ids = [writer.write(SUBSCRIBER.address, RESPONSE, now).message.id for now in times]
    assert [(i.timestamp, i.sequence) for i in ids] == [(50, 0), (50, 1), (50, 2), (51, 0)]
    assert {(i.publisher_id, i.chain_id) for i in ids} == {(PUBLISHER.address.lower(), "chain")}


@pytest.mark.parametrize("content", [RESPONSE, GroupKeyReset("s", "k", "00")])
def test_key_message_is_read_by_its_recipient(content: GroupKeyResponse | GroupKeyReset) -> None:
    message = KeyMessageWriter(PUBLISHER, "chain").write(SUBSCRIBER.address, content, 5).message
    assert verify_message(message) is Verdict.VALID
    assert read_key_message(message, SUBSCRIBER.address) == content
    read = decode_message(encode_message(message, 32, message.layout))
    assert read_key_message(read, SUBSCRIBER.address) == content


def test_key_message_is_refused_elsewhere_and_unsigned() -> None:
    message = KeyMessageWriter(PUBLISHER, "chain").write(SUBSCRIBER.address, RESPONSE, 5).message
    with pytest.raises(CodecError, match=r"key\.stream"):
        read_key_message(message, STRANGER.address)
    with pytest.raises(CodecError, match=r"key\.stream"):
        read_key_message(replace(message, id=message.id._replace(partition=1)), SUBSCRIBER.address)
    for forged in (
        replace(message, signature_type=0, signature=None),
        replace(message, content='["r","s2",[]]'),
        replace(message, id=message.id._replace(publisher_id=STRANGER.address)),
    ):
        with pytest.raises(CodecError, match=r"key\.signature"):
            read_key_message(forged, SUBSCRIBER.address)
