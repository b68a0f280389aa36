"""Tests that what goes on by a right ends with it, and who is told."""

from collections.abc import Callable

import pytest

from core_support import Core, Peer, encode
from coroutines import handed_by
from hub_support import HubPeer, with_hub
from rillnode.actors.core.access import EVERYBODY, Access, Grant
from rillnode.actors.core.rights import SLICE_CELLS, RightsChanged, RightsGained
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.ockam.stream_item import encode_entry
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.codecs.routing.stream import BidirectionalRequest, PushRequest, encode_request

hub = handed_by(with_hub)

WHO = "noise:" + "ab" * 32
PATTERN = Grant(who=WHO, streams="s*", may=frozenset(("pull", "subscribe")))


class Watcher(Worker):
    """Notes what it is told."""

    def __init__(self, told: list[RightsChanged | RightsGained]) -> None:
        self._told = told

    def handle(self, message: object, sender: object) -> None:
        if isinstance(message, RightsChanged | RightsGained):
            self._told.append(message)


def watcher(core: Core, *keys: str) -> tuple[Cell, list[RightsChanged | RightsGained]]:
    told: list[RightsChanged | RightsGained] = []
    cell = core.system.spawn(lambda: Watcher(told))
    for key in keys:
        core.access.rights.watch(key, cell)
    return cell, told


