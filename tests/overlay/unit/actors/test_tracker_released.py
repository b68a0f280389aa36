"""The tracker and released nodes: who is linked to whom, and who is called how."""

from itertools import count

import pytest

from core_support import Core, Peer
from rillnode.actors.core.access import NODE_PRINCIPAL, Grant, Verb
from rillnode.actors.overlay.dialect import Dialect, decode
from rillnode.actors.overlay.tracker import ADDRESS, DIAL_SECONDS, TrackerActor
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Instruction,
    Status,
    StatusMessage,
    StorageNodes,
    StreamStatus,
)
from rillnode.codecs.streamr.node_address import NodeAddress, ReleasedPeer
from rillnode.node.testing.contract.links import Recorder
from tracker_support import TrackedNode, gathered, spawn_tracker

_NUMBERS = count(1)


class _Link(Recorder):
    """As much of a link as tells who is at its other end."""

    buffered_bytes = 0

    def __init__(self, claim: ReleasedPeer) -> None:
        super().__init__()
        self.info = LinkInfo(
            principal="anonymous",
            remote=claim.url,
            transport="streamr_network",
            dialled=False,
            message_bytes_max=1_000_000,
            claim=claim,
        )


class ReleasedNode:
    """A released node as the tracker sees it, behind its translator."""

    def __init__(self, core: Core, name: str, generation: str, *, storage: bool = False) -> None:
        self.url = f"ws://h:{next(_NUMBERS)}"
        self.core = core
        self.peer: Peer = core.peer("anonymous")
        claim = ReleasedPeer(name, self.url, generation, storage=storage)
        self.peer.origin.link = _Link(claim)  # type: ignore[assignment]
        self.told: list[Instruction] = []

    async def say(self, *neighbours: str, counter: int | None = 0) -> None:
        """Say the status of one stream; hear what the tracker has to say."""
        self.send(*neighbours, counter=counter)
        await gathered(self.core)

    def send(self, *neighbours: str, counter: int | None = 0) -> None:
        """Send the status."""
        said = StreamStatus(inbound_nodes=neighbours, outbound_nodes=(), counter=counter)
        message = StatusMessage(status=Status(streams={"s::0": said}, started="now"))
        self.peer.send(ADDRESS, Dialect().encode(message))

    def heard(self) -> list[str]:
        """Whom the newest instruction names."""
        found = [decode(answer.payload).message for answer in self.peer.answers]
        self.peer.answers.clear()
        self.told += [one for one in found if isinstance(one, Instruction)]
        return sorted(self.told[-1].node_addresses) if self.told else []


class Bridge(TrackedNode):
    """The tracker's own node."""

    def __init__(self, core: Core) -> None:
        super().__init__(core, 1)
        self.address = NodeAddress(self.identity, "h", 4001, url="ws://h/node")
        self.peer = core.peer(NODE_PRINCIPAL)


def grant(core: Core) -> None:
    core.access.add(Grant(who="anonymous", streams="*", may=frozenset(("push", "subscribe"))))


