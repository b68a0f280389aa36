import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import STREAMR_NODES_MAX
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Form,
    Frame,
    Instruction,
    Location,
    Message,
    Peer,
    PeerType,
    Status,
    StatusMessage,
    StorageNodes,
    StreamStatus,
    Wrapper,
    decode_frame,
    drops_new_connection,
    encode_frame,
    handshake_headers,
    read_handshake,
)

NODES = ("ws://a:1", "ws://b:2")
STATUS = Status(
    streams={"s::0": StreamStatus(inbound_nodes=("a",), outbound_nodes=(), counter=3)},
    started="now",
    rtts={"a": 4, "b": 0.5},
    location=Location(country="FI"),
)
MESSAGES: list[Message] = [
    StatusMessage(status=STATUS),
    Instruction(stream_id="s", stream_partition=2, node_addresses=NODES, counter=9),
    FindStorageNodes(stream_id="s", stream_partition=0),
    StorageNodes(stream_id="s", stream_partition=1, node_addresses=()),
    Wrapper(payload='[2,10,"r","s",0]'),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_message_comes_back(message: Message) -> None:
    # A bare control message has a request id of its own.
    request_id = "" if isinstance(message, Wrapper) else "r"
    for frame in (
        Frame(message=message, form=Form.OBJECT, version="18.0.0"),
        Frame(message=message, form=Form.ARRAY, request_id=request_id),
    ):
        assert decode_frame(encode_frame(frame)) == frame


def test_forms_are_written_as_released() -> None:
    instruction = MESSAGES[1]
    assert encode_frame(Frame(message=instruction, form=Form.OBJECT, version="19.1.0")) == (
        '{"version":"19.1.0","code":1,"payload":{"streamId":"s","streamPartition":2,'
        '"nodeAddresses":["ws://a:1","ws://b:2"],"counter":9}}'
    )
    assert encode_frame(Frame(message=instruction, form=Form.ARRAY, request_id="r")) == (
        '[1,2,"r","s",2,["ws://a:1","ws://b:2"],9]'
    )
    specification = Frame(
        message=instruction, form=Form.SPECIFICATION, version="4.4.3", source="tracker"
    )
    assert encode_frame(specification) == '["4.4.3",1,"tracker","s",["ws://a:1","ws://b:2"]]'


def test_control_message_keeps_its_text() -> None:
    text = '[2, 9,"r", "s\\u00e4",0, null]'
    assert decode_frame(text).message == Wrapper(payload=text)
    assert decode_frame(f'["4.4.3",4,"n", {text} ]').message == Wrapper(payload=text)
    assert decode_frame(f" {text}\n".encode()).message == Wrapper(payload=f" {text}\n")


def test_unknown_fields_and_elements_are_ignored() -> None:
    text = '{"version":"9","code":2,"payload":{"streamId":"s","streamPartition":0,"x":[]},"y":1}'
    assert decode_frame(text).message == FindStorageNodes(stream_id="s", stream_partition=0)
    text = '[1,3,"r","s",0,"more",{}]'
    assert decode_frame(text).message == FindStorageNodes(stream_id="s", stream_partition=0)


@each_row(
    [
        ("", "codec.json"),
        ("[1,2", "codec.json"),
        ("[1,NaN]", "codec.json"),
        ("[" * 100_000, "codec.limit"),
        ('{"version":"9","code":9,"payload":' + '{"a":' * 100_000, "codec.limit"),
        (b"[2,\xff]", "codec.json"),
        (b'["\xff"]', "codec.utf8"),
        ("3", "network.form"),
        ("[]", "network.form"),
        ("[3,1]", "network.form"),
        ("[null]", "network.form"),
        ("{}", "network.form"),
        ('{"version":"9","code":0}', "network.form"),
        ('{"version":9,"code":0,"payload":{}}', "codec.field"),
        ('{"version":"9","code":true,"payload":{}}', "codec.field"),
        ('{"version":"9","code":5,"payload":{}}', "network.type"),
        ('{"version":"9","code":-1,"payload":{}}', "network.type"),
        ('{"version":"9","code":4,"payload":{}}', "codec.field"),
        ('{"version":"9","code":0,"payload":3}', "codec.field"),
        ('{"version":"9","code":2,"payload":{"streamId":"s"}}', "codec.field"),
        ('{"version":"9","code":2,"payload":{"streamId":"","streamPartition":0}}', "codec.field"),
        ("[1]", "codec.field"),
        ('[1,1,"r"]', "codec.field"),
        ('[1,0,"r","s",0]', "network.type"),
        ('[1,5,"r","{}"]', "network.type"),
        ('[1,3,null,"s",0]', "codec.field"),
        ('[1,3,"r","s"]', "codec.field"),
        ('[1,3,"r","s",-1]', "codec.field"),
        ('[1,3,"r","s",1.5]', "codec.field"),
        ('[1,3,"r","s",9007199254740992]', "codec.field"),
        ('[1,2,"r","s",0,["a",1],0]', "codec.field"),
        (f'[1,4,"r","s",0,[{",".join(["0"] * (STREAMR_NODES_MAX + 1))}]]', "codec.field"),
        ('["4.4.3",4,"n"]', "codec.field"),
        ('["4.4.3",4,"n","text"]', "codec.field"),
        ('["4.4.3",5,"n",[]]', "network.type"),
        ('["4.4.3",1,null,"s",[]]', "codec.field"),
    ]
)
def test_no_frame(text: str | bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_frame(text)
    assert caught.value.code == code


@pytest.mark.parametrize("form", [Form.OBJECT, Form.ARRAY])
def test_released_forms_need_a_partition(form: Form) -> None:
    with pytest.raises(CodecError, match=r"codec\.field"):
        encode_frame(Frame(message=FindStorageNodes(stream_id="s"), form=form))


def test_handshake_names_a_peer_on_both_sides() -> None:
    headers = handshake_headers("node-1", PeerType.STORAGE)
    assert headers == {"streamr-peer-id": "node-1", "streamr-peer-type": "storage"}
    upper = {name.upper(): value for name, value in headers.items()}
    peer = Peer(id="node-1", type=PeerType.STORAGE, address="ws://a:1")
    assert read_handshake(headers, "ws://a:1") == read_handshake(upper, "ws://a:1") == peer


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({}, "ws://a:1"),
        ({"streamr-peer-id": "a", "streamr-peer-type": "node"}, None),
        ({"streamr-peer-id": "a", "streamr-peer-type": "node"}, ""),
        ({"streamr-peer-id": "", "streamr-peer-type": "node"}, "ws://a:1"),
        ({"streamr-peer-id": "a", "streamr-peer-type": "broker"}, "ws://a:1"),
        ({"streamr-peer-id": "a"}, "ws://a:1"),
    ],
)
def test_incomplete_handshake_is_refused(headers: dict[str, str], address: str | None) -> None:
    with pytest.raises(CodecError, match=r"network\.handshake"):
        read_handshake(headers, address)


def test_one_side_drops_the_second_of_two_connections() -> None:
    assert drops_new_connection("ws://b:1", "ws://a:1")
    assert not drops_new_connection("ws://a:1", "ws://b:1")
