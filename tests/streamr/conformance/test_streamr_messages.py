"""Streamr: what released libraries wrote is read, understood and written back; what they refuse
is refused.

The records in data/streamr_messages.json were made by running the libraries they name.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.message import (
    Layout,
    MessageRef,
    StreamMessage,
    decode_message,
    encode_message,
)
from rillnode.codecs.streamr.signing import signed_legacy_text, signed_text

RECORDS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_messages.json").read_text("utf-8")
)["vectors"]
MESSAGES: Final = [r for r in RECORDS if r["layer"] == "stream"]
WRITTEN: Final = [r for r in MESSAGES if not r["name"].startswith("malformed-")]
CONVERTED: Final = [
    (record, int(version), text)
    for record in WRITTEN
    for version, text in record.get("converted", {}).items()
]
ODD: Final = [r for r in MESSAGES if r["name"].startswith("malformed-")]

LATEST: Final = "8.0.5"
"""The release whose strictness is followed; that of 2.2.15 for what only the older ones know."""

CODES: Final = {
    "UnsupportedVersionError": "streamr.version",
    "ValidationError": "codec.field",
    "TypeError": "codec.field",
    "SyntaxError": "codec.field",  # a group key inside that is no JSON
}

OTHERWISE_READ: Final = {
    "malformed-sm-version-28": "2.2.15",
    "malformed-sm-version-29": "2.2.15",
    "malformed-seed000-flat-v30": None,
    "malformed-sm-seq-null": None,
}
"""Refused by the latest release, but taken by the older one, or by a specification's text only."""


def name_of(record: dict[str, Any]) -> str:
    return str(record["name"])


def describe(message: StreamMessage) -> dict[str, Any]:
    """A message in the words of the records that the libraries from 5.0 on made."""
    new_key = message.new_group_key
    return {
        "streamId": message.id.stream_id,
        "streamPartition": message.id.partition,
        "timestamp": message.id.timestamp,
        "sequenceNumber": message.id.sequence,
        "publisherId": message.id.publisher_id,
        "msgChainId": message.id.chain_id,
        "prevMsgRef": list(message.previous) if message.previous else None,
        "messageType": message.message_type,
        "contentType": message.content_type,
        "encryptionType": message.encryption_type,
        "groupKeyId": message.group_key_id,
        "newGroupKey": json.loads(new_key) if new_key is not None else None,
        "serializedContent": message.content,
        "signatureType": message.signature_type,
        "signature": message.signature,
    }


@each_row(WRITTEN, name_of)
def test_written_message_comes_back_as_it_was(record: dict[str, Any]) -> None:
    message = decode_message(record["wire"])
    assert (message.version, message.layout) == (record["version"], Layout.RELEASED)
    assert encode_message(message, record["version"]) == record["wire"]


@each_row([r for r in WRITTEN if "5.3.1" in r["lib"]], name_of)
def test_written_message_says_what_its_writer_meant(record: dict[str, Any]) -> None:
    assert describe(decode_message(record["wire"])) == record["decoded"]


@pytest.mark.parametrize("record", [r for r in WRITTEN if "signing" in r], ids=name_of)
@pytest.mark.parametrize("version", [30, 31, 32])
def test_a_conversion_leaves_what_was_signed(record: dict[str, Any], version: int) -> None:
    message = decode_message(record["wire"])
    text_of = signed_legacy_text if record["signing"]["type"] == 1 else signed_text
    assert text_of(message) == record["signing"]["payload"]
    if version == 30 and message.encryption_type:
        with pytest.raises(CodecError, match=r"streamr\.inexpressible"):
            encode_message(message, version)
        return
    converted = decode_message(encode_message(message, version))
    assert text_of(converted) == record["signing"]["payload"]
    assert converted.signature == message.signature


@each_row(CONVERTED, lambda row: f"{row[0]['name']} to {row[1]}")
def test_conversions_are_those_of_the_released_library(
    record: dict[str, Any], version: int, text: str | dict[str, str]
) -> None:
    message = decode_message(record["wire"])
    if isinstance(text, dict):  # it tries to parse what is encrypted
        with pytest.raises(CodecError, match=r"streamr\.inexpressible"):
            encode_message(message, version)
        return
    # That library writes a reference to nothing, which later ones refuse to read.
    assert encode_message(message, version) == text.replace("[null,null]", "null")


@each_row(ODD, name_of)
def test_odd_message_is_refused_or_read_as_the_latest_release_does(record: dict[str, Any]) -> None:
    release = OTHERWISE_READ.get(record["name"], LATEST)
    result: dict[str, Any] = record["results"][release] if release else {"ok": True}
    if result["ok"]:
        message = decode_message(record["wire"])
        decoded: dict[str, Any] = result.get("decoded", {})
        if "messageId" in decoded:
            assert message.content == decoded["serializedContent"]
            assert message.id.stream_id == decoded["messageId"]["streamId"]
            assert message.id.sequence == (decoded["messageId"]["sequenceNumber"] or 0)
    else:
        with pytest.raises(CodecError) as caught:
            decode_message(record["wire"])
        assert caught.value.code == CODES[result["error"]]


def test_the_specifications_message_is_marked_and_goes_back_in_its_own_layout() -> None:
    (wire,) = (r["wire"] for r in ODD if r["name"] == "malformed-seed000-flat-v30")
    message = decode_message(wire)
    assert message.layout is Layout.SPECIFICATION
    assert message.id == ("stream-id", 0, 425354887214, 0, "0xAd23", "")
    assert message.previous == MessageRef(425354887001, 0)
    assert (message.ttl, message.content, message.signature) == (120, "contentData", "0x29c0")
    assert encode_message(message, 30, Layout.SPECIFICATION) == wire
