import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from each_row import each_row
from nextgraph_support import BROKER, CLIENT, INFO, NONCE, PEER, TOPIC, USER, make_event
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.admin import (
    AddInvitation,
    AddUser,
    AdminCode,
    AdminContent,
    AdminEmpty,
    AdminResponse,
    CreateUser,
    DelUser,
    InvitationCode,
    Invitations,
    ListInvitations,
    ListUsers,
    MultiCode,
    SetupCode,
    UniqueCode,
    UserId,
    Users,
    admin_request_holds,
    sign_admin_request,
)
from rillnode.codecs.nextgraph.adverts import (
    IPTransport,
    PeerAdvert,
    PeerAdvertContent,
    Transport,
    sign_publisher_advert,
)
from rillnode.codecs.nextgraph.blocks import Block, BlockContent, HeaderId, RandomAccess
from rillnode.codecs.nextgraph.bloom import BloomFilter
from rillnode.codecs.nextgraph.bootstrap import (
    BootstrapContent,
    BoxPublicDyn,
    BrokerServer,
    BrokerServerType,
    Domain,
    Invitation,
)
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.external import (
    Blocks,
    ExportedWallet,
    ExtEmpty,
    ExtObjectGet,
    ExtRequest,
    ExtResponse,
    WalletGetExport,
)
from rillnode.codecs.nextgraph.inbox import (
    InboxBody,
    InboxMessage,
    LocatedBroker,
    LocatedServers,
    inbox_signature_holds,
)
from rillnode.codecs.nextgraph.messages import (
    AppMessage,
    CoreMessage,
    ProtocolMessage,
    decode_message,
    encode_message,
)
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    ClientRequest,
    CommitGet,
    InboxPost,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
    OpenRepo,
    PinRepo,
    RepoPinStatusReq,
    RequestContent,
    TopicSub,
    TopicSyncReq,
    TopicUnsub,
    UnpinRepo,
    WalletPutExport,
    inbox_register_holds,
    sign_inbox_register,
)
from rillnode.codecs.nextgraph.responses import (
    BlocksFound,
    ClientResponse,
    EmptyResponse,
    RepoOpened,
    RepoPinStatus,
    ResponseContent,
    TopicSubRes,
    TopicSyncRes,
)
from rillnode.codecs.nextgraph.start import (
    AppHello,
    AppResponse,
    AuthResult,
    ClientAuthContent,
    ClientHello,
    CoreHello,
    Noise,
    Probe,
    ProbeResponse,
    Registration,
    Relay,
    RelayResponse,
    ServerHello,
    Start,
    Tunnel,
    TunnelResponse,
    sign_client_auth,
)
from rillnode.codecs.nextgraph.types import (
    NIL_OVERLAY,
    BindAddress,
    DirectPeer,
    GlobalOverlay,
    InnerOverlay,
    IPv4,
    IPv6,
    ObfuscatedPeer,
    OuterOverlay,
    ReadOnlyAccess,
    ReadWriteAccess,
    WriteOnlyAccess,
)

ID, KEY, SIG = b"i" * 32, b"k" * 32, b"s" * 64
INNER, OUTER = InnerOverlay(ID), OuterOverlay(KEY)
ADDRESS = BindAddress(14_400, IPv4(b"\x7f\x00\x00\x01"))
BLOCK = Block(KEY, BlockContent(HeaderId(ID), [ID, KEY], b"sealed"))
OTHER_BLOCK = Block(None, BlockContent(RandomAccess(), [], b""))
EVENT, _ = make_event()
ADVERT = sign_publisher_advert(TOPIC, BROKER.public_key)
PEER_ADVERT = PeerAdvert(
    PeerAdvertContent(
        DirectPeer(KEY), PEER.public_key, [IPTransport(IPv6(bytes(16)), 1, Transport.QUIC)], 1, b"m"
    ),
    SIG,
)
HIDDEN_ADVERT = PeerAdvert(PeerAdvertContent(ObfuscatedPeer(ID), None, [], 0, b""), SIG)
TOPIC_RES = TopicSubRes(TOPIC.public_key, [ID], True, 2**64 - 1)
LETTER = InboxMessage(InboxBody(OUTER, KEY, INNER, ID, b"sealed"), SIG, [BLOCK])
ANONYMOUS = InboxMessage(InboxBody(GlobalOverlay(), KEY, None, None, b""), None, [])
SERVERS: list[BrokerServerType] = [Domain("a.example"), BoxPublicDyn([ADDRESS])]
INVITATION = Invitation(
    BootstrapContent([BrokerServer(SERVERS[0], True, False, KEY)]), KEY, "name", "url"
)

