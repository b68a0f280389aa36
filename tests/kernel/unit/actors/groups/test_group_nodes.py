"""Nodes that share a store tell each other that they are well, and put out who is silent."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import pytest

import group_support
from core_support import Core, decode, with_core
from coroutines import handed_by
from group_support import ADDRESS, Consumer, members, settle, state_of
from rillnode.actors.core.groups.nodes import BEAT_SECONDS, VOUCHED_SECONDS, GroupNodes
from rillnode.actors.core.groups.registry import LEASE_SECONDS, Vouch
from rillnode.actors.core.groups.state import NODES, Member, joined, record_name
from rillnode.actors.log import GetRecord, Operation, PutRecords, WatchValues, version_of
from rillnode.codecs import native
from rillnode.codecs.errors import StoreError
from rillnode.testing import fail

FENCED = StoreError("store.fenced", "as told")
LOST = StoreError("store.unreachable", "as told")


class Shared:
    """The store of several nodes, one of which is a test: what nodes tell, and what becomes of it.

    Attributes:
        records: of nodes.
        answers: of its next writes of nodes' records; None: done and said so.
        holds: the name of a record whose writes wait, in `held`.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.records: dict[str, bytes] = {}
        self.answers: list[StoreError | None] = []
        self.holds = ""
        self.held: list[PutRecords] = []
        self._watch: WatchValues | None = None
        core.share_store()
        store: Any = core.store
        self._submit, self._read = store.submit, store.read
        store.submit, store.read, store.watch = self.submit, self.read, self.watch

    def submit(self, operation: Any) -> None:
        name = operation.records[0][0] if isinstance(operation, PutRecords) else ""
        if not name.startswith(NODES):
            self._submit(operation)
        elif name == self.holds:
            self.held.append(operation)
        else:
            self.carry_out(operation)

    def let_go(self) -> PutRecords:
        """No writes wait from now on; returns the one that does."""
        self.holds = ""
        (put,) = self.held
        return put

    def carry_out(self, operation: PutRecords) -> None:
        """Do what a node has asked for, as the log orders it."""
        ((name, value),), ((_, version),) = operation.records, operation.seen
        answer = self.answers.pop(0) if self.answers else None
        if version != version_of(self.records.get(name)):
            operation.error = FENCED
        else:
            self.put(name, value)
            operation.error = answer
        self.core.complete(operation)

    def put(self, name: str, value: bytes | None) -> None:
        self.records.pop(name, None)
        if value is not None:
            self.records[name] = value

    def read(self, operation: Operation) -> bool:
        if isinstance(operation, GetRecord) and operation.key.startswith(NODES):
            operation.value = self.records.get(operation.key)
            operation.version = version_of(operation.value)
            operation.lasts = False
            return True
        answered: bool = self._read(operation)
        return answered

    def watch(self, operation: Any) -> None:
        if isinstance(operation, WatchValues):
            self._watch = operation

    async def tell(self, *changed: tuple[str, bytes | None]) -> None:
        """This node hears what others have written."""
        watch, self._watch = self._watch, None
        assert watch is not None
        watch.changed = list(changed)
        self.core.complete(watch)
        await self.core.settle()

    async def write(self, node: str, value: bytes | None, *, heard: bool = True) -> None:
        """Another node writes a node's record."""
        self.put(NODES + node, value)
        if heard:
            await self.tell((NODES + node, value))

    async def join(self, member: str, node: str) -> None:
        """A member comes to a group by another node."""
        state = joined(state_of(self.core), Member(member, f"{node}.1", "friend"), 4)
        name = record_name(1, "g")
        self._submit(PutRecords(records=[(name, state.encode())], reply_to=self.core.streams))
        await self.core.settle()
        await self.tell((name, state.encode()))

    @property
    def own(self) -> str:
        """The name of this node's record."""
        return NODES + self.core.context.groups.node


def with_shared(test: Callable[[Core, Shared], Awaitable[None]]) -> None:
    async def main(core: Core) -> None:
        await test(core, Shared(core))

    with_core(main)


core = handed_by(with_shared)
shared = handed_by(with_shared, 1)


