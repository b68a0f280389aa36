"""NextGraph: recorded second devices are served again, and get what was recorded, byte for byte.

The records are in vectors/, their origin in vectors/README.md. What the wallet's first device had
published is taken from the recorded answers themselves.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from core_support import Core, with_core
from nextgraph_broker import Broker, Client, Wire
from rillnode.actors.nextgraph.connection import BrokerEvents
from rillnode.actors.nextgraph.publication import publication
from rillnode.actors.nextgraph.session import Asked
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.events import EVENT, Event, EventContent
from rillnode.codecs.nextgraph.messages import decode_message
from rillnode.codecs.nextgraph.noise_xk import NOISE_NAME
from rillnode.codecs.nextgraph.requests import ClientRequest, PinRepo
from rillnode.codecs.nextgraph.responses import ClientResponse, TopicSyncRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.start import ClientAuth, ClientHello, Noise, Start
from rillnode.codecs.nextgraph.types import ForwardedPeer, InnerOverlay, OverlayId, WriteOnlyAccess
from rillnode.codecs.noise.cipher import CipherState, Suite
from rillnode.codecs.noise.handshake import NoiseHandshake

VECTORS: Final = Path(__file__).parent / "vectors"
WIRE: Final[list[dict[str, Any]]] = json.loads((VECTORS / "nextgraph_wire.json").read_text())
KEYS: Final = {r["name"]: bytes.fromhex(r["hex"]) for r in WIRE if r["direction"] == "-"}
BROKER: Final = Identity.from_seed(KEYS["broker_static_ed25519_seed"])
EPHEMERAL: Final = KEYS["broker_noise_ephemeral"]

Frame = tuple[bool, bytes]
"""Whether it is from the client, and its bytes."""


def frames(run: str) -> list[Frame]:
    mark = re.compile(f"det_node_{run}_raw_[0-9]+")
    return [
        (record["direction"] == "client->broker", bytes.fromhex(record["hex"]))
        for record in WIRE
        if mark.fullmatch(record["name"])
    ]


def sealed(frame: bytes) -> bytes:
    match decode_message(frame):
        case Noise(data=data) | Start(content=ClientHello(noise=Noise(data=data))):
            return data
        case message:
            raise AssertionError(message)


def opened(recorded: list[Frame]) -> list[Any]:
    """What was said after the handshake, both ways."""
    handshake = NoiseHandshake(
        NOISE_NAME, initiator=False, prologue=b"", static=BROKER.x25519_private, ephemeral=EPHEMERAL
    )
    handshake.read(sealed(recorded[0][1]))
    handshake.write(b"")
    handshake.read(sealed(recorded[2][1]))
    assert handshake.keys is not None
    from_client, from_broker = (
        CipherState(key, Suite.CHACHAPOLY_SHA256, rekey_records=2**64) for key in handshake.keys
    )
    return [
        decode_message((from_client if sent else from_broker).open(sealed(frame)))
        for sent, frame in recorded[3:]
    ]


def published(messages: list[Any]) -> tuple[OverlayId, list[Event]]:
    """The overlay of a recorded dialogue, and the events that were sent in it."""
    overlays = {
        message.overlay
        for message in messages
        if isinstance(message, ClientMessage) and isinstance(message.content, ClientRequest)
    }
    (overlay,) = overlays
    contents = [
        message.content.content
        for message in messages
        if isinstance(message, ClientMessage) and isinstance(message.content, ClientResponse)
    ]
    items = [content.item for content in contents if isinstance(content, TopicSyncRes)]
    events = [item for item in items if isinstance(item, Event)]
    # Of one commit the record has the blocks, and ends before the event that brought them.
    commits: dict[int, list[Block]] = {}
    for message in messages:
        if isinstance(message, ClientMessage) and isinstance(message.content, ClientResponse):
            response = message.content
            if isinstance(response.content, Block):
                commits.setdefault(response.id, []).append(response.content)
    known = [event.content.blocks for event in events]
    for blocks in commits.values():
        if blocks not in known:
            content = EventContent(b"t" * 32, ForwardedPeer(b"p" * 32), 1, blocks, [], b"")
            events.append(Event(content, bytes(64), bytes(64)))
    return overlay, events


def user_of(messages: list[Any]) -> bytes:
    """Whose device was recorded."""
    (auth,) = (message for message in messages if isinstance(message, ClientAuth))
    return auth.content.user


async def fill(broker: Broker, user: bytes, overlay: InnerOverlay, events: list[Event]) -> None:
    """Have the topics hold what the user's first device pinned and wrote, which is not recorded."""
    owner: Client = await broker.client("owner")
    (session,) = broker.context.sessions
    session.user = user  # whose secret key the record does not hold
    topics = list(dict.fromkeys(event.content.topic for event in events))
    pin = PinRepo(b"h" * 32, WriteOnlyAccess(overlay), None, False, [], 0, topics, [])
    ((result, _),) = await owner.ask(overlay, pin)
    assert result == ResultCode.OK
    for event in events:
        asked = Asked(session, 2, overlay, event, EVENT.encode(event))
        publish = publication(asked, overlay.id, event, allowed=True)
        topic = broker.context.topics.cell((overlay.id, event.content.topic))
        broker.core.system.post(topic, publish)
        await broker.core.settle()
    owner.leave()
    await broker.core.settle()


@pytest.mark.parametrize("name", ["file", "fileget"])
def test_a_recorded_second_device_gets_every_recorded_answer(name: str) -> None:
    recorded = frames(name)
    messages = opened(recorded)
    overlay, events = published(messages)
    assert isinstance(overlay, InnerOverlay)
    assert len(events) >= 9

    async def main(core: Core) -> None:
        broker = Broker(core, peer=BROKER)
        await fill(broker, user_of(messages), overlay, events)
        fixed = [KEYS["broker_hello_nonce"], EPHEMERAL]

        def entropy(_: int) -> bytes:
            return fixed.pop(0)

        broker.context.streams = replace(core.context, entropy=entropy)
        wire = Wire()
        link = BrokerEvents(broker.context)
        link.link_opened(wire)
        for number, (sent, frame) in enumerate(recorded):
            if sent:
                link.messages_received([frame])
                await core.settle()
            else:
                assert wire.sent, number
                assert wire.sent.pop(0) == frame, number

    with_core(main)