REQUESTS: list[RequestContent] = [
    OpenRepo(ID, ReadOnlyAccess(OUTER), [PEER_ADVERT, HIDDEN_ADVERT], 9, [KEY], [ADVERT]),
    PinRepo(ID, ReadWriteAccess(INNER, OUTER), KEY, True, [], 65_535, [], [ADVERT, ADVERT]),
    PinRepo(ID, WriteOnlyAccess(INNER), None, False, [HIDDEN_ADVERT], 0, [KEY], []),
    UnpinRepo(ID),
    RepoPinStatusReq(ID),
    TopicSub(KEY, ID, ADVERT),
    TopicSub(KEY, ID, None),
    TopicUnsub(KEY, ID),
    BlocksExist([ID, KEY]),
    BlocksGet([ID], True, KEY),
    BlocksGet([], False, None),
    CommitGet(ID, KEY),
    TopicSyncReq(KEY, [ID], [KEY], BloomFilter(bytes(32))),
    TopicSyncReq(KEY, [], [], None),
    ObjectPin(ID),
    ObjectUnpin(ID),
    ObjectDel(ID),
    BlocksPut([BLOCK, OTHER_BLOCK]),
    EVENT,
    WalletPutExport(b"wallet", KEY, True),
    sign_inbox_register(USER, OUTER, b"c" * 32),
    InboxPost(LETTER, [LocatedBroker(LocatedServers(SERVERS, 1), KEY, SIG)]),
    InboxPost(ANONYMOUS, None),
]
RESPONSES: list[ResponseContent] = [
    EmptyResponse(),
    BLOCK,
    RepoOpened([TOPIC_RES, TOPIC_RES]),
    TOPIC_RES,
    TopicSyncRes(EVENT),
    TopicSyncRes(OTHER_BLOCK),
    BlocksFound([ID], [KEY, KEY]),
    RepoPinStatus(ID, True, [TOPIC_RES]),
]
CODES: list[InvitationCode] = [UniqueCode(KEY), AdminCode(KEY), MultiCode(KEY), SetupCode(KEY)]
ADMIN_REQUESTS: list[AdminContent] = [
    AddUser(KEY, True),
    DelUser(KEY),
    ListUsers(False),
    ListInvitations(True, False, True),
    *(AddInvitation(code, 2**32 - 1, "memo", False) for code in CODES),
    AddInvitation(CODES[0], 0, None, True),
    CreateUser(),
]
LISTED = Invitations([*((code, 1, "memo") for code in CODES), (CODES[0], 0, None)])
AUTH = ClientAuthContent(USER.public_key, CLIENT.public_key, INFO, None, NONCE)


def messages() -> Iterator[ProtocolMessage]:
    yield from (Probe(), ProbeResponse(b"YXNK", KEY), ProbeResponse(b"", None))
    yield from (Relay(ADDRESS), RelayResponse(b"m", 1))
    yield from (Tunnel(b"m", BindAddress(0, IPv6(bytes(16)))), TunnelResponse(b"m", 65_535))
    yield from (Noise(b""), Noise(bytes(300)), ServerHello(NONCE), AuthResult(7, b"why"))
    for hello in (Noise(bytes(64)), None):
        yield Start(ClientHello(hello))
    yield Start(CoreHello(Noise(b"n"), b"payload"))
    yield Start(AppHello(Noise(b"n"), KEY, INFO))
    yield Start(AppResponse(7))
    for registration in (None, Registration(None), Registration(KEY)):
        yield sign_client_auth(replace(AUTH, registration=registration), USER, CLIENT)
    for asked in (WalletGetExport(KEY, True), ExtObjectGet(OUTER, [ID], True), REQUESTS[13]):
        assert isinstance(asked, WalletGetExport | ExtObjectGet | TopicSyncReq)
        yield from (ExtRequest(1, asked), Start(ExtRequest(0, asked)))
    for got in (ExtEmpty(), BLOCK, Blocks([BLOCK, OTHER_BLOCK]), ExportedWallet(b"wallet")):
        yield ExtResponse(0, 7, got)
    for content in ADMIN_REQUESTS:
        yield Start(sign_admin_request(content, USER))
    for result in (AdminEmpty(), Users([KEY, ID]), LISTED, INVITATION, UserId(KEY)):
        yield AdminResponse(-1, 0, result, b"padding")
    for number, request in enumerate(REQUESTS, 1):
        yield ClientMessage(INNER, ClientRequest(number, request))
    for response in RESPONSES:
        yield ClientMessage(NIL_OVERLAY, ClientResponse(-(2**63), 1, response), b"padding")
    for said in (EVENT, BLOCK, InboxReceive(LETTER, True), ClientEvent.INBOX_POP_REQUEST):
        yield ClientMessage(GlobalOverlay(), said)
    yield from (AppMessage(b"\x00..."), CoreMessage(b""))


MESSAGES = list(messages())