pass_time: Final = partial(group_support.pass_time, step=0.1)
"""In steps shorter than a node's beat."""


async def with_other(core: Core, shared: Shared) -> Consumer:
    """A member here, and one at another node, of which this one has heard: they share."""
    (one,) = await members(core, "a")
    await shared.write("other", b"1")
    await shared.join("theirs", "other")
    await settle(core, [one])
    assert one.held.keys() == {0, 1}
    return one


@pytest.mark.parametrize("is_shared", [True, False], ids=["a member", "a single consumer"])
async def test_who_leaves_before_it_has_joined_stays_out(
    core: Core, shared: Shared, is_shared: bool
) -> None:
    await members(core)
    shared.holds = shared.own
    one = Consumer(core, "a")
    assert await one.join(shared=is_shared) is None
    assert await one.leave() is None  # nor is that answered before the other
    put = shared.let_go()
    shared.carry_out(put)
    await core.settle()
    answers = [decode(answer.payload) for answer in one.peer.answers]
    assert [type(answer) for answer in answers] == [native.GroupResponse, native.DoneResponse]
    assert state_of(core).members == ()
    assert not core.context.groups.links


async def test_others_know_of_a_node_before_it_has_a_member(core: Core, shared: Shared) -> None:
    await members(core)
    shared.holds = shared.own
    one = Consumer(core, "a")
    assert await one.join() is None
    assert state_of(core).members == ()
    put = shared.let_go()
    assert put.seen == [(shared.own, 0)]
    shared.carry_out(put)
    await core.settle()
    one.look()
    assert one.held.keys() == {0, 1, 2, 3}


async def test_who_cannot_tell_others_takes_no_member(core: Core, shared: Shared) -> None:
    await members(core)
    shared.answers = [LOST]
    one = Consumer(core, "a")
    assert (await one.join()).code == "store.unreachable"
    assert state_of(core).members == ()
    await one.join()
    assert one.held.keys() == {0, 1, 2, 3}


async def test_what_a_silent_node_has_goes_to_others(core: Core, shared: Shared) -> None:
    one = await with_other(core, shared)
    await pass_time(core, LEASE_SECONDS - 0.1, one)
    assert one.held.keys() == {0, 1}
    await pass_time(core, 0.2, one)
    assert one.held.keys() == {0, 1, 2, 3}
    assert shared.records.keys() == {shared.own}


async def test_who_was_not_heard_and_is_well_keeps_its_members(core: Core, shared: Shared) -> None:
    """The node has told that it is well, which is in the log and not known here."""
    one = await with_other(core, shared)
    for number in range(10):
        await shared.write("other", b"and %d" % number, heard=False)
        await pass_time(core, 0.5, one)
        assert one.held.keys() == {0, 1}
        assert NODES + "other" in shared.records


async def test_who_tells_too_late_is_out_and_who_removes_it_too_late_does_nothing(
    core: Core, shared: Shared
) -> None:
    """Of a node's word and its removal the log takes what comes first, however late both come."""
    one = await with_other(core, shared)
    shared.holds = NODES + "other"
    await pass_time(core, LEASE_SECONDS + 0.3, one)
    removal = shared.let_go()
    await shared.write("other", b"in time", heard=False)
    shared.carry_out(removal)
    await pass_time(core, 1.0, one)
    assert [one.id for one in state_of(core).members] == [one.token.hex(), "theirs"]
    await pass_time(core, 1.5, one)
    assert [one.id for one in state_of(core).members] == [one.token.hex()]


async def test_nobody_is_put_out_by_who_has_heard_nobody_for_a_while(
    core: Core, shared: Shared
) -> None:
    one = await with_other(core, shared)
    core.clock.advance(LEASE_SECONDS + 1.0)  # at once: this node has stood still
    await core.settle()
    assert NODES + "other" in shared.records
    await pass_time(core, LEASE_SECONDS - 0.1, one)
    assert NODES + "other" in shared.records
    await pass_time(core, 0.2, one)
    assert NODES + "other" not in shared.records


