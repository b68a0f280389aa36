"""The link of a released peer: when it opens, what goes through it, and what ends it."""

from collections import Counter
from collections.abc import Sequence

import pytest

from rillnode.actors.overlay.dialect import Dialect
from rillnode.actors.overlay.generations import GENERATIONS, generation_of
from rillnode.actors.overlay.released import (
    BAD_FRAMES_MAX,
    NAME_CHARS_MAX,
    Expected,
    ReleasedEvents,
)
from rillnode.actors.overlay.translating import Role, Translator
from rillnode.codecs.errors import CodecError
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.codecs.routing.wire import wire_codec
from rillnode.codecs.streamr.control import decode_control
from rillnode.codecs.streamr.control_messages import BroadcastMessage, UnicastMessage
from rillnode.codecs.streamr.network import (
    Form,
    Frame,
    Instruction,
    Message,
    Peer,
    PeerType,
    StorageNodes,
    Wrapper,
    decode_frame,
)
from rillnode.codecs.streamr.node_address import ReleasedPeer
from rillnode.codecs.streamr.stream_message import Layout
from rillnode.node.testing.contract.links import Recorder

URL = "ws://127.0.0.1:30301"
NODE = Peer(id="node-1", type=PeerType.NODE, address=URL)
SUBSCRIBE = b'[2,9,"r","s",0,null]'
WIRE = wire_codec("bare")


class Socket:
    """A WebSocket that remembers what was done with it."""

    def __init__(self) -> None:
        self.info = LinkInfo(
            principal="anonymous",
            remote="peer",
            transport="streamr_network",
            dialled=False,
            message_bytes_max=1_000_000,
        )
        self.buffered_bytes = 7
        self.sent: list[bytes] = []
        self.done: list[str] = []

    def send(self, messages: Sequence[bytes]) -> None:
        self.sent += messages

    def pause_reading(self) -> None:
        self.done.append("paused")

    def resume_reading(self) -> None:
        self.done.append("resumed")

    def close(self, reason: str, code: int = 1000) -> None:
        self.done.append(f"{code} {reason}")


class Link:
    """One link, with all that stands around its events."""

    def __init__(self, role: Role = Role.NODE, peer: Peer = NODE, generation: str = "") -> None:
        self.inner, self.socket, self.counters = Recorder(), Socket(), Counter[str]()
        translator = Translator(role, GENERATIONS.get(generation))
        self.events = ReleasedEvents(self.inner, Expected(peer, role), translator, self.counters)
        self.events.link_opened(self.socket)

    def write(self, message: Message) -> None:
        """Send a message as the actors do."""
        wire = WireMessage((local("x"),), (), Dialect().encode(message))
        self.inner.open_link.send([WIRE.encode(wire)])


def test_an_accepted_link_opens_with_the_first_frame_that_can_be_read() -> None:
    link = Link()
    link.events.link_drained()
    link.events.messages_received([b"nonsense"])
    assert link.inner.calls == []
    link.events.messages_received([SUBSCRIBE])
    assert link.inner.calls == ["opened", "messages"]
    assert link.inner.open_link.info.claim == ReleasedPeer("node-1", URL, "22")
    assert link.counters == {"codec.json": 1}
    link.events.link_drained()
    link.events.link_closed("gone")
    assert link.inner.calls[2:] == ["drained", "closed"]


def test_a_dialled_link_opens_at_once_as_it_is_known_how_the_peer_writes() -> None:
    peer = Peer(id="t", type=PeerType.TRACKER, address=URL)
    link = Link(Role.TRACKER, peer, "13")
    claim = link.inner.open_link.info.claim
    assert claim == ReleasedPeer("t", URL, "13", tracker=True)


def test_a_link_that_never_said_anything_ends_silently() -> None:
    link = Link()
    link.events.link_closed("gone")
    assert link.inner.calls == []


def test_reading_and_closing_are_the_sockets() -> None:
    link = Link(generation="22")
    inner = link.inner.open_link
    inner.pause_reading()
    inner.resume_reading()
    inner.close("done")
    link.events.close("streamr:endpoint:duplicate-connection")
    assert inner.buffered_bytes == 7
    assert link.socket.done == [
        "paused",
        "resumed",
        "1000 done",
        "1002 streamr:endpoint:duplicate-connection",
    ]


def test_a_peer_that_says_nothing_but_nonsense_is_closed() -> None:
    link = Link(generation="22")
    link.events.messages_received([b"[]"] * BAD_FRAMES_MAX)
    assert link.socket.done == []
    link.events.messages_received([b"[]"])
    assert link.socket.done == ["1002 too many frames that cannot be read"]
    assert link.counters["network.form"] == BAD_FRAMES_MAX + 1


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (
            "13",
            b'{"version":"13.0.0","code":4,"payload":'
            b'{"serializedControlLayerPayload":"[1,9,\\"s\\",0,null]"}}',
        ),
        (
            "19",
            b'{"version":"19.1.0","code":4,"payload":'
            b'{"serializedControlLayerPayload":"[2,9,\\"r\\",\\"s\\",0,null]"}}',
        ),
        ("22", SUBSCRIBE),
    ],
)
def test_a_request_is_written_as_the_peer_reads_it_and_answered(
    generation: str, expected: bytes
) -> None:
    link = Link(generation=generation)
    link.write(Wrapper(payload=SUBSCRIBE.decode()))
    assert link.socket.sent == [expected]
    (answer,) = WIRE.decode(link.inner.messages)
    assert answer.onward_route == (local("overlay/s/0"),)
    assert b'[2,2,"r","s",0]' in answer.payload


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (
            "13",
            b'{"version":"13.0.0","code":1,"payload":'
            b'{"streamId":"s","streamPartition":0,"nodeAddresses":["ws://h:1"]}}',
        ),
        ("22", b'[1,2,"1","s",0,["ws://h:1"],3]'),
    ],
)
def test_a_tracker_speaks_to_a_node_as_that_reads(generation: str, expected: bytes) -> None:
    link = Link(Role.TRACKED, generation=generation)
    told = Instruction(stream_id="s", stream_partition=0, node_addresses=("ws://h:1",), counter=3)
    link.write(told)
    assert link.socket.sent == [expected]


