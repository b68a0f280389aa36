"""Appends to many partitions by one request."""

from collections.abc import Sequence
from typing import Any

import pytest

from core_support import Core, Peer, decode
from coroutines import run_with
from rillnode.actors.core.access import Grant
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams import appender
from rillnode.actors.core.streams.appender import ADDRESS, AppenderActor, Partition
from rillnode.actors.core.streams.context import StreamRemoved, stream_address
from rillnode.actors.log import FindStream, Operation, Read, StreamRecord, log_id
from rillnode.codecs import native
from rillnode.codecs.entries import items_of, pack_body
from rillnode.codecs.limits import APPENDS_MAX
from rillnode.testing import fail


def many(*parts: tuple[str, Sequence[bytes]], number: int = 9) -> native.AppendManyRequest:
    items = [
        native.AppendItem(stream_address(name, 0), len(data), pack_body(data))
        for name, data in parts
    ]
    return native.AppendManyRequest(number, items)


async def made(core: Core, *names: str) -> Peer:
    peer = core.peer()
    for name in names:
        await peer.ask("stream", native.OpenRequest(1, name, 1))
    return peer


def forget(core: Core, *names: str) -> None:
    """Have streams looked for as if nobody had opened them lately."""
    for name in names:
        known = core.partitions.find(stream_address(name, 0))
        assert known is not None
        core.partitions.forget(known)


def stored(core: Core, stream_id: int) -> list[bytes]:
    read = Read(log=log_id(stream_id, 0))
    core.store.look(read)
    return [item for block in read.blocks for item in items_of(block.value)]


async def test_each_block_is_stored_and_the_answer_has_their_indexes(core: Core) -> None:
    peer = await made(core, "a", "b")
    asked = many(("a", [b"1", b"2"]), ("b", [b"3"]), ("a", [b"4"]))
    assert await peer.ask(ADDRESS, asked) == [native.PositionsResponse(9, [0, 0, 2], [])]
    assert [stored(core, 1), stored(core, 2)] == [[b"1", b"2", b"4"], [b"3"]]
    # Known by now, and in one order with what the stream's own actor appends.
    await peer.ask(stream_address("a", 0), native.AppendRequest(2, 1, pack_body([b"5"])))
    assert await peer.ask(ADDRESS, many(("a", [b"6"]))) == [native.PositionsResponse(9, [4], [])]
    assert core.context.appended.entries == 6


async def test_requests_of_one_link_keep_their_order_while_partitions_are_looked_for(
    core: Core,
) -> None:
    peer = await made(core, "a", "b")
    forget(core, "a", "b")
    requests = [many(("a", [b"%d" % n]), ("b", [b"%d" % n]), number=n) for n in range(5)]
    answers = await peer.ask(ADDRESS, *requests)
    assert [answer.indexes for answer in answers] == [[n, n] for n in range(5)]
    assert stored(core, 1) == stored(core, 2) == [b"%d" % n for n in range(5)]


async def test_to_who_may_not_push_what_is_not_there_looks_the_same(core: Core) -> None:
    await made(core, "mine", "others")
    forget(core, "mine", "others")
    core.access.add(Grant(who="guest", streams="mine", may=frozenset({"push"})))
    core.access.add(Grant(who="guest", streams="others", may=frozenset({"pull"})))
    core.access.add(Grant(who="guest", streams="none", may=frozenset({"push"})))
    looked: list[str | None] = []
    read: Any = core.store.read

    def passing(operation: Operation) -> bool:
        if isinstance(operation, FindStream):
            looked.append(operation.name)
        answered: bool = read(operation)
        return answered

    core.store.read = passing  # type: ignore[method-assign]
    guest = core.peer("guest")
    names = ("mine", "others", "none", "hidden")
    (answer,) = await guest.ask(ADDRESS, many(*((name, [b"x"]) for name in names)))
    assert {(one.request_id, one.code) for one in answer.failures} == {
        (n, "stream.unknown") for n in (1, 2, 3)
    }
    texts = {one.request_id: one.text for one in answer.failures}
    assert texts[1] == texts[3]
    assert texts[2] == 'There is no stream "none": see `rillnode stream ls`'
    # Who may not push there does not even have it looked for.
    assert sorted(map(str, looked)) == ["mine", "none"]
    assert (stored(core, 1), stored(core, 2)) == ([b"x"], [])


