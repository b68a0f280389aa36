"""The tracker: who is told what, and whom it does not listen to."""

from core_support import Core
from rillnode.actors.core.access import Grant
from rillnode.actors.overlay.dialect import Dialect, decode
from rillnode.actors.overlay.tracker import (
    GATHERED_SECONDS_MAX,
    QUIET_SECONDS,
    SLICE_NODES,
    TrackerActor,
)
from rillnode.codecs.streamr.network import FindStorageNodes, Form, StorageNodes
from tracker_support import TrackedNode, gathered, spawn_tracker
from turn_support import counted_by_turn


async def test_nodes_of_a_stream_are_linked_and_numbered_instructions_say_so(core: Core) -> None:
    spawn_tracker(core)
    nodes = [TrackedNode(core, number) for number in range(1, 13)]
    for node in nodes:
        await node.say("s::0")
        for other in nodes:
            other.hear()
    by_identity = {node.identity: node for node in nodes}
    for node in nodes:
        assert len(node.neighbours) == 4
        assert node.counter >= 1
        assert all(node.identity in by_identity[one].neighbours for one in node.neighbours)


async def test_a_status_from_before_the_last_instruction_is_passed_over(core: Core) -> None:
    spawn_tracker(core)
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    await first.say("s::0")
    await second.say("s::0")
    first.hear()
    assert first.neighbours == [second.identity]
    counter = first.counter
    first.neighbours = []
    await first.say("s::0", counter=counter - 1)
    assert first.counter == counter
    await first.say("s::0", counter=counter)
    assert first.counter == counter + 1
    assert first.neighbours == [second.identity]


async def test_nobody_speaks_for_another(core: Core) -> None:
    spawn_tracker(core)
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    await first.say("s::0")
    await second.say("s::0", source=str(first.address))
    assert second.neighbours == []
    assert first.hear() == []


async def test_streams_that_a_node_may_do_nothing_with_are_not_there_for_it(core: Core) -> None:
    spawn_tracker(core)
    first, stranger = TrackedNode(core, 1), TrackedNode(core, 2, streams="other")
    await first.say("s::0")
    await stranger.say("s::0")
    assert stranger.neighbours == []
    find = FindStorageNodes(stream_id="s", stream_partition=0)
    stranger.send(Dialect(str(stranger.address)).encode(find))
    await gathered(core)
    assert stranger.peer.answers == []


async def test_storage_nodes_are_in_every_overlay_and_are_found(core: Core) -> None:
    spawn_tracker(core)
    keeper, node = TrackedNode(core, 1, storage=True), TrackedNode(core, 2)
    await keeper.say()
    await node.say("s::3")
    assert node.neighbours == [keeper.identity]
    told = keeper.hear()
    assert [(one.stream_id, one.stream_partition) for one in told] == [("s", 3)]
    late = TrackedNode(core, 3, storage=True)
    await late.say()
    assert set(late.neighbours) == {keeper.identity, node.identity}
    find = FindStorageNodes(stream_id="s", stream_partition=3)
    node.peer.answers.clear()
    node.send(Dialect(str(node.address)).encode(find, "r1"))
    await gathered(core)
    (answer,) = [decode(one.payload) for one in node.peer.answers]
    assert isinstance(answer.message, StorageNodes)
    assert answer.message.node_addresses == (str(keeper.address), str(late.address))


async def test_who_is_gone_when_its_status_is_handled_does_not_stay(core: Core) -> None:
    spawn_tracker(core)
    gone, there, late = (TrackedNode(core, number) for number in range(1, 4))
    gone.peer.origin.end()
    for node in (gone, there, late):
        await node.say("s::0")
    assert late.neighbours == [there.identity]


async def test_who_leaves_a_stream_or_loses_its_link_is_nobodys_neighbour_any_more(
    core: Core,
) -> None:
    spawn_tracker(core)
    nodes = [TrackedNode(core, number) for number in range(1, 4)]
    for node in nodes:
        await node.say("s::0")
    await nodes[0].say("other::0")
    nodes[1].peer.origin.end()  # as a connection does at its end
    await gathered(core)
    late = TrackedNode(core, 9)
    await late.say("s::0")
    assert late.neighbours == [nodes[2].identity]


