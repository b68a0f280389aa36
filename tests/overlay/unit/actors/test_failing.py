"""Tests that a failure of its actors costs a node that shares streams nothing durable."""

import pytest

from core_support import Core
from neighbour_support import ADDRESS, broadcast, log_length, started, subscribe
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.followers import Grown
from rillnode.actors.engine.faults import When
from rillnode.actors.log import PutRecords, StreamRecord
from rillnode.actors.overlay.member import RESPAWN_SECONDS, MemberActor
from rillnode.actors.overlay.messages import Linked
from rillnode.actors.overlay.neighbours import SAVE_SECONDS, NeighboursActor
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.actors.overlay.tracker import UNHEARD_SECONDS, TrackerActor
from rillnode.codecs import native
from rillnode.codecs.routing.stream import CreateRequest, PushRequest
from rillnode.codecs.streamr.control_messages import BroadcastMessage, UnsubscribeRequest
from rillnode.testing import fail
from tracker_support import TrackedNode, spawn_tracker


async def passed(core: Core, seconds: float) -> None:
    core.clock.advance(seconds)
    await core.settle()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_neighbour_is_let_go_by_an_actor_that_fails_and_hears_all_when_it_returns(
    core: Core, when: When
) -> None:
    node, client = await started(core)
    await node.say(subscribe())
    with fail(NeighboursActor, Grown, when=when) as fault:
        await client.ask("ST_S_0_s", PushRequest(1, b"7"))
    assert fault.hits == 1
    assert any(isinstance(one, UnsubscribeRequest) for one in await node.heard())
    heard = [one for one in await node.say(subscribe()) if isinstance(one, BroadcastMessage)]
    assert {one.message.content for one in heard} == {"7"}


async def test_what_is_being_appended_when_its_actor_fails_is_kept_once(core: Core) -> None:
    node, client = await started(core)
    await node.say(subscribe())
    with fail(NeighboursActor, Delivery, when="after") as fault:
        await node.say(broadcast(1))
    assert fault.hits == 1
    await node.say(broadcast(1), broadcast(2, 1))
    assert await log_length(core, client) == 2


async def test_an_actor_that_was_given_up_is_followed_by_another_that_has_what_is_kept(
    core: Core,
) -> None:
    node, client = await started(core)
    await node.say(broadcast(1))
    given_up = core.router.lookup(ADDRESS)
    with fail(NeighboursActor, Delivery, times=NeighboursActor.restarts_max + 1):
        for _ in range(NeighboursActor.restarts_max + 1):
            node.peer.send(ADDRESS, b"")
            await core.settle()
    assert core.router.lookup(ADDRESS) is None
    await passed(core, RESPAWN_SECONDS)
    assert core.router.lookup(ADDRESS) not in (None, given_up)
    await node.say(broadcast(1), broadcast(2, 1))
    assert await log_length(core, client) == 2


async def test_a_member_that_fails_goes_on_with_what_it_shares(core: Core) -> None:
    node, client = await started(core)
    shares = core.router.lookup(ADDRESS)
    with fail(MemberActor, Linked) as fault:
        await node.say(subscribe())
    assert fault.hits == 1
    assert core.router.lookup(ADDRESS) is shares
    await client.ask("ST_S_0_s", PushRequest(1, b"7"))
    assert any(isinstance(one, BroadcastMessage) for one in await node.heard())


async def test_streams_that_a_member_failed_to_hear_of_are_shared(core: Core) -> None:
    _, client = await started(core)
    with fail(MemberActor, StreamRecord) as fault:
        await client.ask("stream", CreateRequest("t"))
    assert fault.hits == 1
    assert core.router.lookup(overlay_address("t", 0)) is not None


async def test_streams_whose_end_a_member_failed_to_hear_of_are_shared_no_more(core: Core) -> None:
    _, client = await started(core)
    with fail(MemberActor, StreamRemoved) as fault:
        await client.ask("stream", native.RemoveRequest(1, "s"))
    assert fault.hits == 1
    assert core.router.lookup(ADDRESS) is None


async def test_how_far_was_announced_is_written_again_where_that_failed(core: Core) -> None:
    node, client = await started(core)
    await node.say(subscribe())
    await client.ask("ST_S_0_s", PushRequest(1, b"7"))
    submit, written = core.store.submit, list[PutRecords]()

    def noted(operation: object) -> None:
        if isinstance(operation, PutRecords):
            written.append(operation)
            core.store.faults.failing_syncs = int(len(written) == 1)
        submit(operation)  # type: ignore[arg-type]

    core.store.submit = noted  # type: ignore[method-assign]
    for _ in range(20):
        await passed(core, SAVE_SECONDS / 4)
    first, second, *more = written
    assert (first.error is not None, second.error, more) == (True, None, [])
    assert first.records == second.records


async def test_a_tracker_that_fails_is_told_again_by_nodes_and_links_them(core: Core) -> None:
    spawn_tracker(core)
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    await first.say("s::0")
    with fail(TrackerActor, Delivery) as fault:
        second.send_status("s::0")
        await core.settle()
    assert fault.hits == 1
    second.peer.answers.clear()
    for node in (first, second):
        await node.say("s::0")
    first.hear()
    assert (first.neighbours, second.neighbours) == ([second.identity], [first.identity])


async def test_a_node_that_has_not_heard_an_instruction_hears_it_once_more(core: Core) -> None:
    spawn_tracker(core)
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    await first.say("s::0")
    await second.say("s::0")
    first.peer.answers.clear()  # it was lost
    await first.say("s::0")
    assert first.neighbours == []
    await passed(core, UNHEARD_SECONDS + 0.1)
    await first.say("s::0")
    assert first.neighbours == [second.identity]
