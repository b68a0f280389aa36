"""Streamr: signatures, encryption, key messages and chains agree with released libraries.

The records in data/streamr_keys.json were made by running the packages that they name.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.duplicates import DuplicateDetector
from rillnode.codecs.streamr.encryption import (
    GroupKey,
    RsaKey,
    decrypt,
    decrypt_message,
    encrypt,
    encrypt_message,
    load_public_key,
    wrap,
)
from rillnode.codecs.streamr.ethereum import EthereumKey, parse_address, recover_address
from rillnode.codecs.streamr.key_exchange import (
    EncryptedKey,
    decode_encrypted_key,
    decode_key_content,
    encode_encrypted_key,
    encode_key_content,
)
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.network import Form, decode_frame, encode_frame
from rillnode.codecs.streamr.ordering import GapFound, GapSkipped, Ordered, OrderedChain
from rillnode.codecs.streamr.partition import partition_of, tracker_of
from rillnode.codecs.streamr.signing import (
    Verdict,
    sign_message,
    signed_legacy_text,
    signed_text,
    verify_message,
)
from rillnode.codecs.streamr.stream_message import (
    MessageId,
    MessageRef,
    SignatureType,
    StreamMessage,
)

DATA: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_keys.json").read_text("utf-8")
)
RECORDS: Final[list[dict[str, Any]]] = DATA["vectors"]
KEY: Final = EthereumKey.from_hex(DATA["privateKey"])
LATEST: Final = "8.0.5"
"""The release whose strictness is followed."""


def records(layer: str, prefix: str = "") -> list[Any]:
    return [
        pytest.param(record, id=record["name"])
        for record in RECORDS
        if record["layer"] == layer and record["name"].startswith(prefix)
    ]


def test_address_of_a_key() -> None:
    assert KEY.address == DATA["address"]


@pytest.mark.parametrize(
    "record", [pytest.param(r, id=r["name"]) for r in RECORDS if "signing" in r]
)
def test_message_is_signed_as_by_the_library(record: dict[str, Any]) -> None:
    message = decode_message(record["wire"])
    signing = record["signing"]
    text = signed_text if signing["type"] == SignatureType.ETH else signed_legacy_text
    assert text(message) == signing["payload"]
    assert verify_message(message) is Verdict.VALID
    assert sign_message(message, KEY, SignatureType(signing["type"])) == message


@pytest.mark.parametrize("record", records("signature"))
def test_signature_is_judged_as_by_the_library(record: dict[str, Any]) -> None:
    try:
        signer = recover_address(record["payload"].encode(), record["signature"])
        verifies = signer == parse_address(record["address"])
    except CodecError:
        verifies = False
    assert verifies == record["verifies"][LATEST]


@pytest.mark.parametrize(
    "record", [pytest.param(r, id=r["name"]) for r in RECORDS if "ciphertext" in r]
)
def test_content_is_encrypted_as_by_the_library(record: dict[str, Any]) -> None:
    key = GroupKey("key-1", bytes.fromhex(record["keyHex"]))
    plain = record["plaintext"].encode()
    assert encrypt(plain, key, lambda _: bytes.fromhex(record["ivHex"])) == record["ciphertext"]
    assert decrypt(record["ciphertext"], key) == plain


def test_message_is_encrypted_as_by_the_library() -> None:
    (record,) = [r for r in RECORDS if r["name"] == "aes-encrypt-stream-message"]
    key = GroupKey("key-1", bytes.fromhex(record["keyHex"]))
    message = decode_message(record["wire"])
    content, next_key = decrypt_message(message, key)
    assert next_key is None
    plain = StreamMessage(id=message.id, content=content)
    encrypted = encrypt_message(plain, key, lambda _: bytes.fromhex(record["ivHex"]))
    assert encode_message(sign_message(encrypted, KEY), 32) == record["wire"]


def test_group_key_is_wrapped_as_by_the_library() -> None:
    (record,) = [r for r in RECORDS if r["name"] == "rsa-oaep-group-key"]
    key = RsaKey.from_pem(record["privateKey"])
    secret = bytes.fromhex(record["plaintextHex"])
    assert key.public_pem == record["publicKey"]
    assert key.unwrap(record["ciphertextHex"]) == secret
    assert key.unwrap(wrap(secret, load_public_key(record["publicKey"]))) == secret


@pytest.mark.parametrize("record", records("content", "content-GroupKey"))
def test_key_content_is_read_and_written_back(record: dict[str, Any]) -> None:
    content = decode_key_content(record["messageType"], record["wire"])
    assert encode_key_content(content) == record["wire"]
    decoded = record["decoded"]
    keys = decoded.get("encryptedGroupKeys", [])
    told = {
        "stream_id": decoded["streamId"],
        "request_id": decoded.get("requestId"),
        "rsa_public_key": decoded.get("rsaPublicKey"),
        "group_key_ids": tuple(decoded.get("groupKeyIds", ())) or None,
        "keys": tuple(EncryptedKey(k["groupKeyId"], k["encryptedGroupKeyHex"]) for k in keys)
        or None,
    }
    assert {name: getattr(content, name, None) for name in told} == told


def test_encrypted_key_is_read_and_written_back() -> None:
    (record,) = [r for r in RECORDS if r["name"] == "content-EncryptedGroupKey"]
    key = decode_encrypted_key(record["wire"])
    assert key == EncryptedKey("key-1", "aabb")
    assert encode_encrypted_key(key) == record["wire"]


@pytest.mark.parametrize("record", records("tracker"))
def test_tracker_message_is_read_and_written_back(record: dict[str, Any]) -> None:
    frame = decode_frame(record["wire"])
    assert frame.form is Form.ARRAY
    assert frame.request_id == record["decoded"]["requestId"]
    assert encode_frame(frame) == record["wire"]


@pytest.mark.parametrize("record", records("partition"))
def test_partition_of_a_key(record: dict[str, Any]) -> None:
    assert partition_of(record["key"], record["partitions"]) == record["partition"]


@pytest.mark.parametrize("record", records("tracker-registry"))
def test_tracker_of_a_stream_partition(record: dict[str, Any]) -> None:
    nth = tracker_of(record["streamId"], record["streamPartition"], record["trackers"])
    assert f"ws://127.0.0.1:{nth + 1}" == record["tracker"]


@pytest.mark.parametrize("record", records("duplicate-detector"))
def test_duplicates_are_told_as_by_the_library(record: dict[str, Any]) -> None:
    detector = DuplicateDetector()
    for step in record["steps"]:
        previous = tuple(step["prev"]) if step["prev"] else None
        if step["result"] == "GapMisMatchError":
            with pytest.raises(CodecError, match=r"duplicate\.overlap"):
                detector.check(previous, tuple(step["number"]))
        else:
            assert detector.check(previous, tuple(step["number"])) == step["result"]
        assert show_gaps(detector) == step["state"]


def show_gaps(detector: DuplicateDetector) -> str:
    """The gaps as the library writes them."""

    def show(pair: tuple[float, float]) -> str:
        return "|".join("Infinity" if x == float("inf") else str(x) for x in pair)

    return ", ".join(f"({show(lower)}, {show(upper)}]" for lower, upper in detector.gaps)


def test_ordering_follows_the_recorded_trace() -> None:
    """All but the event `drain`, which says only that nothing waits any more."""
    (record,) = [r for r in RECORDS if r["layer"] == "ordering"]
    chain = OrderedChain(
        propagation_seconds=record["propagationTimeout"] / 1000,
        resend_seconds=record["resendTimeout"] / 1000,
        requests_max=record["maxGapRequests"],
    )
    expected = [step for step in record["trace"] if step[0] != "drain"]
    trace: list[list[Any]] = []
    now = 0.0
    for nth, step in enumerate(expected):
        if step[0] == "add":
            trace.append(step)
            trace += show_events(chain.add(ordered_message(step[1], step[2]), now))
        elif nth >= len(trace):
            assert chain.deadline is not None
            now = chain.deadline
            trace += show_events(chain.poll(now))
    assert trace == expected


def ordered_message(number: int, previous: int | None) -> StreamMessage:
    return StreamMessage(
        id=MessageId("stream", 0, number, 0, "pub", "c"),
        content="{}",
        previous=None if previous is None else MessageRef(previous, 0),
    )


def show_events(events: list[Ordered | GapFound | GapSkipped]) -> list[list[Any]]:
    """Events as the trace writes them."""
    shown: list[list[Any]] = []
    for event in events:
        match event:
            case Ordered(message=message):
                shown.append(["deliver", message.id.timestamp])
            case GapFound(first=first, last=last, publisher_id=publisher, chain_id=chain):
                shown.append(["gap", list(first), list(last), publisher, chain])
            case GapSkipped(first=first, last=last):
                name = f"[{first[0]},{first[1]}] and [{last[0]},{last[1]}]"
                whose = f"for {event.publisher_id}-{event.chain_id}"
                text = f"Failed to fill gap between {name} {whose} after {event.requests} trials"
                shown.append(["error", "GapFillFailedError", text])
    return shown