async def test_a_right_that_was_taken_away_is_missed_at_once(core: Core) -> None:
    await made(core, "a")
    grant = Grant(who="guest", streams="a", may=frozenset({"push"}))
    core.access.add(grant)
    guest = core.peer("guest")
    assert (await guest.ask(ADDRESS, many(("a", [b"1"]))))[0].failures == []
    core.access.replace([grant], [])
    assert (await guest.ask(ADDRESS, many(("a", [b"2"]))))[0].failures[0].code == ("stream.unknown")


async def test_bad_items_cost_only_themselves(core: Core) -> None:
    peer = await made(core, "a")
    request = many(("a", [b"1"]), ("a", [b"2"]), ("a", [b"3"]))
    request.items[0].count = 0
    request.items[1].address = b"stream"
    request.items += [
        native.AppendItem(stream_address("a", 1), 1, pack_body([b"4"])),
        native.AppendItem(b"", 1, b""),
        native.AppendItem(b"ST_S_0_\xff", 1, b""),
    ]
    (answer,) = await peer.ask(ADDRESS, request)
    codes = {one.request_id: one.code for one in answer.failures}
    unknown = dict.fromkeys((1, 4, 5), "address.unknown")
    assert codes == {0: "entries.count", 3: "stream.unknown", **unknown}
    assert (answer.indexes[2], stored(core, 1)) == (0, [b"3"])


async def test_requests_that_are_none_are_answered(core: Core) -> None:
    peer = await made(core, "a")
    item = native.AppendItem(stream_address("a", 0), 1, pack_body([b"x"]))
    too_many = native.AppendManyRequest(1, [item] * (APPENDS_MAX + 1))
    wrong = native.StatusRequest(2)
    answers = await peer.ask(ADDRESS, too_many, wrong, native.AppendManyRequest(3, []))
    assert [(answer.request_id, getattr(answer, "code", "")) for answer in answers] == [
        (1, "append.many"),
        (2, "request.invalid"),
        (3, ""),
    ]
    assert stored(core, 1) == []


async def test_a_removed_stream_is_forgotten_and_one_of_its_name_is_found(core: Core) -> None:
    peer = await made(core, "a", "b")
    await peer.ask(ADDRESS, many(("a", [b"1"]), ("b", [b"2"])))
    await peer.ask("stream", native.RemoveRequest(1, "a"))
    (answer,) = await peer.ask(ADDRESS, many(("a", [b"3"]), ("b", [b"4"])))
    assert ([one.request_id for one in answer.failures], answer.indexes[1]) == ([0], 1)
    await peer.ask("stream", native.OpenRequest(1, "a", 1))
    assert (await peer.ask(ADDRESS, many(("a", [b"5"]))))[0].indexes == [0]
    assert (stored(core, 1), stored(core, 3)) == ([], [b"5"])


@pytest.mark.parametrize("again", [False, True])
async def test_a_stream_removed_while_it_is_looked_for_gets_nothing(
    core: Core, again: bool
) -> None:
    peer = await made(core, "a")
    forget(core, "a")
    held: list[FindStream] = []
    read: Any = core.store.read

    def holding(operation: Operation) -> bool:
        if isinstance(operation, FindStream) and not held:
            core.store.look(operation)
            held.append(operation)
            return False
        answered: bool = read(operation)
        return answered

    core.store.read = holding  # type: ignore[method-assign]
    assert await peer.ask(ADDRESS, many(("a", [b"1"]))) == []
    assert held
    other = core.peer()
    await other.ask("stream", native.RemoveRequest(1, "a"))
    if again:
        await other.ask("stream", native.OpenRequest(1, "a", 1))
    core.complete(held[0])
    await core.settle()
    (answer,) = [decode(one.payload) for one in peer.answers]
    assert [one.code for one in answer.failures] == ([] if again else ["stream.unknown"])
    assert (stored(core, 1), stored(core, 2)) == ([], [b"1"] if again else [])


async def test_who_sends_too_much_at_once_is_told(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppenderActor, "mailbox_messages_max", 2)
    peer = await made(core, "a")
    forget(core, "a")
    held: list[FindStream] = []
    read: Any = core.store.read

    def holding(operation: Operation) -> bool:
        if isinstance(operation, FindStream):
            core.store.look(operation)
            held.append(operation)
            return False
        answered: bool = read(operation)
        return answered

    core.store.read = holding  # type: ignore[method-assign]
    peer.answers.clear()
    for number in range(4):
        peer.send(ADDRESS, native.encode(many(("a", [b"%d" % number]), number=number)))
        await core.settle()
    refused = [decode(one.payload) for one in peer.answers]
    assert [(one.request_id, one.code) for one in refused] == [(3, "actor.busy")]
    core.complete(held[0])
    await core.settle()
    assert stored(core, 1) == [b"0", b"1", b"2"]


