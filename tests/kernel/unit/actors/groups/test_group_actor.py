"""A group's actor: members come, go and are lost; partitions move, and late saves are refused."""

from collections.abc import Callable

import pytest

from core_support import Core, Peer, decode
from group_support import ADDRESS, Consumer, members, pass_time, settle, state_of
from rillnode.actors.core.access import Grant
from rillnode.actors.core.groups.group import RELEASE_SECONDS, SILENCE_SECONDS, GroupActor
from rillnode.actors.core.groups.registry import LEASE_SECONDS
from rillnode.actors.core.groups.state import GroupState
from rillnode.codecs import native
from rillnode.codecs.group_address import group_address, parse_group_address
from rillnode.codecs.limits import GROUPS_PER_LINK_MAX


async def test_members_share_the_partitions_once_they_are_given_up(core: Core) -> None:
    (one,) = await members(core, "a")
    assert one.held == {0: 1, 1: 1, 2: 1, 3: 1}
    two = Consumer(core, "b")
    joined = await two.join()
    assert (joined.held, joined.generation) == ([], 2)
    one.look()
    assert (one.asked, two.held) == ([2, 3], {})
    assert (await one.save(2, 7)).index == 7
    assert await one.release(2) == native.DoneResponse(4)
    two.look()
    assert (one.held, one.asked) == ({0: 1, 1: 1, 3: 1}, [3])
    assert (two.held, await two.position(2)) == ({2: 3}, 7)


async def test_who_has_lost_a_partition_saves_no_position_in_it(core: Core) -> None:
    one, two = await members(core, "a", "b", partitions=2)
    assert (one.held, two.held) == ({0: 1}, {1: 3})
    assert (await one.save(0, 5)).index == 5
    late = await one.save(1, 9, generation=1)
    assert (late.code, late.text) == (
        "group.generation",
        "This partition is another member's by now: its position is saved by that one alone",
    )
    # Nor with a number that it has guessed, nor by the way of single consumers.
    assert (await one.save(1, 9, generation=3)).code == "group.generation"
    single = native.SaveIndexRequest(7, "g", "s", 1, 9)
    assert (await one.ask(single, b"stream_index")).code == "group.in_use"
    assert await two.position(1) is None
    assert (await two.save(1, 4)).index == 4
    # A position never goes back.
    assert (await two.save(1, 2)).index == 4


async def test_a_member_that_leaves_leaves_at_once(core: Core) -> None:
    one, two = await members(core, "a", "b")
    assert await two.leave() == native.DoneResponse(2)
    one.look()
    assert one.held == {0: 1, 1: 1, 2: one.held[2], 3: one.held[3]}
    assert await two.leave() == native.DoneResponse(2)  # once more
    assert (await two.beat()).code == "group.member"
    await one.leave()
    generation = state_of(core).generation
    await pass_time(core, 20.0)
    assert core.router.lookup(ADDRESS) is None
    assert list(core.context.groups) == []
    assert not core.context.groups.links
    # The next member goes on in a later generation.
    assert (await one.join()).generation == generation + 1


async def test_a_lost_member_is_waited_for_a_while_only(core: Core) -> None:
    one, two = await members(core, "a", "b")
    has = dict(two.held)
    two.cut()
    await pass_time(core, LEASE_SECONDS - 0.5, one)
    two.come_back()
    await two.join()
    assert two.held == has
    assert (await two.save(2, 3)).index == 3
    two.cut()
    await pass_time(core, LEASE_SECONDS + 0.25, one)
    assert set(one.held) == {0, 1, 2, 3}
    two.come_back()
    late = await two.save(2, 8, generation=has[2])
    assert late.code == "group.member"
    await two.join()
    assert (await two.save(2, 8, generation=has[2])).code == "group.generation"
    assert await two.position(2) == 3


def _cut(_: Core, member: Consumer) -> None:
    member.cut()


def _revoke(core: Core, _: Consumer) -> None:
    core.access.revoke("guest")


def _end_actor(core: Core, _: Consumer) -> None:
    core.system.exit(core.router.table[ADDRESS])