async def test_the_node_that_comes_dials_and_the_others_are_not_told(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    a, b, c = (ReleasedNode(core, name, "22") for name in "abc")
    for node in (a, b, c):
        await node.say()
    assert a.heard() == []
    assert b.heard() == [a.url]
    assert c.heard() == sorted((a.url, b.url))


@pytest.mark.parametrize("generation", ["13", "19", "22"])
async def test_who_spoke_before_it_was_dialled_is_not_told_to_dial_as_well(
    core: Core, generation: str
) -> None:
    grant(core)
    spawn_tracker(core)
    a, b = (ReleasedNode(core, name, generation) for name in "ab")
    for node in (a, b, a):  # the last status was sent before b had come to a
        await node.say()
    assert (a.heard(), b.heard()) == ([], [a.url])
    await a.say("b")
    await b.say("a", counter=1)
    core.clock.advance(DIAL_SECONDS)
    await a.say()  # now it has lost what it knew of
    assert a.heard() == [b.url]


@pytest.mark.parametrize("generation", ["13", "19", "22"])
async def test_of_two_that_come_at_once_one_dials_the_other(core: Core, generation: str) -> None:
    grant(core)
    spawn_tracker(core)
    own = Bridge(core)
    a, b = (ReleasedNode(core, name, generation) for name in "ab")
    own.send_status("s::0")
    for node in (a, b):
        node.send()
    await gathered(core)
    told = {node.url: [one for one in node.heard() if one in (a.url, b.url)] for node in (a, b)}
    assert sorted(map(len, told.values())) == [0, 1]
    core.clock.advance(DIAL_SECONDS)
    await core.settle()
    late = a if not told[a.url] else b
    assert len(late.heard()) == 2  # with the link that there is by now, and the tracker's own


@pytest.mark.parametrize("generation", ["13", "22"])
async def test_the_end_that_was_to_dial_can_say_that_there_is_no_link(
    core: Core, generation: str
) -> None:
    grant(core)
    spawn_tracker(core)
    a, b = (ReleasedNode(core, name, generation) for name in "ab")
    for node in (a, b):
        await node.say()
    assert b.heard() == [a.url]
    b.told.clear()
    await b.say(counter=1)
    assert (a.heard(), b.heard()) == ([], [a.url])  # it is told to try again


async def test_a_grant_can_name_a_released_node_by_the_id_that_it_says(core: Core) -> None:
    for who, streams in (("streamr:a", "*"), ("streamr:b", "s"), ("noise:c", "*")):
        may = frozenset[Verb](("push", "subscribe"))
        core.access.add(Grant(who=who, streams=streams, may=may))
    spawn_tracker(core)
    a, b, c = (ReleasedNode(core, name, "22") for name in "abc")
    for node in (a, c, b):
        await node.say()
    assert [node.heard() for node in (a, b, c)] == [[], [a.url], []]


async def test_nodes_that_do_not_understand_each_other_are_not_linked(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    nodes = [ReleasedNode(core, f"n{one}", one) for one in ("13", "19", "22")]
    own = TrackedNode(core, 7)
    for node in nodes:
        await node.say()
    await own.say("s::0")
    assert [node.heard() for node in nodes] == [[], [], []]
    assert own.neighbours == []


async def test_the_trackers_own_node_stands_between_all_kinds(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    bridge, own = Bridge(core), TrackedNode(core, 2)
    nodes = [ReleasedNode(core, f"n{one}", one) for one in ("13", "19", "22")]
    told: set[str] = set()
    bridge.send(_status(bridge))
    await gathered(core)
    for node in nodes:
        await node.say()
    await own.say("s::0")
    for answer in bridge.peer.answers:
        message = decode(answer.payload).message
        assert isinstance(message, Instruction)
        told = set(message.node_addresses)
    assert told == {*(node.url for node in nodes), str(own.address)}
    assert [node.heard() for node in nodes] == [["ws://h/node"]] * 3
    assert own.neighbours == [bridge.identity]


def _status(bridge: Bridge) -> bytes:
    said = StreamStatus(inbound_nodes=(), outbound_nodes=(), counter=0)
    message = StatusMessage(status=Status(streams={"s::0": said}, started="now"))
    return Dialect(str(bridge.address)).encode(message)


async def test_nobody_else_stands_between_them_whatever_it_says(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    node, own = ReleasedNode(core, "n", "22"), TrackedNode(core, 2)
    await node.say()
    await own.say("s::0", source=f"{own.address}#ws://h:1/node")
    assert own.neighbours == []
    assert node.heard() == []


async def test_a_released_node_is_not_called_as_a_node_that_has_proved_its_name(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    tracker = core.router.lookup(ADDRESS)
    own, other = TrackedNode(core, 2), TrackedNode(core, 3)
    await own.say("s::0")
    liar = ReleasedNode(core, own.identity, "22")
    await liar.say()
    await other.say("s::0")
    assert liar.heard() == []
    assert other.neighbours == [own.identity]
    assert tracker is not None
    instance = tracker.instance
    assert isinstance(instance, TrackerActor)
    assert instance.counters["network.source"] == 1


async def test_who_counts_no_instructions_is_heard_all_the_same(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    old = [ReleasedNode(core, name, "13") for name in "ab"]
    for node in old:
        await node.say(counter=None)
    assert old[1].heard() == [old[0].url]
    await old[1].say(counter=None)  # it could not reach the other
    assert old[1].heard() == [old[0].url]
    assert len(old[1].told) == 2
    new = [ReleasedNode(core, name, "22") for name in "cd"]
    for node in new:
        await node.say()
    assert new[1].heard() == [new[0].url]
    await new[1].say(counter=0)  # said before it had heard
    new[1].heard()
    assert len(new[1].told) == 1


async def test_storage_nodes_are_told_to_those_who_understand_them(core: Core) -> None:
    grant(core)
    spawn_tracker(core)
    storage = ReleasedNode(core, "s", "19", storage=True)
    await storage.say()
    for generation, expected in (("19", (storage.url,)), ("22", ())):
        asker = ReleasedNode(core, "a" + generation, generation)
        request = FindStorageNodes(stream_id="s", stream_partition=0)
        asker.peer.send(ADDRESS, Dialect().encode(request))
        await gathered(core)
        (answer,) = (decode(one.payload).message for one in asker.peer.answers)
        assert isinstance(answer, StorageNodes)
        assert answer.node_addresses == expected


async def test_a_node_that_loses_a_neighbour_to_another_is_told(core: Core) -> None:
    grant(core)
    spawn_tracker(core, degree=2)
    nodes = [ReleasedNode(core, name, "13") for name in "abc"]
    for node in nodes:
        await node.say(counter=None)
    for node, neighbours in zip(nodes, ("bc", "ac", "ab"), strict=True):
        await node.say(*neighbours, counter=None)
        node.heard()
    core.clock.advance(DIAL_SECONDS)
    late = ReleasedNode(core, "d", "13")
    await late.say(counter=None)
    split = [node for node in nodes if late.url in node.heard()]
    assert len(split) == 2
    assert late.heard() == []  # they dial it
    core.clock.advance(DIAL_SECONDS)
    await core.settle()
    assert late.heard() == sorted(node.url for node in split)