@run_with(quotas=[Quota(who="friend", bytes_max=100)])
async def test_refusals_of_quotas_and_of_the_store_are_told_by_item(core: Core) -> None:
    peer = await made(core, "a", "b")
    (answer,) = await peer.ask(ADDRESS, many(("a", [b"x" * 60]), ("b", [b"x" * 60])))
    assert [(one.request_id, one.code) for one in answer.failures] == [(1, "quota.bytes")]
    assert core.context.quotas.usage("friend").pending_bytes == 0  # type: ignore[union-attr]
    core.store.faults.failing_syncs = 1
    (answer,) = await core.peer().ask(ADDRESS, many(("a", [b"y"])))
    assert [one.code for one in answer.failures] == ["store.failed"]


async def test_a_failing_handler_costs_one_request_and_no_other_link(core: Core) -> None:
    peer, other = await made(core, "a"), core.peer()
    await peer.ask(ADDRESS, many(("a", [b"1"])))
    with fail(AppenderActor):
        answers = await peer.ask(ADDRESS, *(many(("a", [b"%d" % n]), number=n) for n in (2, 3)))
    assert {answer.code for answer in answers} == {"actor.failed"}
    assert (await peer.ask(ADDRESS, many(("a", [b"4"]))))[0].indexes == [1]
    assert (await other.ask(ADDRESS, many(("a", [b"5"]))))[0].indexes == [2]


async def test_its_actor_ends_with_the_link(core: Core) -> None:
    peer = await made(core, "a")
    await peer.ask(ADDRESS, many(("a", [b"1"])))
    cell = peer.origin.appender
    assert cell is not None
    assert not cell.exited
    peer.origin.end()
    await core.settle()
    assert cell.exited


async def test_partitions_out_of_use_are_forgotten(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "PARTITIONS_MAX", 2)
    names = [f"s{n}" for n in range(9)]
    peer = await made(core, *names)
    for turn in range(3):
        for name in names:
            (answer,) = await peer.ask(ADDRESS, many((name, [b"x"])))
            assert answer.indexes == [turn]
        known = [name for name in names if core.partitions.find(stream_address(name, 0))]
        assert names[-1] in known
        assert len(known) <= 4


async def test_a_partition_that_was_told_of_is_known_whole_when_it_is_pushed_to(core: Core) -> None:
    names = ["plain", "with blanks/and ü", "%2F"]
    peer = await made(core, *names)
    addresses = [stream_address(name, 0) for name in names]
    known_so_far = core.partitions._young  # pyright: ignore[reportPrivateUsage]
    told = [known_so_far[address] for address in addresses]
    assert not [one for one in told if isinstance(one, Partition)], "a stream costs memory unused"
    asked = many(*((name, [b"x"]) for name in names))
    assert await peer.ask(ADDRESS, asked) == [native.PositionsResponse(9, [0, 0, 0], [])]
    for number, (name, address) in enumerate(zip(names, addresses, strict=True), 1):
        known = core.partitions.find(address)
        assert isinstance(known, Partition)
        assert (known.name, known.log, known.address) == (name, log_id(number, 0), address)


async def test_what_is_told_of_a_partition_later_holds_for_it(core: Core) -> None:
    peer = await made(core, "told", "used", "gone")
    await peer.ask(ADDRESS, many(("used", [b"x"])))
    for number, name in enumerate(("told", "used"), 1):
        core.partitions.changed(StreamRecord(id=number, name=name, require_signed=True))
    core.partitions.changed(StreamRemoved(StreamRecord(id=3, name="gone")))
    assert core.partitions.find(stream_address("gone", 0)) is None
    (answer,) = await peer.ask(ADDRESS, many(("told", [b"y"]), ("used", [b"y"])))
    assert [failure.code for failure in answer.failures] == ["stream.signed_only"] * 2
    core.partitions.changed(StreamRecord(id=4, name="used"))
    known = core.partitions.find(stream_address("used", 0))
    assert known is not None
    assert known.log == log_id(4, 0), "there is another stream of its name"