async def test_a_node_that_is_out_goes_on_under_another_name(core: Core, shared: Shared) -> None:
    one = await with_other(core, shared)
    assert (await one.beat()).milliseconds > 0
    name = shared.own
    await shared.write(name.removeprefix(NODES), None)
    assert shared.own != name
    one.look()
    assert one.failures == ["group.member"]
    assert (await one.beat()).code == "group.member"
    await one.join()
    assert [member.id for member in state_of(core).members] == ["theirs", one.token.hex()]
    assert (await one.beat()).milliseconds > 0
    assert shared.records.keys() == {shared.own, NODES + "other"}


async def test_a_node_that_did_not_hear_that_it_is_out_finds_it(core: Core, shared: Shared) -> None:
    one = await with_other(core, shared)
    name = shared.own
    await shared.write(name.removeprefix(NODES), None, heard=False)
    until = core.clock.now + (await one.beat()).milliseconds / 1_000
    assert until <= core.context.groups.vouched_at + LEASE_SECONDS
    await pass_time(core, 2 * BEAT_SECONDS)
    one.look()
    assert one.failures == ["group.member"]
    assert shared.own != name
    assert name not in shared.records


@pytest.mark.parametrize("stored", [True, False])
async def test_a_word_of_which_nothing_is_known_may_be_there_or_not(
    core: Core, shared: Shared, stored: bool
) -> None:
    (one,) = await members(core, "a")
    name = shared.own
    shared.holds = name
    await pass_time(core, BEAT_SECONDS, one)
    put = shared.let_go()
    if stored:
        shared.put(*put.records[0])
    put.error = LOST
    core.complete(put)
    await pass_time(core, 3 * BEAT_SECONDS, one)
    assert one.failures == []
    assert (shared.own, list(shared.records)) == (name, [name])
    assert core.context.groups.vouched_at > core.clock.elapsed() - VOUCHED_SECONDS


async def test_members_have_nothing_while_others_may_take_their_node_for_dead(
    core: Core, shared: Shared
) -> None:
    one = await with_other(core, shared)
    shared.answers = [LOST] * 3
    await pass_time(core, VOUCHED_SECONDS + 0.1)
    one.look()
    assert (one.held, one.failures) == ({}, [])
    shared.answers = []
    await pass_time(core, BEAT_SECONDS)
    one.look()
    assert one.held.keys() == {0, 1}


async def test_the_members_of_a_node_without_a_record_are_no_more(
    core: Core, shared: Shared
) -> None:
    (one,) = await members(core, "a")
    await shared.join("theirs", "gone")
    await settle(core, [one])
    assert [member.id for member in state_of(core).members] == [one.token.hex()]
    assert one.held.keys() == {0, 1, 2, 3}


async def test_a_record_is_removed_when_no_lease_can_be_left(core: Core, shared: Shared) -> None:
    (one,) = await members(core, "a")
    name = shared.own
    await one.leave()
    await pass_time(core, LEASE_SECONDS - BEAT_SECONDS)
    assert name in shared.records
    await pass_time(core, 20.0)
    assert shared.records == {}
    assert shared.own != name


async def test_a_failure_keeps_nobody_in_that_is_silent(core: Core, shared: Shared) -> None:
    one = await with_other(core, shared)
    cell = core.context.groups.nodes
    assert cell is not None
    with fail(GroupNodes, Vouch) as planted:
        await Consumer(core, "b").join()
    assert planted.hits == 1
    await pass_time(core, LEASE_SECONDS + 0.2, one)
    assert "theirs" not in {member.id for member in state_of(core).members}


async def test_whom_an_actor_has_left_behind_is_taken_out_though_nobody_comes(
    core: Core, shared: Shared
) -> None:
    """Other nodes hear that this one is well, and so do not see to its members."""
    one = await with_other(core, shared)
    core.system.exit(core.router.table[ADDRESS])
    await core.settle()
    await pass_time(core, LEASE_SECONDS)
    assert state_of(core).members[0].id == one.token.hex()
    for _ in range(10):
        await shared.write("other", b"%f" % core.clock.now)
        await pass_time(core, 1.0)
    assert [member.id for member in state_of(core).members] == ["theirs"]
    assert ADDRESS not in core.router.table
