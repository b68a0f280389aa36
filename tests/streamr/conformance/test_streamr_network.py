"""Streamr's network layer: captured frames are read, understood and written back unchanged.

The frames in data/streamr_network.json were captured between the packages that they name.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.codecs.streamr.control import decode_control
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Form,
    Instruction,
    Status,
    StatusMessage,
    StorageNodes,
    Wrapper,
    decode_frame,
    encode_frame,
)

FRAMES: Final[list[dict[str, str]]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_network.json").read_text("utf-8")
)["frames"]

SPECIFICATION: Final = {
    '["4.4.3",0,"sender","status"]': StatusMessage(status="status"),
    '["4.4.3",1,"sender","stream-id",["address1","address2"]]': Instruction(
        stream_id="stream-id", node_addresses=("address1", "address2")
    ),
    '["4.4.3",2,"sender","stream-id"]': FindStorageNodes(stream_id="stream-id"),
    '["4.4.3",3,"sender","stream-id",["address1","address2"]]': StorageNodes(
        stream_id="stream-id", node_addresses=("address1", "address2")
    ),
    '["4.4.3",4,"sender",[2,9,"request-id","stream-id",0,"my-session-token"]]': Wrapper(
        payload='[2,9,"request-id","stream-id",0,"my-session-token"]'
    ),
}
"""The specification's examples, without blanks; type 3 where its table and example differ, and a
control message as it describes them."""


@pytest.mark.parametrize("package", ["13.0.0", "19.1.0", "22.1.0"])
def test_captured_frames_come_back_unchanged(package: str) -> None:
    frames = [f["raw"] for f in FRAMES if f["package"] == f"streamr-network@{package}"]
    assert len(frames) > 80
    for raw in frames:
        frame = decode_frame(raw)
        assert frame.form is (Form.ARRAY if package == "22.1.0" else Form.OBJECT)
        assert encode_frame(frame) == raw
        assert decode_frame(raw.encode()) == frame


def test_captured_frames_are_what_they_are_for() -> None:
    kinds: Counter[Any] = Counter()
    for record in FRAMES:
        message = decode_frame(record["raw"]).message
        kinds[type(message)] += 1
        ends = {record["from"], record["to"]}
        assert ("tracker" in ends) != isinstance(message, Wrapper)
        if isinstance(message, StatusMessage):
            assert isinstance(message.status, Status)
            assert record["to"] == "tracker"
    assert kinds == {
        StatusMessage: 37,
        Instruction: 15,
        FindStorageNodes: 4,
        StorageNodes: 4,
        Wrapper: 202,
    }


def test_captured_control_messages_are_read() -> None:
    for record in FRAMES:
        message = decode_frame(record["raw"]).message
        if isinstance(message, Wrapper):
            version, _ = decode_control(message.payload)
            assert message.payload.startswith(f"[{version},")


@pytest.mark.parametrize("text", SPECIFICATION)
def test_specification_frame_comes_back_unchanged(text: str) -> None:
    frame = decode_frame(text)
    assert frame.message == SPECIFICATION[text]
    assert (frame.form, frame.version, frame.source) == (Form.SPECIFICATION, "4.4.3", "sender")
    assert encode_frame(frame) == text