def test_what_has_no_form_for_the_peer_is_counted_and_left_out() -> None:
    link = Link(generation="13")
    error = '[2,7,"r","text","CODE"]'
    link.write(Wrapper(payload='[2,99,"r"]'))
    link.write(Wrapper(payload=error))
    assert link.counters == {"streamr.type": 1}
    assert len(link.socket.sent) == 1


@pytest.mark.parametrize("generation", list(GENERATIONS))
@pytest.mark.parametrize("kind", [0, 1])
def test_a_message_in_the_specifications_layout_is_written_as_released_nodes_read_it(
    generation: str, kind: int
) -> None:
    link = Link(generation=generation)
    name = '["s",0,1,0,"p","c"]'
    link.write(Wrapper(payload=f'[2,{kind},"r",[32,{name},null,27,0,0,null,"{{}}",0,null]]'))
    (text,) = link.socket.sent
    frame = decode_frame(text)
    assert isinstance(frame.message, Wrapper)
    _, control = decode_control(frame.message.payload)
    assert isinstance(control, BroadcastMessage | UnicastMessage)
    assert (control.layout, control.message.content) == (Layout.RELEASED, "{}")
    # What they have no form for is not sent to them.
    link.write(Wrapper(payload=f'[2,{kind},"r",[32,{name},null,32,0,2,"k","00",0,null]]'))
    assert len(link.socket.sent) == 1
    assert link.counters == {"streamr.inexpressible": 1}


@pytest.mark.parametrize(
    ("role", "raw"),
    [
        (Role.NODE, b'[1,2,"","s",0,[],1]'),
        (Role.TRACKED, b'[1,2,"","s",0,[],1]'),
        (Role.TRACKED, SUBSCRIBE),
        (Role.TRACKER, b'[1,1,"",{"streams":{},"started":""}]'),
        (Role.NODE, b'[2,8,"r",[32,["s",0,1,0,"p","c"],null,27,0,0,null,"{}",null,0,null],null]'),
        (Role.NODE, b'[2,7,"r","text","CODE"]'),
    ],
)
def test_what_is_not_for_a_peer_to_say_is_refused(role: Role, raw: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        Translator(role).incoming(raw)
    assert caught.value.code == "network.type"


def test_a_peer_keeps_to_one_way_of_writing() -> None:
    translator = Translator(Role.TRACKED)
    translator.incoming(b'[1,1,"",{"streams":{},"started":""}]')
    with pytest.raises(CodecError) as caught:
        translator.incoming(b'{"version":"13.0.0","code":0,"payload":{"streams":{},"started":""}}')
    assert caught.value.code == "network.generation"


@pytest.mark.parametrize(
    ("version", "generation"),
    [("6.0.0", "13"), ("17.9.1", "13"), ("18.0.0", "19"), ("19.1.0", "19")],
)
def test_objects_tell_their_generation_by_the_package(version: str, generation: str) -> None:
    message = StorageNodes(stream_id="s", stream_partition=0, node_addresses=())
    frame = Frame(message=message, form=Form.OBJECT, version=version)
    assert generation_of(frame).name == generation


@pytest.mark.parametrize(
    ("form", "version"),
    [(Form.OBJECT, "new"), (Form.SPECIFICATION, "4.4.3"), (Form.EXTENDED, "1.")],
)
def test_other_forms_are_no_released_nodes(form: Form, version: str) -> None:
    message = StorageNodes(stream_id="s", stream_partition=0, node_addresses=())
    with pytest.raises(CodecError):
        generation_of(Frame(message=message, form=form, version=version))


@pytest.mark.parametrize(
    ("peer", "role"),
    [
        (Peer(id="n", type=PeerType.NODE, address=URL), Role.TRACKER),
        (Peer(id="t", type=PeerType.TRACKER, address=URL), Role.TRACKED),
        (Peer(id="t", type=PeerType.TRACKER, address=URL), Role.NODE),
        (Peer(id="n" * (NAME_CHARS_MAX + 1), type=PeerType.NODE, address=URL), Role.NODE),
        (Peer(id="n", type=PeerType.NODE, address="http://h:1"), Role.NODE),
        (Peer(id="n", type=PeerType.NODE, address="ws://h:99999"), Role.NODE),
    ],
)
def test_who_has_no_business_here_is_refused(peer: Peer, role: Role) -> None:
    with pytest.raises(CodecError):
        Expected(peer, role)
