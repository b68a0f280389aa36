"""Streamr's control layer: released libraries' messages are read, understood and written back.

The records in data/streamr_messages.json were made by running the libraries they name.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control import decode_control, encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    PublishRequest,
    SubscribeRequest,
    UnicastMessage,
)
from rillnode.codecs.streamr.message import Layout

RECORDS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_messages.json").read_text("utf-8")
)["vectors"]
CONTROL: Final = [r for r in RECORDS if r["layer"] == "control"]
UNREADABLE: Final = "control1-to-2-SubscribeRequest-null-requestId"
"""What a library has written that none, itself included, reads."""

WRITTEN: Final = [
    r for r in CONTROL if not r["name"].startswith("malformed-") and r["name"] != UNREADABLE
]
ODD: Final = [r for r in CONTROL if r["name"].startswith("malformed-")]
ATTRIBUTES: Final = {
    "requestId": "request_id",
    "streamId": "stream_id",
    "streamPartition": "partition",
    "sessionToken": "session_token",
    "numberLast": "number_last",
    "fromMsgRef": "from_ref",
    "toMsgRef": "to_ref",
    "publisherId": "publisher_id",
    "msgChainId": "chain_id",
    "errorMessage": "error_message",
    "errorCode": "error_code",
}
"""The libraries' names for what a control message has, and ours."""

CODES: Final = {
    "SyntaxError": {"codec.json"},
    "TypeError": {"codec.field"},
    "UnsupportedVersionError": {"streamr.version", "codec.field"},
    "UnsupportedTypeError": {"streamr.type"},
    "ValidationError": {"codec.field", "streamr.version"},
}
"""No array has no version, and `"2"` is none: both ways to say so are right."""


def name_of(record: dict[str, Any]) -> str:
    return f"{record['name']}-{record['lib']}"


def message_version(message: ControlMessage) -> int:
    if isinstance(message, BroadcastMessage | UnicastMessage | PublishRequest):
        return message.message.version
    return 32


def pair_of(ref: Any) -> tuple[int, int | None]:
    """A reference in either of the ways that the libraries have told it."""
    return (ref["timestamp"], ref["sequenceNumber"]) if "timestamp" in ref else tuple(ref)


def check_meaning(message: ControlMessage, decoded: dict[str, Any]) -> None:
    """Compare with what a library has decoded, wherever it has told."""
    assert message.type == decoded["type"]
    for theirs in ATTRIBUTES.keys() & decoded.keys():
        expected: Any = decoded[theirs]
        if expected == "__undefined__":
            expected = None
        elif theirs in ("fromMsgRef", "toMsgRef"):
            expected = pair_of(expected)
        assert getattr(message, ATTRIBUTES[theirs], None) == expected, theirs


@each_row(WRITTEN, name_of)
def test_written_message_comes_back_as_it_was(record: dict[str, Any]) -> None:
    version, message = decode_control(record["wire"])
    assert version == record["version"]
    assert message.layout is Layout.RELEASED
    assert encode_control(message, version, message_version(message)) == record["wire"]
    check_meaning(message, record["decoded"])


SPECIFIED: Final = {"malformed-partition-null": 0}
"""Partitions of what a specification's text takes, and no release does."""


@pytest.mark.parametrize("record", [r for r in ODD if r["name"] in SPECIFIED], ids=name_of)
def test_what_only_a_specification_takes_is_read(record: dict[str, Any]) -> None:
    _, message = decode_control(record["wire"])
    assert isinstance(message, SubscribeRequest)
    assert message.partition == SPECIFIED[record["name"]]


@each_row([r for r in ODD if r["name"] not in SPECIFIED], name_of)
def test_odd_message_is_refused_or_read_as_the_latest_release_does(record: dict[str, Any]) -> None:
    result = record["results"]["8.0.5"]
    if result["ok"]:
        version, message = decode_control(record["wire"])
        assert version == result["decoded"]["version"]
        check_meaning(message, result["decoded"])
    else:
        with pytest.raises(CodecError) as caught:
            decode_control(record["wire"])
        assert caught.value.code in CODES[result["error"]]


def test_a_request_without_an_id_has_an_empty_one_in_version_2() -> None:
    (record,) = (r for r in CONTROL if r["name"] == UNREADABLE)
    with pytest.raises(CodecError, match=r"codec\.field"):
        decode_control(record["wire"])
    request = SubscribeRequest(stream_id="stream-id", partition=0, session_token="sessionToken")
    assert encode_control(request, 2, 32) == record["wire"].replace("null", '""')
