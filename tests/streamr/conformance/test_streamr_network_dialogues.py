"""Streamr's network layer: what released peers were heard saying, translated and translated back.

The frames in data/streamr_network.json were captured between the packages that they name.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.actors.overlay.context import MEMBER_ADDRESS
from rillnode.actors.overlay.dialect import decode, decode_wrapped
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.actors.overlay.tracker import ADDRESS as TRACKER_ADDRESS
from rillnode.actors.overlay.translating import Role, Translator
from rillnode.codecs.routing.wire import wire_codec
from rillnode.codecs.streamr.control_messages import (
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
)
from rillnode.codecs.streamr.network import Wrapper, encode_frame

FRAMES: Final[list[dict[str, str]]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_network.json").read_text("utf-8")
)["frames"]
PACKAGES: Final = {"13": "13.0.0", "19": "19.1.0", "22": "22.1.0"}
WIRE: Final = wire_codec("bare")


def captured(generation: str) -> list[tuple[Role, str]]:
    """What a peer of this generation was heard saying, to each kind of peers."""
    found: list[tuple[Role, str]] = []
    for frame in FRAMES:
        if frame["package"] == f"streamr-network@{PACKAGES[generation]}":
            role = Role.TRACKER if frame["from"] == "tracker" else Role.NODE
            found.append((Role.TRACKED if frame["to"] == "tracker" else role, frame["raw"]))
    assert len(found) > 80
    return found


def without_request_id(raw: str) -> Any:
    """A frame without the id that its sender has made up, where it goes to or from a tracker."""
    value: Any = json.loads(raw)
    if raw.startswith("[1,"):
        value[2] = ""
    return value


@pytest.mark.parametrize("generation", PACKAGES)
def test_captured_frames_reach_their_actors_and_come_back(generation: str) -> None:
    for role, raw in captured(generation):
        translator = Translator(role)
        wire = translator.incoming(raw.encode())
        assert translator.generation is not None
        assert translator.generation.name == generation
        (message,) = WIRE.decode([wire])
        addresses = {
            Role.TRACKED: TRACKER_ADDRESS,
            Role.TRACKER: MEMBER_ADDRESS,
            Role.NODE: overlay_address(
                "stream-unknown" if "stream-unknown" in raw else "stream-1", 0
            ),
        }
        assert message.onward_route[0].value == addresses[role]
        (back,), _ = translator.outgoing(wire)
        assert without_request_id(back.decode()) == without_request_id(raw)


@pytest.mark.parametrize("generation", PACKAGES)
def test_what_goes_through_the_overlay_is_control_version_2(generation: str) -> None:
    for role, raw in captured(generation):
        (message,) = WIRE.decode([Translator(role).incoming(raw.encode())])
        frame = decode(message.payload)
        if isinstance(frame.message, Wrapper):
            assert frame.message.payload.startswith("[2,")
            if isinstance(decode_wrapped(frame.message), UnicastMessage):
                assert encode_frame(frame).encode() == message.payload


@pytest.mark.parametrize("generation", PACKAGES)
def test_a_request_to_subscribe_is_answered_for_the_peer(generation: str) -> None:
    answered = 0
    for role, raw in captured(generation):
        translator = Translator(role)
        wire = translator.incoming(raw.encode())
        (message,) = WIRE.decode([wire])
        said = decode(message.payload).message
        _, answers = translator.outgoing(wire)
        if isinstance(said, Wrapper) and isinstance(decode_wrapped(said), SubscribeRequest):
            (answer,) = WIRE.decode(answers)
            response = decode(answer.payload).message
            assert isinstance(response, Wrapper)
            assert isinstance(decode_wrapped(response), SubscribeResponse)
            assert answer.onward_route == message.onward_route
            (silence,), _ = translator.outgoing(wire)
            assert translator.outgoing(WIRE.encode(answer)) == ([], [])
            assert silence
            answered += 1
        else:
            assert answers == []
    assert answered >= 3