async def test_a_node_that_comes_over_a_new_link_is_taken_as_new(core: Core) -> None:
    spawn_tracker(core)
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    await first.say("s::0")
    await second.say("s::0")
    again = TrackedNode(core, 1)  # restarted: it knows of no instruction
    await again.say("s::0")
    assert again.neighbours == [second.identity]


async def test_the_answer_has_the_form_of_the_question(core: Core) -> None:
    spawn_tracker(core)
    node = TrackedNode(core, 1, storage=True)
    await node.say("s::0")
    find = FindStorageNodes(stream_id="s", stream_partition=0)
    node.send(Dialect(form=Form.ARRAY).encode(find, "r7"))
    await gathered(core)
    text = node.peer.answers[-1].payload.decode()
    assert text == f'[1,4,"r7","s",0,["{node.address}"]]'


async def test_nonsense_is_counted_and_harms_nobody(core: Core) -> None:
    spawn_tracker(core)
    node = TrackedNode(core, 1)
    for payload in (b"", b"[]", b"{}", b'["4.4.3",4,"x",[2,9,"","s",0,null]]', b"\xff" * 99):
        node.send(payload)
    await node.say("s::0", "no partition", "::1", "s::99999999999")
    assert node.peer.answers == []
    other = TrackedNode(core, 2)
    await other.say("s::0")
    assert other.neighbours == [node.identity]


async def test_nodes_that_join_together_are_told_once(core: Core) -> None:
    spawn_tracker(core)
    nodes = [TrackedNode(core, number) for number in range(1, 21)]
    for node in nodes:
        node.send_status("s::0")
    await core.settle()
    assert all(not node.peer.answers for node in nodes)
    await gathered(core)
    for node in nodes:
        (told,) = node.hear()
        assert len(told.node_addresses) == 4


async def test_gathering_ends_although_nodes_keep_joining(core: Core) -> None:
    spawn_tracker(core)
    first = TrackedNode(core, 1)
    first.send_status("s::0")
    waited = 0.0
    for number in range(2, 40):
        await core.settle()
        if first.hear():
            break
        TrackedNode(core, number).send_status("s::0")
        await core.settle()
        core.clock.advance(QUIET_SECONDS / 2)
        waited += QUIET_SECONDS / 2
    assert GATHERED_SECONDS_MAX / 2 < waited <= GATHERED_SECONDS_MAX + QUIET_SECONDS
    assert first.neighbours


async def test_a_node_that_loses_its_right_is_taken_out_and_all_its_neighbours_are_told(
    core: Core,
) -> None:
    spawn_tracker(core)
    nodes = [TrackedNode(core, number) for number in range(1, 4)]
    for node in nodes:
        await node.say("s::0", "t::0")
    for node in nodes:
        node.hear()
    loser, *others = nodes
    kept = Grant(who=f"noise:{loser.identity}", streams="t", may=frozenset(("push",)))
    core.access.add(kept)
    before = Grant(who=f"noise:{loser.identity}", streams="*", may=frozenset(("push",)))
    core.access.replace([before], [])
    await core.settle()  # without any time
    (told,) = loser.hear()
    assert (told.stream_id, told.node_addresses) == ("s", ())
    for node in others:
        told_of_s = [one for one in node.hear() if one.stream_id == "s"]
        assert told_of_s
        assert all(loser.identity not in one for one in told_of_s[-1].node_addresses)
    loser.send_status("s::0", "t::0")
    await gathered(core)
    assert all(one.stream_id == "t" for one in loser.hear())


async def test_nodes_of_many_streams_are_told_of_each_other_in_slices(core: Core) -> None:
    spawn_tracker(core)
    keys = [f"s{number}::0" for number in range(300)]
    first, second = TrackedNode(core, 1), TrackedNode(core, 2)
    with counted_by_turn(TrackerActor, "_form_links") as formed:
        first.send_status(*keys)
        second.send_status(*keys)
        await gathered(core)
    told = [one.stream_id for one in first.hear()]
    assert sorted(told) == sorted(key.removesuffix("::0") for key in keys)
    assert formed.total == len(keys)
    assert formed.most <= SLICE_NODES // 2
    # What was said in the meantime is not forgotten.
    first.send_status(*keys)
    await core.settle()
    core.clock.advance(QUIET_SECONDS)
    second.neighbours = []
    second.send_status(*keys[:1])
    await gathered(core)
    await gathered(core)
    second.hear()
    assert second.neighbours == [first.identity]