@pytest.mark.parametrize("lose", [_cut, _revoke, _end_actor])
async def test_nobody_gets_what_a_member_has_before_its_lease_is_over(
    core: Core, lose: Callable[[Core, Consumer], None]
) -> None:
    """Its link may stand still, so that it hears of nothing."""
    core.access.add(Grant(who="guest", streams="s", may=frozenset({"pull", "subscribe"})))
    (one,) = await members(core, "a")
    two = Consumer(core, "b", peer=Peer(core, "guest", True))
    two.peer.links_up()
    await two.join()
    await settle(core, [one, two])
    assert two.held.keys() == {2, 3}
    core.clock.advance(0.25)
    until = core.clock.now + (await two.beat()).milliseconds / 1_000
    assert until == core.clock.now + LEASE_SECONDS
    lose(core, two)
    await core.settle()
    one.look()
    if one.failures:  # the group's actor has ended
        await one.join()
    while core.clock.now + 0.125 < until:
        assert state_of(core).holds[2].member == two.token.hex()
        core.clock.advance(0.125)
        await core.settle()
    await pass_time(core, 0.5, one)
    assert one.held.keys() == {0, 1, 2, 3}


async def test_a_silent_member_that_has_something_is_given_up(core: Core) -> None:
    one, two, idle = await members(core, "a", "b", "c", partitions=2)
    assert idle.held == {}
    await pass_time(core, SILENCE_SECONDS + 1.0, one)
    two.look()
    assert two.failures == ["group.member"]
    idle.look()
    assert idle.held.keys() == {1}
    assert one.held.keys() == {0}


async def test_what_a_member_does_not_give_up_is_taken_from_it(core: Core) -> None:
    (one,) = await members(core, "a")
    two = Consumer(core, "b")
    await two.join()
    await pass_time(core, RELEASE_SECONDS - 1.0, one)
    assert (one.asked, two.held) == ([2, 3], {})
    await pass_time(core, 2.0, one)
    two.look()
    assert (sorted(one.held), one.asked) == ([0, 1], [])
    assert two.held.keys() == {2, 3}
    assert (await one.save(3, 1, generation=1)).code == "group.generation"


async def test_two_hundred_members_of_four_partitions_do_not_hear_of_each_other(core: Core) -> None:
    first = await members(core, "a", "b", "c", "d")
    peer = first[0].linked()
    for number in range(196):
        token = b"idle %d" % number
        peer.send(
            ADDRESS, native.encode(native.JoinGroupRequest(number, token.ljust(16, b"."), True))
        )
    await core.settle(400)
    assert len(state_of(core).members) == 200
    assert len(peer.answers) == 196
    before = [one.told for one in first]
    for one in first:
        one.look()
    assert [one.told for one in first] == before
    # One of the four is lost: one of the others has what it had.
    first[1].cut()
    await pass_time(core, LEASE_SECONDS + 0.25, *(first[0], *first[2:]))
    await core.settle()
    assert len(peer.answers) == 197
    assert [one.told for one in first] == before


async def test_a_name_is_a_group_or_single_consumers(core: Core) -> None:
    await members(core)
    single, other, shared = (Consumer(core, name) for name in "abc")
    assert (await single.join(shared=False)).held == []
    assert (await other.join(shared=False)).held == []
    refused = await shared.join()
    assert (refused.code, refused.text) == (
        "group.name",
        "A single consumer uses this name: stop it first, or choose another name for the group",
    )
    assert state_of(core) == GroupState()  # nothing is written for them
    # A single one saves its positions as ever.
    plain = native.SaveIndexRequest(7, "g", "s", 1, 9)
    assert (await single.ask(plain, b"stream_index")).index == 9
    await single.leave()
    other.cut()
    await pass_time(core, LEASE_SECONDS + 0.25)
    assert (await shared.join()).held != []
    refused = await single.join(shared=False)
    assert refused.code == "group.name"
    assert refused.text.startswith("Members of a group share this name: say group=True")


