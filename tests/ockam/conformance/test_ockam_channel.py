"""Ockam secure channels: a captured handshake and its messages, byte for byte.

The capture is the run `secure` in vectors/ockam.json: an Elixir node of 2021-08 and its client,
both with keys made for it.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.channel import ChannelInitiator, ChannelResponder
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.routing.routes import decode_message, encode_message

RECORDS: Final[list[dict[str, Any]]] = [
    record
    for record in json.loads((Path(__file__).parent / "vectors" / "ockam.json").read_text())
    if record["run"] == "secure"
]


def read_keys() -> dict[str, bytes]:
    keys = next(record for record in RECORDS if not record["hex"])["keys"]
    return {name: bytes.fromhex(value) for name, value in keys.items()}


KEYS: Final = read_keys()
FRAMES: Final = [record for record in RECORDS if record["hex"]]
HANDSHAKE: Final = [
    decode_message(bytes.fromhex(record["hex"])[2:], strict=True).payload for record in FRAMES[:3]
]
SEALED: Final = FRAMES[3:]


def responder(payload: bytes) -> ChannelResponder:
    return ChannelResponder(KEYS["sr_priv"], payload, ephemeral=KEYS["er_priv"])


def initiator() -> ChannelInitiator:
    return ChannelInitiator(Level.ELIXIR_2021, KEYS["si_priv"], ephemeral=KEYS["ei_priv"])


def sessions() -> tuple[ChannelSession, ChannelSession]:
    """The client's and the service's end of the captured channel."""
    near, far = initiator(), responder(HANDSHAKE[0])
    near.message_1()
    far.message_2(KEYS["payload2"])
    near.read_message_2(HANDSHAKE[1])
    _, client = near.finish(KEYS["payload3"])
    return client, far.finish(HANDSHAKE[2])


def test_the_vectors_are_all_there() -> None:
    assert len(HANDSHAKE) == 3
    assert [len(message) for message in HANDSHAKE] == [32, 112, 80]
    assert len(SEALED) == 11
    assert ChannelKey(KEYS["sr_priv"]).public == KEYS["sr"]
    assert ChannelKey(KEYS["si_priv"]).public == KEYS["si"]


def test_the_responder_of_the_capture() -> None:
    side = responder(HANDSHAKE[0])
    assert side.callback is None
    assert side.message_2(KEYS["payload2"]) == HANDSHAKE[1]
    session = side.finish(HANDSHAKE[2])
    assert side.remote_key == KEYS["si"]
    assert side.handshake_hash == KEYS["h"]
    assert session.level is Level.ELIXIR_2021


def test_the_initiator_of_the_capture() -> None:
    side = initiator()
    assert side.message_1() == HANDSHAKE[0]
    side.read_message_2(HANDSHAKE[1])
    assert side.remote_key == KEYS["sr"]
    message, _ = side.finish(KEYS["payload3"])
    assert message == HANDSHAKE[2]


def test_the_keys_are_used_in_reverse() -> None:
    keyed = ChannelSession(
        (Level.ELIXIR_2021,),
        sealing_key=KEYS["k2"],
        opening_key=KEYS["k1"],
        handshake_hash=KEYS["h"],
    )
    client, service = sessions()
    assert keyed.seal(b"text") == client.seal(b"text")
    assert keyed.open(service.seal(b"answer")) == b"answer"


@pytest.mark.parametrize("end", ["client", "service"])
def test_every_message_of_the_capture_is_opened_and_sealed_again(end: str) -> None:
    session = sessions()[end == "service"]
    for record in SEALED:
        outer = decode_message(bytes.fromhex(record["hex"])[2:], strict=True)
        inner = bytes.fromhex(record["inner_hex"])
        if record["direction"].startswith(end):
            assert session.seal(inner) == outer.payload
        else:
            assert session.open(outer.payload) == inner
        assert encode_message(*decode_message(inner, strict=True)) == inner


def test_a_capture_opens_in_any_order_and_only_once() -> None:
    _, service = sessions()
    payloads = [
        decode_message(bytes.fromhex(record["hex"])[2:]).payload
        for record in SEALED
        if record["direction"] == "client>service"
    ]
    for payload in reversed(payloads):
        service.open(payload)
    for payload in payloads:
        with pytest.raises(CodecError) as caught:
            service.open(payload)
        assert caught.value.code == "channel.replay"


# Noise's public vectors as the tests of both Ockam languages hold them (build-trust/ockam,
# ockam_key_exchange_xx/src/state.rs and xx/protocol_test.exs).
RUNS: Final = {
    "handshake_1": {
        "initiator_static": "b8fddc038e170b1be4f54e193388043ef7282f691669d1907f31457c8be0497d",
        "initiator_ephemeral": "208ed05ac237f19324fb97380d3d0be0caf8b13ad9558475d68f31a059e2e643",
        "responder_static": "e8e007c2161efb952c6eb238e60d27e6ee8c329a6dbf6c45209746f774441e7a",
        "responder_ephemeral": "9061aafa5f178bd51a35f1b45634db3ab83bc743b5e21e9813388128ba7a4564",
        "payload_2": "",
        "payload_3": "",
        "message_1": "03d5f778254408cdd461166d015da24f90827270ec6e5f445545c93059568060",
        "message_2": "eb205a2af69bf453ad02333af1a78765dd7ceec86134e002fc9e24b47cb7783b"
        "b96f3c1b8a3faba26f3db59a7efcdbcd715fbee7951a4aa9a82d9bbf88dbf36a"
        "1f21d442c9282b0b24c5b7800cf67d55f93290cf564e32e8ceac4b4f9e0822c1",
        "message_3": "43ab977d5be69779098ca1eea2124c71e1a02c9637dcdaa5d7f09c8bdd33b584"
        "4b4ec0fd51d439c65de3112a9bb7ad762504d7f8e4aaca071c791395a5b64d1a",
    },
    "handshake_2": {
        "initiator_static": "f03b71e5d8921855c3859dceb767efd64dddf25d8b3055f917061b40a21a494c",
        "initiator_ephemeral": "d864f25781681b9c50e32ebfdaa44a78ca7a6bf653df18e74df5ba5522a7507b",
        "responder_static": "20bf730a9951f4a7c4f006bb8be759f16c1d0c66739f18ecf17dc755ed6ded51",
        "responder_ephemeral": "985a88d0a30e161a757168d4d5fb6bce43ecfa152576d2db79a3ac316cb57e6a",
        "payload_2": "746573745f6d73675f31",
        "payload_3": "746573745f6d73675f32",
        "message_1": "8f6450d283c75df98c3a69e5e90324ae1a4e244ed22aa7cd34c22f85825de635"
        "746573745f6d73675f30",
        "message_2": "60537c177df729fc673e1a95382a49f33ba37655a64eeef8440e971217453454"
        "18242a6da2efdc7302d1aef36199327b841b3cb0ed5cfe1266b44f56446c36af"
        "3274fadac9f12d13d71720941205b9cfc58c56b9a4b1e443b85f61270fcea026"
        "a6f6e3aea01b92ca22d4",
        "message_3": "43864de3c39719e8ea121c4382cd61877876229be549d4521b06b848656ee2a7"
        "0ca53e3b4016d96830472f28c5a84bf7cc2e39e72a0d2c11318c48c577749fd6"
        "432f39a2c8f157723499",
    },
    "handshake_main": {
        "initiator_static": "f00dd4f8b97089ca8dcf1f3321fe7006785b59240168908eb4ee808d29eb2b44",
        "initiator_ephemeral": "089b3b342fd868fd57bc26ba9b179396901de5afde41eefd00d326c8484ab45f",
        "responder_static": "0078ff88eece9ddd05578cc7008cfa6230b444fb9314d522047bd81c25265555",
        "responder_ephemeral": "60f0e93c20a2ab370557b3ff35dd11023d0fe1d81f1063b50f81fe4e108ac05e",
        "payload_2": "",
        "payload_3": "",
        "message_1": "5a302d4f1e1e7c74d089378973d4b3a4082d216ce8305957435178b0def80a7f",
        "message_2": "4a2d1c6fb26620b8f35ad7991e429946ebf6fabfc723176b5b08b88ae2fbff05"
        "a0164ed7490899b680f95f3473426a3bf8de84bfc5e2fdb7ed295033df3779ce"
        "3c027388378bfc30770fb957c1e6d37839393f8d12e4ff59e9df46167ce5e746",
        "message_3": "868a5886eb7ca265ff719c77f2c64364ff6633161309e4e134ef1266f61c28d8"
        "54e2a6ebaf9d78e69c682f300b5a158f3348fb7bb64b6f27dfeab98dd0bce03a",
    },
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_responder_of_the_public_vectors(name: str, wrapped: bool) -> None:
    run = {key: bytes.fromhex(value) for key, value in RUNS[name].items()}

    def form(message: bytes) -> bytes:
        assert len(message) < 128
        return bytes((len(message),)) + message if wrapped else message

    first = form(run["message_1"]) + (b"\0" if wrapped else b"")
    side = ChannelResponder(run["responder_static"], first, ephemeral=run["responder_ephemeral"])
    assert side.message_2(run["payload_2"]) == form(run["message_2"])
    side.finish(form(run["message_3"]))
    assert side.remote_key == ChannelKey(run["initiator_static"]).public


@pytest.mark.parametrize("name", ["handshake_1", "handshake_main"])
def test_the_initiator_of_the_public_vectors(name: str) -> None:
    run = {key: bytes.fromhex(value) for key, value in RUNS[name].items()}
    side = ChannelInitiator(
        Level.ELIXIR_2021, run["initiator_static"], ephemeral=run["initiator_ephemeral"]
    )
    assert side.message_1() == run["message_1"]
    side.read_message_2(run["message_2"])
    message, _ = side.finish(run["payload_3"])
    assert message == run["message_3"]
