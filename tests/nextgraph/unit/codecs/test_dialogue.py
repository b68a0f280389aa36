from collections.abc import Callable

import pytest
from msgspec.structs import replace

from each_row import each_row
from nextgraph_support import (
    APP_LOGIN,
    BROKER,
    CLIENT,
    INFO,
    LOGIN,
    NONCE,
    PEER,
    USER,
    broker,
    exchange,
    joined,
    make_event,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keys import x25519_form
from rillnode.codecs.nextgraph.admin import (
    AdminEmpty,
    AdminRequest,
    AdminResponse,
    ListUsers,
    sign_admin_request,
)
from rillnode.codecs.nextgraph.broker_dialogue import BrokerDialogue
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import AppLogin, ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.external import (
    ExportedWallet,
    ExtRequest,
    ExtResponse,
    WalletGetExport,
)
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.messages import (
    AppMessage,
    CoreMessage,
    ProtocolMessage,
    decode_message,
    encode_message,
)
from rillnode.codecs.nextgraph.noise_xk import Channel, Handshake, write_noise
from rillnode.codecs.nextgraph.requests import BlocksPut, ClientRequest
from rillnode.codecs.nextgraph.responses import ClientResponse, EmptyResponse
from rillnode.codecs.nextgraph.results import NetCode, NextGraphError, ProtocolCode, ResultCode
from rillnode.codecs.nextgraph.start import (
    AppHello,
    AppResponse,
    AuthResult,
    ClientAuth,
    ClientAuthContent,
    ClientHello,
    Noise,
    Probe,
    ProbeResponse,
    ServerHello,
    Start,
    sign_client_auth,
)
from rillnode.codecs.nextgraph.types import NIL_OVERLAY, InnerOverlay

ADMIN_REQUEST = sign_admin_request(ListUsers(True), USER)
EXT_REQUEST = ExtRequest(0, WalletGetExport(b"i" * 32, is_rendezvous=False))
RESPONSE = ClientMessage(NIL_OVERLAY, ClientResponse(1, ResultCode.OK, EmptyResponse()))

Side = ClientDialogue | BrokerDialogue


def request(number: int) -> ClientMessage:
    return ClientMessage(InnerOverlay(b"o" * 32), ClientRequest(number, BlocksPut([])))


def fails(side: Side, frame: bytes) -> ProtocolCode | NetCode:
    """What a frame ends a side's connection with; nothing is taken after that."""
    with pytest.raises(NextGraphError) as caught:
        side.receive(frame)
    with pytest.raises(NextGraphError) as again:
        side.receive(frame)
    if len(frame) <= NEXTGRAPH_MESSAGE_BYTES_MAX:
        assert again.value.closing is ProtocolCode.INVALID_STATE
    return caught.value.closing


def greeted() -> tuple[ClientDialogue, BrokerDialogue, bytes]:
    """Both sides after the client's third message, and the frame of the broker's greeting."""
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    for frame in near.take_output():
        far.receive(frame)
    for frame in far.take_output():
        near.receive(frame)
    for frame in near.take_output():
        far.receive(frame)
    (hello,) = far.take_output()
    return near, far, hello


def proof(*, nonce: bytes = NONCE, login: ClientLogin = LOGIN) -> ClientAuth:
    content = ClientAuthContent(USER.public_key, CLIENT.public_key, INFO, None, nonce)
    return sign_client_auth(content, login.user, login.client)


def test_a_client_comes_in() -> None:
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    _, auth = exchange(near, far)
    assert isinstance(auth, ClientAuth)
    assert auth.content.user == USER.public_key
    assert auth.content.client == CLIENT.public_key
    assert auth.content.registration == LOGIN.registration
    assert far.remote_static == x25519_form(PEER.public_key)
    assert near.remote_static == x25519_form(BROKER.public_key)
    far.admit()
    verdict, _ = exchange(near, far)
    assert verdict == AuthResult(0)


def test_messages_pass_in_order_both_ways() -> None:
    near, far = joined()
    for nth in range(1, 50):
        assert far.receive(near.seal(encode_message(request(nth)))) == request(nth)
        assert near.receive(far.seal(encode_message(RESPONSE))) == RESPONSE
    pop = ClientMessage(NIL_OVERLAY, ClientEvent.INBOX_POP_REQUEST)
    assert far.receive(near.seal(encode_message(pop))) == pop
    event = ClientMessage(InnerOverlay(b"o" * 32), make_event()[0])
    assert near.receive(far.seal(encode_message(event))) == event


def test_messages_may_be_longer_than_noise_allows() -> None:
    near, far = joined()
    message = replace(request(1), padding=bytes(2_000_000))
    assert far.receive(near.seal(encode_message(message))) == message


def test_messages_have_a_limit() -> None:
    near, far = joined()
    message = replace(request(1), padding=bytes(NEXTGRAPH_MESSAGE_BYTES_MAX))
    frame = near.seal(encode_message(message))
    assert fails(far, frame) is ProtocolCode.INVALID_MESSAGE


@pytest.mark.parametrize("code", [ProtocolCode.ACCESS_DENIED, ProtocolCode.INVITATION_REQUIRED])
def test_a_client_is_turned_away(code: ProtocolCode) -> None:
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    exchange(near, far)
    far.refuse(code)
    verdict, _ = exchange(near, far)
    assert verdict == AuthResult(code)
    assert fails(far, near.seal(encode_message(request(1)))) is ProtocolCode.INVALID_STATE
    assert fails(near, far.seal(encode_message(RESPONSE))) is ProtocolCode.INVALID_STATE


def test_nothing_is_taken_before_the_verdict() -> None:
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    exchange(near, far)
    assert fails(far, near.seal(encode_message(request(1)))) is ProtocolCode.INVALID_STATE


def test_an_app_comes_in_or_not() -> None:
    for code in (ProtocolCode.NO_ERROR, ProtocolCode.ACCESS_DENIED):
        near, far = ClientDialogue(PEER, BROKER.public_key, APP_LOGIN), broker()
        _, hello = exchange(near, far)
        assert isinstance(hello, AppHello)
        if code:
            far.refuse(code)
        else:
            far.admit()
        verdict, _ = exchange(near, far)
        assert verdict == AppResponse(code)
        if not code:
            for message in (AppMessage(b"\x00one"), AppMessage(b"")):
                assert far.receive(near.seal(encode_message(message))) == message
                assert near.receive(far.seal(encode_message(message))) == message
        frames = near.seal(encode_message(request(1))), far.seal(encode_message(RESPONSE))
        assert fails(far, frames[0]) is ProtocolCode.INVALID_STATE
        assert fails(near, frames[1]) is ProtocolCode.INVALID_STATE


@pytest.mark.parametrize(
    ("asked", "answer", "other"),
    [
        (
            ADMIN_REQUEST,
            AdminResponse(0, ProtocolCode.ACCESS_DENIED, AdminEmpty()),
            ExtResponse(0, 0, ExportedWallet(b"")),
        ),
        (
            EXT_REQUEST,
            ExtResponse(0, ResultCode.OK, ExportedWallet(b"wallet")),
            AdminResponse(0, 0, AdminEmpty()),
        ),
    ],
)
def test_one_request_is_answered(
    asked: AdminRequest | ExtRequest,
    answer: AdminResponse | ExtResponse,
    other: AdminResponse | ExtResponse,
) -> None:
    near, far = ClientDialogue(PEER, BROKER.public_key, asked), broker()
    _, taken = exchange(near, far)
    assert taken == asked
    far.answer(answer)
    got, _ = exchange(near, far)
    assert got == answer
    assert fails(near, far.seal(encode_message(answer))) is ProtocolCode.INVALID_STATE
    assert fails(far, near.seal(encode_message(Start(asked)))) is ProtocolCode.INVALID_STATE

    near, far = ClientDialogue(PEER, BROKER.public_key, asked), broker()
    exchange(near, far)
    assert fails(near, far.seal(encode_message(other))) is ProtocolCode.INVALID_STATE


def test_an_administrator_s_request_is_signed() -> None:
    forged = replace(ADMIN_REQUEST, content=ListUsers(False))
    near, far = ClientDialogue(PEER, BROKER.public_key, forged), broker()
    with pytest.raises(NextGraphError) as caught:
        exchange(near, far)
    assert caught.value.closing is ProtocolCode.INVALID_SIGNATURE


@pytest.mark.parametrize("discoverable", [True, False])
def test_a_probe_is_answered(discoverable: bool) -> None:
    far = broker(discoverable=discoverable)
    assert far.receive(b"\x00NG") == Probe()
    (answer,) = far.take_output()
    shown = BROKER.public_key if discoverable else None
    assert decode_message(answer) == ProbeResponse(b"YXNK", shown)
    assert fails(far, b"\x00NG") is ProtocolCode.INVALID_STATE


def test_a_probe_says_what_it_is() -> None:
    assert fails(broker(), b"\x00GN") is ProtocolCode.WHERE_IS_THE_MAGIC


@each_row(
    [
        (b"", NetCode.SERIALIZATION_ERROR),
        (b"\x06", NetCode.SERIALIZATION_ERROR),
        (b"\x06\x01\x00", NetCode.SERIALIZATION_ERROR),
        (b"\x06\x00\x30" + bytes(47), NetCode.SERIALIZATION_ERROR),
        (b"\x11", NetCode.SERIALIZATION_ERROR),
        (encode_message(Noise(bytes(48))), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (encode_message(Noise(bytes(47))), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (encode_message(Noise(b"")), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (encode_message(ServerHello(NONCE)), ProtocolCode.INVALID_STATE),
        (encode_message(Start(ClientHello(None))), ProtocolCode.INVALID_STATE),
        (encode_message(CoreMessage(b"")), ProtocolCode.INVALID_STATE),
        (encode_message(request(1)), ProtocolCode.INVALID_STATE),
    ]
)
def test_a_broker_is_greeted_as_agreed(frame: bytes, code: ProtocolCode | NetCode) -> None:
    assert fails(broker(), frame) is code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Noise(bytes(64)), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (Noise(bytes(65)), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (Start(ClientHello(Noise(bytes(64)))), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (Start(AppHello(Noise(bytes(9)), None, INFO)), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (Start(ClientHello(None)), ProtocolCode.INVALID_STATE),
        (Start(EXT_REQUEST), ProtocolCode.INVALID_STATE),
        (Probe(), ProtocolCode.INVALID_STATE),
    ],
)
def test_the_third_message_is_what_it_should_be(
    message: ProtocolMessage, code: ProtocolCode
) -> None:
    far = broker()
    far.receive(ClientDialogue(PEER, BROKER.public_key, LOGIN).take_output()[0])
    assert fails(far, encode_message(message)) is code


def test_a_client_knows_its_broker() -> None:
    near = ClientDialogue(PEER, USER.public_key, LOGIN)
    assert fails(broker(), near.take_output()[0]) is ProtocolCode.NOISE_HANDSHAKE_FAILED
    with pytest.raises(CodecError) as caught:
        ClientDialogue(PEER, b"\xff" * 32, LOGIN)
    assert caught.value.code == "key.point"


@each_row(
    [
        (proof(nonce=b"o" * 32), ProtocolCode.INVALID_NONCE),
        (proof(nonce=b""), ProtocolCode.INVALID_NONCE),
        (proof(login=replace(LOGIN, user=CLIENT)), ProtocolCode.INVALID_SIGNATURE),
        (proof(login=replace(LOGIN, client=USER)), ProtocolCode.INVALID_SIGNATURE),
        (replace(proof(), sig=bytes(64)), ProtocolCode.INVALID_SIGNATURE),
        (AuthResult(0), ProtocolCode.INVALID_STATE),
        (request(1), ProtocolCode.INVALID_STATE),
        (AppMessage(b""), ProtocolCode.INVALID_STATE),
    ]
)
def test_a_client_proves_who_it_is(message: ProtocolMessage, code: ProtocolCode) -> None:
    near, far, hello = greeted()
    near.receive(hello)
    near, far, hello = greeted()
    assert fails(far, near.seal(encode_message(message))) is code
    # A wrong signature is told before the close, as clients expect.
    verdicts = far.take_output()
    assert bool(verdicts) is (code is ProtocolCode.INVALID_SIGNATURE)
    near.receive(hello)
    assert [near.receive(frame) for frame in verdicts] == [AuthResult(code)][: len(verdicts)]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (request(0), ProtocolCode.INVALID_STATE),
        (request(-1), ProtocolCode.INVALID_STATE),
        (RESPONSE, ProtocolCode.ACTOR_ERROR),
        (ClientMessage(NIL_OVERLAY, make_event()[0]), ProtocolCode.INVALID_STATE),
        (AppMessage(b""), ProtocolCode.INVALID_STATE),
        (proof(), ProtocolCode.INVALID_STATE),
    ],
)
def test_a_client_asks_only(message: ProtocolMessage, code: ProtocolCode) -> None:
    near, far = joined()
    assert fails(far, near.seal(encode_message(message))) is code


def changed(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def emptied(frame: bytes) -> bytes:
    return frame[:2] + b"\x00"


def replaced(frame: bytes) -> bytes:
    return encode_message(Noise(bytes(len(frame))))


@pytest.mark.parametrize("spoil", [changed, emptied, replaced])
def test_what_does_not_authenticate_ends_the_connection(spoil: Callable[[bytes], bytes]) -> None:
    near, far = joined()
    assert fails(far, spoil(near.seal(encode_message(request(1))))) is ProtocolCode.DECRYPTION_ERROR
    near, far = joined()
    assert fails(near, spoil(far.seal(encode_message(RESPONSE)))) is ProtocolCode.DECRYPTION_ERROR


@pytest.mark.parametrize(
    "head", ["06 00 {} 00", "8600 00 {} 00", "06 8000 {} 8000", "868000 00 {} 00"]
)
def test_the_head_of_a_frame_may_be_padded(head: str) -> None:
    near, far = joined()
    for number in (1, 2):
        frame = near.seal(encode_message(request(number)))
        assert frame[2] < 128
        padded = bytes.fromhex(head.format(f"{frame[2] | 128:02x}"))
        assert far.receive(padded + frame[3:]) == request(number)


def test_frames_are_neither_repeated_nor_left_out() -> None:
    near, far = joined()
    frame = near.seal(encode_message(request(1)))
    far.receive(frame)
    assert fails(far, frame) is ProtocolCode.DECRYPTION_ERROR
    near, far = joined()
    near.seal(encode_message(request(1)))
    assert fails(far, near.seal(encode_message(request(2)))) is ProtocolCode.DECRYPTION_ERROR


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (encode_message(request(1)), ProtocolCode.MUST_BE_ENCRYPTED),
        (encode_message(AppMessage(b"")), ProtocolCode.MUST_BE_ENCRYPTED),
        (b"", NetCode.SERIALIZATION_ERROR),
        (b"\x0e\x00\x05", NetCode.SERIALIZATION_ERROR),
        (b"\x06\x00\x20" + bytes(31), NetCode.SERIALIZATION_ERROR),
        (b"\x06\x01\x10" + bytes(16), NetCode.SERIALIZATION_ERROR),
    ],
)
def test_nothing_is_said_in_clear_after_the_handshake(
    frame: bytes, code: ProtocolCode | NetCode
) -> None:
    near, far = joined()
    assert fails(far, frame) is code
    assert fails(near, frame) is code


def test_what_is_sealed_but_malformed_ends_the_connection() -> None:
    near, far = joined()
    assert fails(far, near.seal(b"\x0e\x00\x07")) is NetCode.SERIALIZATION_ERROR
    assert fails(near, far.seal(b"")) is NetCode.SERIALIZATION_ERROR


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", NetCode.SERIALIZATION_ERROR),
        (encode_message(Noise(bytes(48))), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (encode_message(Noise(bytes(64))), ProtocolCode.NOISE_HANDSHAKE_FAILED),
        (encode_message(ProbeResponse(b"YXNK", None)), ProtocolCode.INVALID_STATE),
    ],
)
def test_a_broker_answers_as_agreed(frame: bytes, code: ProtocolCode | NetCode) -> None:
    near = ClientDialogue(PEER, BROKER.public_key, LOGIN)
    near.take_output()
    assert fails(near, frame) is code


def speechless(
    purpose: ClientLogin | AppLogin | AdminRequest | ExtRequest,
) -> tuple[ClientDialogue, Channel]:
    """A client after its third message, and what the broker would say something with."""
    near, far = ClientDialogue(PEER, BROKER.public_key, purpose), Handshake.responder(BROKER)
    (first,) = near.take_output()
    far.read(first[3:], 48)
    near.receive(write_noise(far.write()))
    third = decode_message(near.take_output()[0])
    content = third.content if isinstance(third, Start) else None
    noise = content.noise if isinstance(content, ClientHello | AppHello) else third
    assert isinstance(noise, Noise)
    far.read(noise.data, 64)
    return near, far.channel()


@pytest.mark.parametrize("purpose", [LOGIN, APP_LOGIN, ADMIN_REQUEST, EXT_REQUEST])
@pytest.mark.parametrize("message", [proof(), RESPONSE, Start(EXT_REQUEST), Probe()])
def test_a_broker_greets_as_agreed(
    purpose: ClientLogin | AppLogin | AdminRequest | ExtRequest, message: ProtocolMessage
) -> None:
    near, far = speechless(purpose)
    assert fails(near, far.seal(encode_message(message))) is ProtocolCode.INVALID_STATE


@pytest.mark.parametrize("message", [request(1), Start(AppResponse(0)), Probe()])
def test_who_comes_to_ask_once_asks_once(message: ProtocolMessage) -> None:
    far, handshake = broker(), Handshake.initiator(PEER, BROKER.public_key)
    far.receive(write_noise(handshake.write()))
    answer = decode_message(far.take_output()[0])
    assert isinstance(answer, Noise)
    handshake.read(answer.data, 48)
    assert far.receive(write_noise(handshake.write())) is None
    frame = handshake.channel().seal(encode_message(message))
    assert fails(far, frame) is ProtocolCode.INVALID_STATE


@pytest.mark.parametrize(
    "message", [RESPONSE, Start(AppResponse(0)), Start(EXT_REQUEST), ServerHello(NONCE)]
)
def test_a_client_waits_for_its_verdict(message: ProtocolMessage) -> None:
    near, far, hello = greeted()
    near.receive(hello)
    assert fails(near, far.seal(encode_message(message))) is ProtocolCode.INVALID_STATE


def test_an_administrator_asks_at_once() -> None:
    near, far = ClientDialogue(PEER, BROKER.public_key, ADMIN_REQUEST), broker()
    far.receive(near.take_output()[0])
    near.receive(far.take_output()[0])
    far.receive(near.take_output()[0])
    near.seal(b"")
    assert fails(far, encode_message(Start(ADMIN_REQUEST))) is ProtocolCode.MUST_BE_ENCRYPTED