@pytest.mark.parametrize("token", [b"", b"short", b"x" * 17])
async def test_a_token_has_sixteen_bytes(core: Core, token: bytes) -> None:
    await members(core)
    one = Consumer(core, "a")
    one.token = token
    assert (await one.join()).code == "group.member"


async def test_nobody_joins_from_behind_other_nodes_or_for_another_link(core: Core) -> None:
    await members(core)
    one = Consumer(core, "a")
    other = one.linked()
    one.peer.back = other.back
    one.peer.send(ADDRESS, native.encode(native.JoinGroupRequest(1, one.token, True)))
    await core.settle()
    assert [decode(answer.payload).code for answer in other.answers] == ["group.route"]


async def test_a_link_has_so_many_members(core: Core) -> None:
    await members(core)
    one = Consumer(core, "a")
    core.context.groups.links[one.peer.origin] = GROUPS_PER_LINK_MAX
    refused = await one.join()
    assert (refused.code, refused.text) == (
        "group.limit", "A link has at most 1,000 members of groups",
    )  # fmt: skip


async def test_who_may_not_consume_the_stream_is_told_of_no_group(core: Core) -> None:
    (one,) = await members(core, "a")
    for verb in ("push", "pull", "subscribe"):
        stranger = Peer(core, f"only {verb}", True)
        core.access.add(Grant(who=f"only {verb}", streams="*", may=frozenset({verb})))
        stranger.links_up()
        for name in ("g", "none"):
            request = native.JoinGroupRequest(1, one.token, True)
            (answer,) = await stranger.ask(group_address("s", name), request)
            assert answer.code in ("address.unknown", "stream.unknown")
    assert core.router.lookup(group_address("s", "none")) is None


async def test_a_stream_that_is_not_there_has_no_group(core: Core) -> None:
    one = Consumer(core, "a")
    refused = await one.join()
    assert refused.code == "stream.unknown"
    await core.settle()
    assert core.router.lookup(ADDRESS) is None
    assert isinstance((await members(core, "a"))[0].held, dict)


async def test_a_member_that_loses_its_right_is_out(core: Core) -> None:
    one, two = await members(core, "a", "b")
    three = Consumer(core, "c", peer=Peer(core, "guest", True))
    grant = Grant(who="guest", streams="s", may=frozenset({"pull", "subscribe"}))
    core.access.add(grant)
    three.peer.links_up()
    await three.join()
    await settle(core, [one, two, three])
    assert len(three.held) == 1
    core.access.revoke("guest")
    await core.settle()
    three.look()
    assert three.failures == ["group.revoked"]
    assert (await three.beat()).code == "stream.unknown"
    await pass_time(core, LEASE_SECONDS - 0.25, one, two)
    assert len(one.held | two.held) == 3  # until it must have heard
    await pass_time(core, 0.25, one, two)
    assert one.held.keys() | two.held.keys() == {0, 1, 2, 3}


async def test_the_members_of_a_stream_that_is_removed_are_told(core: Core) -> None:
    (one,) = await members(core, "a")
    await one.ask(native.RemoveRequest(9, "s"), b"stream")
    one.look()
    assert one.failures == ["stream.removed"]
    assert core.router.lookup(ADDRESS) is None
    assert state_of(core) == GroupState()
    assert not core.context.groups.links


async def test_more_partitions_are_shared_out(core: Core) -> None:
    one, two = await members(core, "a", "b", partitions=2)
    await one.ask(native.OpenRequest(9, "s", 5), b"stream")
    await settle(core, [one, two])
    assert sorted((len(one.held), len(two.held))) == [2, 3]


async def test_members_of_before_a_start_may_come_back_and_are_not_waited_for_long(
    core: Core,
) -> None:
    one, two = await members(core, "a", "b")
    has, generation = dict(one.held), state_of(core).generation
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    core.system.exit(cell)  # what it knows goes, as with the node
    await core.settle()
    one.look()
    two.look()
    assert one.failures == two.failures == ["actor.stopped"]
    await one.join()
    assert one.held == has
    late = await two.save(2, 9, generation=generation)
    assert late.code == "group.member"
    await pass_time(core, LEASE_SECONDS + 0.25, one)
    assert one.held.keys() == {0, 1, 2, 3}
    assert state_of(core).generation > generation