@each_row(MESSAGES, lambda message: type(message).__name__)
def test_messages_come_back(message: ProtocolMessage) -> None:
    data = encode_message(message)
    assert decode_message(data) == message
    assert decode_message(memoryview(data)) == message
    if isinstance(message, AppMessage | CoreMessage):
        return
    assert decode_message(data + b"what a later version says") == message
    for end in range(0, len(data), 1 + len(data) // 50):
        with pytest.raises(CodecError):
            decode_message(data[:end])


def test_what_serde_reads_is_read_and_written_back_in_the_one_form() -> None:
    request = ClientRequest(7, BlocksGet([ID], True, KEY))
    message = ClientMessage(INNER, request)
    number = "0700000000000000"
    form = f"0e 00 01 {ID.hex()} 00 00 {number} 07 00 01 00 {ID.hex()} 01 01 00 {KEY.hex()} 00"
    odd = (
        f"8e8000 8000 8100 {ID.hex()} 8000 808000 {number} 8700 8000 818000 8000 {ID.hex()}"
        f" 02 ff 8000 {KEY.hex()} 8000"
    )
    assert encode_message(message) == bytes.fromhex(form)
    assert decode_message(bytes.fromhex(odd)) == message
    assert decode_message(bytes.fromhex(odd) + b"later") == message


def test_every_kind_is_tried() -> None:
    tried = {type(content) for content in REQUESTS}
    assert len(tried) == len(get_args(RequestContent)) == 18
    assert len({type(content) for content in RESPONSES}) == len(get_args(ResponseContent)) == 7
    assert len({encode_message(message)[0] for message in MESSAGES}) == 17


@each_row(
    [
        ("", "codec.truncated"),
        ("11", "codec.union"),
        ("8000", "codec.truncated"),
        ("80808080808080808002", "codec.varint"),
        ("0601", "codec.union"),  # no such version
        ("0706", "codec.union"),  # no such start
        ("070002", "codec.union"),  # no such greeting
        ("090001", "codec.union"),  # a user whose key is not Ed25519
        ("0e0003", "codec.union"),  # no such overlay
        ("0e000206", "codec.union"),  # no such content
        ("0e00020501", "codec.enum"),  # no such event
        ("0e000200000000000000000000" + "12", "codec.union"),  # no such request
        ("0e0002010000000000000000000000" + "07", "codec.union"),  # no such response
        ("0600ffffffff0f", "codec.truncated"),
        ("0600ffffffffffffffffff01", "codec.truncated"),
        ("0600ffffffffffffffffff7f", "codec.varint"),
        ("0e0002000000000000000000000600" + "818004", "codec.limit"),  # 65,537 ids
        ("0e0002000000000000000000000600" + "8008", "codec.truncated"),
        ("010001" + "01", "codec.union"),  # a key of the X25519 kind
        ("010002", "codec.truncated"),
    ]
)
def test_what_is_no_message_is_refused(data: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_message(bytes.fromhex(data))
    assert caught.value.code == code
    assert 0 <= caught.value.offset <= len(data) // 2


def test_a_request_without_a_version_byte_has_none() -> None:
    register = sign_inbox_register(USER, NIL_OVERLAY, b"c" * 32)
    data = encode_message(ClientMessage(NIL_OVERLAY, ClientRequest(1, register)))
    assert data[45:48] == b"\x10\x00" + USER.public_key[:1]
    data = encode_message(ClientMessage(NIL_OVERLAY, ClientRequest(1, RepoPinStatusReq(ID))))
    assert data[45:49] == b"\x03\x00\x00" + ID[:1]


def test_registrations_nest_two_options() -> None:
    forms: list[bytes] = []
    for registration in (None, Registration(None), Registration(KEY)):
        content = replace(AUTH, registration=registration)
        data = encode_message(sign_client_auth(content, USER, CLIENT))
        start = data.index(b"{}\x011") + 4 + 16
        forms.append(data[start : data.index(b"\x20" + NONCE)])
    assert forms == [b"\x00", b"\x01\x00", b"\x01\x01" + KEY]


def test_signatures_of_administrators_and_inboxes_hold_or_not() -> None:
    asked = sign_admin_request(CreateUser(), USER)
    assert admin_request_holds(asked)
    assert not admin_request_holds(replace(asked, admin_user=CLIENT.public_key))
    register = sign_inbox_register(USER, OUTER, b"c" * 32)
    assert inbox_register_holds(register)
    assert not inbox_register_holds(replace(register, challenge=b"d" * 32))

    body = InboxBody(OUTER, KEY, INNER, USER.public_key, b"sealed")
    # Two overlays and a key of 33 bytes each, a key with its option, and the message.
    start = encode_message(ClientMessage(INNER, InboxReceive(InboxMessage(body, None, []), False)))
    signed = start[2 + 33 + 1 : 2 + 33 + 1 + 33 + 33 + 34 + 34 + 7]
    assert inbox_signature_holds(InboxMessage(body, USER.sign(signed), []))
    assert not inbox_signature_holds(InboxMessage(body, SIG, []))
    assert not inbox_signature_holds(InboxMessage(body, None, []))
    assert inbox_signature_holds(ANONYMOUS)
    assert not inbox_signature_holds(replace(ANONYMOUS, sig=SIG))


def test_work_is_linear_in_the_length() -> None:
    def lines(count: int) -> int:
        """Lines of Python that decoding takes."""
        request = ClientMessage(INNER, ClientRequest(1, BlocksExist([ID] * count)))
        data = encode_message(request)
        ran = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal ran
            ran += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            decode_message(data)
        finally:
            sys.settrace(before)
        return ran

    few, more, most = lines(0), lines(1_000), lines(2_000)
    assert most - more == pytest.approx(more - few, rel=0.01)
    assert most > 2_000
