"""NextGraph: recorded connections are gone through again, and every frame comes out the same.

The records are in vectors/, their origin in vectors/README.md.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.admin import AdminRequest, CreateUser
from rillnode.codecs.nextgraph.broker_dialogue import BrokerDialogue
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.messages import AppMessage, decode_message, encode_message
from rillnode.codecs.nextgraph.noise_xk import NOISE_NAME, Handshake
from rillnode.codecs.nextgraph.start import (
    AppHello,
    ClientAuth,
    ClientHello,
    ClientInfo,
    ClientType,
    Noise,
    Start,
)
from rillnode.codecs.noise.cipher import CipherState, Suite
from rillnode.codecs.noise.handshake import NoiseHandshake

VECTORS: Final = Path(__file__).parent / "vectors"
WIRE: Final[list[dict[str, Any]]] = json.loads((VECTORS / "nextgraph_wire.json").read_text())
HANDSHAKE: Final[dict[str, str]] = json.loads((VECTORS / "nextgraph.json").read_text())["crypto"][0]
KEYS: Final = {r["name"]: bytes.fromhex(r["hex"]) for r in WIRE if r["direction"] == "-"}
BROKER: Final = Identity.from_seed(KEYS["broker_static_ed25519_seed"])
EPHEMERAL: Final = KEYS["broker_noise_ephemeral"]
CLIENT_RUNS: Final = ("create", "file", "fileget")

Record = tuple[bool, bytes]
"""Whether it is from the client, and what it is."""


def records(run: str, level: str) -> list[Record]:
    """The frames or messages of a run, in order."""
    mark = re.compile(f"det_node_{run}_{level}_[0-9]+")
    return [
        (record["direction"] == "client->broker", bytes.fromhex(record["hex"]))
        for record in WIRE
        if mark.fullmatch(record["name"])
    ]


def noise_data(frame: bytes) -> bytes:
    """What Noise has made of a frame."""
    match decode_message(frame):
        case Noise(data=data):
            return data
        case Start(content=ClientHello(noise=Noise(data=data))):
            return data
        case Start(content=AppHello(noise=Noise(data=data))):
            return data
        case message:
            raise AssertionError(message)


def decrypted(run: str) -> list[Record]:
    """All messages of a run, opened with the fixed keys without the house's own channel."""
    frames = [(sent, noise_data(frame)) for sent, frame in records(run, "raw")]
    handshake = NoiseHandshake(
        NOISE_NAME, initiator=False, prologue=b"", static=BROKER.x25519_private, ephemeral=EPHEMERAL
    )
    handshake.read(frames[0][1])
    assert handshake.write(b"") == frames[1][1]
    handshake.read(frames[2][1])
    assert handshake.keys is not None
    from_client, from_broker = (
        CipherState(key, Suite.CHACHAPOLY_SHA256, rekey_records=2**64) for key in handshake.keys
    )
    return [(sent, (from_client if sent else from_broker).open(data)) for sent, data in frames[3:]]


def test_every_record_is_looked_at() -> None:
    counts = {run: len(records(run, "raw")) for run in (*CLIENT_RUNS, "admin", "headless")}
    assert counts == {"create": 60, "file": 30, "fileget": 30, "admin": 4, "headless": 5}


@pytest.mark.parametrize("run", [*CLIENT_RUNS, "admin", "headless"])
def test_frames_decrypt_to_the_recorded_messages_and_these_are_written_back(run: str) -> None:
    messages = decrypted(run)
    plain = records(run, "plain")
    assert messages[: len(plain)] == plain
    for _, data in messages:
        assert encode_message(decode_message(data)) == data


@pytest.mark.parametrize("run", CLIENT_RUNS)
def test_a_broker_says_what_was_recorded(run: str) -> None:
    dialogue = BrokerDialogue(BROKER, nonce=KEYS["broker_hello_nonce"], ephemeral=EPHEMERAL)
    frames, messages = records(run, "raw"), decrypted(run)
    said: list[bytes] = []
    for nth, (sent, frame) in enumerate(frames):
        if not sent:
            # Beyond the opening, what is said is the broker's owner's choice.
            said += dialogue.take_output() if nth < 6 else [dialogue.seal(messages[nth - 3][1])]
            continue
        message = dialogue.receive(frame)
        if isinstance(message, ClientAuth):
            dialogue.admit()
        elif nth > 3:
            assert isinstance(message, ClientMessage)
            assert encode_message(message) == messages[nth - 3][1]
    assert said == [frame for sent, frame in frames if not sent]


def test_an_administrator_s_request_is_taken() -> None:
    dialogue = BrokerDialogue(BROKER, nonce=b"n" * 32, ephemeral=EPHEMERAL)
    taken = [dialogue.receive(frame) for sent, frame in records("admin", "raw") if sent]
    assert taken[:2] == [None, None]
    assert isinstance(taken[2], AdminRequest)
    assert taken[2].content == CreateUser()
    assert dialogue.take_output() == [f for sent, f in records("admin", "raw") if not sent]


def test_an_app_is_taken() -> None:
    dialogue = BrokerDialogue(BROKER, nonce=b"n" * 32, ephemeral=EPHEMERAL)
    frames = records("headless", "raw")
    dialogue.receive(frames[0][1])
    hello = dialogue.receive(frames[2][1])
    assert isinstance(hello, AppHello)
    assert hello.info.client_type is ClientType.NODE_SERVICE
    dialogue.admit()
    assert dialogue.take_output() == [frames[1][1], frames[3][1]]
    message = dialogue.receive(frames[4][1])
    assert isinstance(message, AppMessage)
    assert encode_message(message) == records("headless", "plain")[1][1]


def test_a_handshake_with_fixed_keys_is_as_worked_out() -> None:
    words = {"name", "protocol", "status"}
    given = {key: bytes.fromhex(HANDSHAKE[key]) for key in HANDSHAKE.keys() - words}
    peer = Identity.from_seed(given["initiator_static_ed_seed"])
    broker = Identity.from_seed(given["responder_static_ed_seed"])
    login = ClientLogin(user=peer, client=peer, info=ClientInfo(ClientType.CLI, "{}", "1", 0, 0))
    near = ClientDialogue(peer, broker.public_key, login, ephemeral=given["initiator_e"])
    far = Handshake.responder(broker, given["responder_e"])
    (first,) = near.take_output()
    assert noise_data(first) == given["msg1"]
    far.read(given["msg1"], 48)
    assert far.write() == given["msg2"]
    near.receive(encode_message(Noise(given["msg2"])))
    (third,) = near.take_output()
    assert noise_data(third) == given["msg3"]
    far.read(given["msg3"], 64)
    assert noise_data(near.seal(b"")) == given["first_i2r_of_empty"]
    assert noise_data(far.channel().seal(b"")) == given["first_r2i_of_empty"]