async def test_a_change_that_is_not_written_is_no_change(core: Core) -> None:
    (one,) = await members(core, "a")
    two = Consumer(core, "b")
    core.store.faults.failing_syncs = 1
    refused = await two.join()
    assert refused.code == "store.failed"
    one.look()
    assert one.asked == []
    await pass_time(core, 1.0, one)
    assert (await two.join()).generation == 2


async def test_a_member_that_is_written_though_it_was_refused_is_out_again(core: Core) -> None:
    (one,) = await members(core, "a")
    two = Consumer(core, "b")
    core.store.faults.failing_syncs = core.store.faults.surviving = 1
    assert (await two.join()).code == "store.failed"
    await pass_time(core, 0.25, one)
    assert len(state_of(core).members) == 2
    await pass_time(core, 1.0, one)
    assert len(state_of(core).members) == 1
    two.look()
    assert (sorted(one.held), one.asked) == ([0, 1, 2, 3], [])
    assert two.failures == ["store.failed"]


async def test_a_loss_is_written_once_the_store_can(core: Core) -> None:
    one, two = await members(core, "a", "b")
    two.cut()
    core.store.faults.failing_syncs = 3
    await pass_time(core, LEASE_SECONDS + 3.0, one)
    assert one.held.keys() == {0, 1, 2, 3}
    three = Consumer(core, "c")
    await three.join()
    core.store.faults.failing_syncs = 1
    assert (await three.leave()).code == "store.failed"
    await pass_time(core, 2.0, one)
    assert [member.id for member in state_of(core).members] == [one.token.hex()]


async def test_a_member_is_told_once_that_it_is_out(core: Core) -> None:
    one, two = await members(core, "a", "b")
    core.store.faults.failing_syncs = 3
    await pass_time(core, SILENCE_SECONDS + 3.0, one)
    two.look()
    assert two.failures == ["group.member"]
    assert one.held.keys() == {0, 1, 2, 3}


async def test_groups_are_listed_with_what_their_members_have(core: Core) -> None:
    one, two = await members(core, "a", "b")
    for stream in ("s", ""):
        listed = await one.ask(native.ListGroupsRequest(9, stream), b"stream_index")
        (group,) = listed.groups
        assert (group.stream, group.name, group.shared) == ("s", "g", True)
        assert [(one.id, one.partitions) for one in group.members] == [
            (one.token.hex()[:8], [0, 1]), (two.token.hex()[:8], [2, 3]),
        ]  # fmt: skip
    unknown = await one.ask(native.ListGroupsRequest(9, "none"), b"stream_index")
    assert unknown.code == "stream.unknown"
    core.system.exit(core.router.table[ADDRESS])
    listed = await one.ask(native.ListGroupsRequest(9, "s"), b"stream_index")
    assert [group.members for group in listed.groups] == [[]]


async def test_what_is_no_request_of_a_member_is_refused(core: Core) -> None:
    (one,) = await members(core, "a")
    assert (await one.ask(native.StatusRequest(9))).code == "request.invalid"
    one.peer.send(ADDRESS, b"\1x")
    await core.settle()
    cell = core.router.table[ADDRESS]
    assert isinstance(cell.instance, GroupActor)
    assert cell.instance.described(ADDRESS).name == "g of s: 1 members"


@pytest.mark.parametrize("names", [("s", "g"), ("a/b_c", "ö _%"), ("x" * 512, "y" * 512)])
def test_an_address_is_of_a_stream_and_a_name(names: tuple[str, str]) -> None:
    assert parse_group_address(group_address(*names)) == names


@pytest.mark.parametrize("address", [b"ST_g_s", b"GR_g", b"GR__s", b"GR_%ff_s", b"GR_a%20b_s "])
def test_other_addresses_are_of_none(address: bytes) -> None:
    assert parse_group_address(address) is None