LOSSES: dict[str, Callable[[Access], None]] = {
    "a verb": lambda access: access.set_stream("s", {WHO: ["pull"], EVERYBODY: ["get"]}),
    "a principal": lambda access: access.set_stream("s", {EVERYBODY: ["get"]}),
    "everybody's": lambda access: access.set_stream("s", {WHO: ["pull", "subscribe"]}),
    "the stream": lambda access: access.set_stream("s", {}),
    "admin": lambda access: access.set_stream("s", {WHO: ["admin"]}),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_who_watches_a_stream_hears_of_each_loss_there(core: Core, loss: str) -> None:
    grants = {WHO: ["pull", "subscribe"], EVERYBODY: ["subscribe"]}
    core.access.set_stream("s", grants)
    core.access.set_stream("t", grants)
    _, told = watcher(core, "s")
    _, told_of_another = watcher(core, "t")
    core.access.set_stream("s", {**grants, "noise:cd": ["pull"]})
    core.access.set_stream("new", grants)
    await core.settle()
    assert told == []  # nobody has lost anything
    LOSSES[loss](core.access)
    await core.settle()
    assert told == [RightsChanged("s")]
    assert told_of_another == []


async def test_a_grant_for_a_pattern_concerns_everybody_and_an_added_one_nobody(core: Core) -> None:
    link, told_link = watcher(core)
    core.access.rights.links = lambda: [link]
    _, told = watcher(core, "s", "t")
    core.access.add(PATTERN)
    core.access.replace([], [PATTERN])
    await core.settle()
    assert told == told_link == []
    core.access.replace([PATTERN], [])
    await core.settle()
    assert told == told_link == [RightsChanged()]
    core.access.revoke(WHO)  # there is nothing left to lose
    core.access.add(PATTERN)
    core.access.revoke(WHO)
    await core.settle()
    assert told == told_link == [RightsChanged()] * 2


async def test_new_rights_are_told_to_who_hopes_for_them(core: Core) -> None:
    hopeful, told = watcher(core)
    core.access.rights.hope(hopeful)
    steps: list[tuple[Callable[[], object], list[RightsGained]]] = [
        (lambda: core.access.set_stream("s", {WHO: ["pull"]}), [RightsGained("s")]),
        (lambda: core.access.set_stream("s", {WHO: ["pull"]}), []),
        (lambda: core.access.set_stream("s", {}), []),
        (lambda: core.access.replace([], [PATTERN]), [RightsGained()]),
        (lambda: core.access.replace([PATTERN], [PATTERN]), []),
        (lambda: core.access.add(PATTERN), [RightsGained()]),
        (lambda: core.access.rights.give_up(hopeful), []),
        (lambda: core.access.add(PATTERN), []),
    ]
    for step, expected in steps:
        step()
        await core.settle()
        assert told == expected
        told.clear()


async def test_links_hear_of_a_principal_that_no_grant_names_any_more(core: Core) -> None:
    link, told = watcher(core)
    core.access.rights.links = lambda: [link]
    core.access.set_stream("s", {WHO: ["pull"]})
    core.access.set_stream("t", {WHO: ["pull"]})
    core.access.set_stream("s", {})
    await core.settle()
    assert told == []
    core.access.set_stream("t", {})
    await core.settle()
    assert told == [RightsChanged()]


async def test_who_watches_twice_is_told_once_until_it_has_stopped_twice(core: Core) -> None:
    rights = core.access.rights
    cell, told = watcher(core, "s", "s")
    other, _ = watcher(core)
    for expected in (1, 2, 2):
        rights.changed("s")
        await core.settle()
        assert len(told) == expected
        rights.unwatch("s", cell)
        rights.unwatch("s", other)


async def test_many_are_told_a_slice_in_each_turn(core: Core) -> None:
    told: list[RightsChanged | RightsGained] = []
    for _ in range(3 * SLICE_CELLS + 1):
        core.access.rights.watch("s", core.system.spawn(lambda: Watcher(told)))
    core.access.rights.changed("s")
    await core.settle()
    assert len(told) == SLICE_CELLS  # the others when the loop has had its turn
    core.clock.advance(0.0)
    await core.settle()
    assert len(told) == 3 * SLICE_CELLS + 1


# Who goes on by rights ---------------------------------------------------------------------------


async def following(core: Core, name: str, request_id: int) -> Peer:
    """A native peer that has subscribed to a stream."""
    peer = core.peer(WHO)
    subscribed = await peer.ask(f"ST_S_0_{name}", native.SubscribeRequest(request_id, 0, 1_000_000))
    assert isinstance(subscribed[0], native.BlocksResponse)
    return peer


async def test_a_native_subscription_ends_alone_and_says_so(core: Core) -> None:
    owner = core.peer()
    core.access.add(PATTERN)
    for name in ("s", "s2"):
        await owner.ask("stream", native.OpenRequest(1, name, 1))
        await owner.ask(f"ST_S_0_{name}", PushRequest(1, b"before"))
    ending, staying = await following(core, "s", 7), await following(core, "s2", 8)
    kept = Grant(who=WHO, streams="s2", may=frozenset(("subscribe",)))
    ending.answers.clear()
    core.access.replace([PATTERN], [kept])
    await owner.ask("ST_S_0_s", PushRequest(2, b"after"))
    (failure,) = [native.decode_response(one.payload) for one in ending.answers]
    assert isinstance(failure, native.Failure)
    assert (failure.request_id, failure.code) == (7, "subscription.revoked")
    staying.answers.clear()
    await owner.ask("ST_S_0_s2", PushRequest(2, b"after"))
    assert len(staying.answers) == 1


class Revoker(Worker):
    """Takes WHO's grant back when it is told to."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def handle(self, message: object, sender: object) -> None:
        self._access.replace([PATTERN], [])


async def test_a_right_that_ends_while_a_subscription_begins_ends_it(core: Core) -> None:
    owner, peer = core.peer(), core.peer(WHO)
    core.access.add(PATTERN)
    await owner.ask("stream", native.OpenRequest(1, "s", 1))
    await owner.ask("ST_S_0_s", PushRequest(1, b"before"))
    revoker = core.system.spawn(lambda: Revoker(core.access))
    await core.settle()
    # The stream's turn, the revoker's, and only then the subscription's first.
    peer.send("ST_S_0_s", encode(native.SubscribeRequest(7, 0, 1_000_000)))
    core.system.post(revoker, "now")
    await core.settle()
    (failure,) = [native.decode_response(one.payload) for one in peer.answers]
    assert isinstance(failure, native.Failure)
    assert (failure.request_id, failure.code) == (7, "subscription.revoked")


async def test_a_consumer_of_a_bidirectional_stream_delivers_nothing_more(hub: Core) -> None:
    hub.access.set_stream("s", {WHO: ["push", "pull"]})
    hub.access.add(Grant(who=WHO, streams="*", may=frozenset(("create",))))
    peer = HubPeer(hub, WHO)
    await peer.ask("stream_subscribe", encode_request(BidirectionalRequest("s", "sub")))

    async def push(text: bytes) -> list[bytes]:
        item = encode_entry("", WireMessage((peer.link, local("me")), (), text))
        node = hub.peer()
        await node.ask("ST_S_0_s", PushRequest(1, item))
        return [one.payload for one in peer.received]

    assert (await push(b"before"))[-1:] == [b"before"]
    hub.access.set_stream("s", {})
    await hub.settle()
    assert (await push(b"after"))[-1:] == [b"before"]
