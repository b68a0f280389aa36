"""Streamr: what is signed or encrypted comes back, and every change of it is found."""

import json
from contextlib import suppress

from hypothesis import given, strategies as st
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import (
    GroupKey,
    decrypt,
    decrypt_message,
    encrypt,
    encrypt_message,
    load_public_key,
)
from rillnode.codecs.streamr.ethereum import EthereumKey, parse_address, recover_address
from rillnode.codecs.streamr.key_exchange import decode_encrypted_key, decode_key_content
from rillnode.codecs.streamr.key_messages import Dropped, KeyEvent, KeyStore, Opened
from rillnode.codecs.streamr.key_subscriber import KeySubscriber
from rillnode.codecs.streamr.signing import Verdict, sign_message, verify_message
from rillnode.codecs.streamr.stream_message import (
    MessageId,
    MessageRef,
    SignatureType,
    StreamMessage,
)
from streamr_keys_support import (
    FIRST,
    PUBLISHER,
    SECOND,
    SUBSCRIBER,
    counting_entropy,
    message_of,
    rsa_key,
)

NUMBERS = st.integers(0, 2**53 - 1)
KEYS = st.binary(min_size=32, max_size=32).filter(any).map(EthereumKey)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
HOSTILE = st.one_of(
    st.text(max_size=60),
    st.text('0123456789abcdefx[]",{}:-', max_size=60),
    JSON.map(lambda value: json.dumps(value)),
)


@st.composite
def signed_messages(draw: st.DrawFn) -> tuple[StreamMessage, EthereumKey]:
    key = draw(KEYS)
    message = StreamMessage(
        id=MessageId(
            draw(TEXTS), draw(NUMBERS), draw(NUMBERS), draw(NUMBERS), key.address, draw(TEXTS)
        ),
        content=draw(TEXTS),
        previous=draw(st.none() | st.builds(MessageRef, NUMBERS, NUMBERS)),
        new_group_key=draw(st.none() | TEXTS),
    )
    signature_type = draw(st.sampled_from([SignatureType.ETH, SignatureType.ETH_LEGACY]))
    return sign_message(message, key, signature_type), key


@given(signed_messages())
def test_signed_message_is_verified(signed: tuple[StreamMessage, EthereumKey]) -> None:
    assert verify_message(signed[0]) is Verdict.VALID


@given(signed_messages(), st.integers(0, 64), st.integers(0, 7))
def test_changed_signature_is_found(
    signed: tuple[StreamMessage, EthereumKey], nth: int, bit: int
) -> None:
    message, _ = signed
    raw = bytearray.fromhex((message.signature or "")[2:])
    raw[nth] ^= 1 << bit
    changed = replace(message, signature="0x" + raw.hex())
    assert verify_message(changed) in (Verdict.FORGED, Verdict.MALFORMED)


@given(signed_messages(), TEXTS.filter(bool))
def test_changed_content_is_found(signed: tuple[StreamMessage, EthereumKey], more: str) -> None:
    message, _ = signed
    changed = replace(message, content=more + message.content + more)
    assert verify_message(changed) is Verdict.FORGED


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32), st.binary(min_size=16))
def test_content_is_decrypted(plain: bytes, secret: bytes, seed: bytes) -> None:
    key = GroupKey("k", secret)
    text = encrypt(plain, key, lambda count: seed[:count])
    assert len(text) == 2 * (16 + len(plain))
    assert decrypt(text, key) == plain


@given(JSON, st.none() | st.just(SECOND), st.sampled_from([31, 32]))
def test_message_is_decrypted(value: object, next_key: GroupKey | None, version: int) -> None:
    message = StreamMessage(
        id=MessageId("s", 0, 1, 0, PUBLISHER.address, "c"),
        content=json.dumps(value),
        version=version,
    )
    encrypted = encrypt_message(message, FIRST, counting_entropy(), next_key=next_key)
    content, following = decrypt_message(encrypted, FIRST)
    assert content == message.content
    assert (following and following.secret) == (next_key and next_key.secret)


@given(HOSTILE, st.integers(0, 3), st.none() | HOSTILE)
def test_any_encrypted_text_is_opened_or_refused(
    text: str, encryption_type: int, new_group_key: str | None
) -> None:
    message = StreamMessage(
        id=MessageId("s", 0, 1, 0, PUBLISHER.address, "c"),
        content=text,
        encryption_type=encryption_type,
        new_group_key=new_group_key,
    )
    with suppress(CodecError):
        decrypt_message(message, FIRST)


@given(HOSTILE, st.integers(27, 33))
def test_any_key_content_is_read_or_refused(text: str, message_type: int) -> None:
    for read in (
        lambda: decode_key_content(message_type, text),
        lambda: decode_encrypted_key(text),
        lambda: load_public_key(text),
        lambda: parse_address(text),
        lambda: recover_address(b"", text),
        lambda: rsa_key().unwrap(text),
    ):
        with suppress(CodecError):
            read()


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, FIRST, SECOND])), max_size=12),
    st.permutations([FIRST, SECOND]),
    st.integers(0, 2),
)
def test_each_chain_comes_out_in_order_and_whole(
    sent: list[tuple[str, GroupKey | None]], order: list[GroupKey], known: int
) -> None:
    """However keys become known, or are given up, every message is told of once."""
    store = KeyStore()
    subscriber = KeySubscriber(SUBSCRIBER, rsa_key(), store, "requests", counting_entropy())
    events: list[KeyEvent] = []
    for number, (chain_id, key) in enumerate(sent):
        events += subscriber.receive(message_of(number, key, chain_id=chain_id), 0)
    for number, key in enumerate(order[:known]):
        # A message of a third chain brings the key.
        carrier = GroupKey("carrier", bytes(32))
        store.add(PUBLISHER.address, carrier)
        message = message_of(900 + number, carrier, chain_id="carrier", next_key=key)
        events += subscriber.receive(message, 0)
    while subscriber.deadline_ms is not None:
        events += subscriber.poll(subscriber.deadline_ms)
    told = [e.message.id for e in events if isinstance(e, Opened | Dropped)]
    for chain_id in "ab":
        numbers = [i.timestamp - 1_000 for i in told if i.chain_id == chain_id]
        assert numbers == [n for n, (c, _) in enumerate(sent) if c == chain_id]
    assert subscriber.locked == 0
    unknown = {key.id for key in order[known:]}
    dropped = [e.message.group_key_id for e in events if isinstance(e, Dropped)]
    assert sorted(filter(None, dropped)) == sorted(
        key.id for _, key in sent if key is not None and key.id in unknown
    )
