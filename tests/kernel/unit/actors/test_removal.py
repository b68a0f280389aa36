"""Removing streams: who is told, what is left, and in which order things happen."""

from typing import Any

import pytest
from msgspec.structs import replace

from core_support import Core, Peer, decode, encode, held_reads
from group_support import Consumer
from rillnode.actors.core.access import Grant, Verb
from rillnode.actors.core.streams.context import StreamRemoved, tell_removed
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.stream import MISSING_SECONDS
from rillnode.actors.log import (
    Append,
    FindStream,
    ReadOperation,
    Retention,
    StoreHealth,
    StreamRecord,
    log_id,
)
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.routing.stream import (
    CreateRequest,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    SaveIndexRequest,
    Status,
)

REMOVE = native.RemoveRequest(50, "s")
DONE = native.DoneResponse(50)


async def open_stream(peer: Peer, name: str = "s", partitions: int = 1) -> bytes:
    answers = await peer.ask("stream", native.OpenRequest(1, name, partitions))
    return bytes(answers[0].stream.partitions[0].address)


def read_late(core: Core, operation: ReadOperation) -> None:
    """Read at last what was held."""
    if core.store.read(operation):
        core.complete(operation)


def said(answer: Any) -> object:
    """The ends of a described stream, why there is no answer, or of which kind it is."""
    if isinstance(answer, native.StreamResponse):
        return [partition.next_index for partition in answer.stream.partitions]
    return getattr(answer, "code", answer.__class__.__name__)


async def test_a_removed_stream_is_unknown_and_a_later_one_begins_with_index_0(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"), PushRequest(2, b"old"))
    assert await peer.ask("stream", REMOVE) == [DONE]
    answers = await peer.ask("stream", native.DescribeRequest(2, "s"), REMOVE)
    assert [answer.code for answer in answers] == ["stream.unknown"] * 2
    failure = (await peer.ask(address, native.ReadRequest(3, 0, 9, 99)))[0]
    assert failure.code == "stream.unknown"
    assert await open_stream(peer) == address
    assert await peer.ask(address, PushRequest(1, b"new")) == [PushConfirm(1, Status.OK, 0)]
    assert await peer.ask(address, PullRequest(4, 0, 9)) == [PullResponse(4, [(0, b"new")])]


async def test_requests_on_one_name_are_served_in_their_order_around_a_removal(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    answers = await peer.ask(
        "stream",
        native.DescribeRequest(1, "s"),
        REMOVE,
        REMOVE,
        native.DescribeRequest(2, "s"),
        CreateRequest("s"),
        native.OpenRequest(3, "s", 2),
        REMOVE,
        native.DescribeRequest(4, "s"),
        native.OpenRequest(5, "s", 1),
    )
    assert list(map(said, answers)) == [
        [1],
        "DoneResponse",
        "stream.unknown",
        "stream.unknown",
        "CreateResponse",
        [0, 0],
        "DoneResponse",
        "stream.unknown",
        [0],
    ]


@pytest.mark.parametrize("seconds", [0.0, -3600.0], ids=["at once", "clock set back"])
async def test_no_two_streams_of_a_name_were_created_at_the_same_time(
    core: Core, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    peer = core.peer()
    began, created = core.clock.now_ms(), list[int]()
    now = began + int(seconds * 1_000)
    for _ in range(3):
        answers = await peer.ask("stream", native.OpenRequest(1, "s", 1), REMOVE)
        created.append(answers[0].stream.created_at)
        monkeypatch.setattr(core.clock, "now_ms", lambda: now)
    assert created == [began, began + 1, began + 2]
    # Of others it is the time, and of this one again as soon as that is another.
    other = (await peer.ask("stream", native.OpenRequest(1, "t", 1)))[0].stream
    assert other.created_at == now
    monkeypatch.setattr(core.clock, "now_ms", lambda: began + 5_000)
    later = (await peer.ask("stream", native.OpenRequest(1, "s", 1)))[0].stream
    assert later.created_at == began + 5_000


async def test_nor_at_that_of_one_which_another_node_has_removed(core: Core) -> None:
    now = core.clock.now_ms()
    tell_removed(core.context, StreamRecord(name="s", id=9, created_at=now))
    answers = await core.peer().ask("stream", native.OpenRequest(1, "s", 1))
    assert answers[0].stream.created_at == now + 1


_OfIndex = native.ReadRequest | native.SearchRequest | native.SubscribeRequest


async def test_an_index_means_nothing_in_a_later_stream_of_the_name(core: Core) -> None:
    peer = core.peer()
    answers = await peer.ask("stream", native.OpenRequest(1, "s", 1), REMOVE)
    before = answers[0].stream.created_at
    address = await open_stream(peer)
    await peer.ask(address, *(PushRequest(number, b"x") for number in range(3)))
    asked: list[_OfIndex] = [
        native.ReadRequest(2, 2, 9, 1_000, before),
        native.SearchRequest(3, 2, 9, 9, "not no", before),
        native.SubscribeRequest(4, 2, 1_000, before),
        native.SubscribeRequest(5, 2, 1_000, before, "not no"),
    ]
    refused = await peer.ask(address, *asked)
    assert [(one.request_id, one.code) for one in refused] == [
        (request.request_id, "stream.removed") for request in asked
    ]
    for created_at in (before + 1, 0):  # this one, and whichever has the name
        named = [replace(request, created_at=created_at) for request in asked]
        answers = await core.peer().ask(address, *named)
        assert {one.request_id for one in answers} == {2, 3, 4, 5}
        assert all(native.blocks_of(one) for one in answers)


async def test_subscribers_are_told_and_their_actors_end(core: Core) -> None:
    peer, other = core.peer(), core.peer()
    address = await open_stream(peer)
    await open_stream(peer, "t")
    await peer.ask(address, native.AppendRequest(1, 1, pack_body([b"x"])))
    await peer.ask(address, native.SubscribeRequest(9, 0, 10_000))
    await peer.ask(b"ST_S_0_t", native.SubscribeRequest(10, 0, 10_000))
    peer.answers.clear()
    assert await other.ask("stream", REMOVE) == [DONE]
    (told,) = [native.decode_response(answer.payload) for answer in peer.answers]
    assert told == native.Failure(9, "stream.removed", "The stream was removed")
    assert len(peer.origin.attached) == 1
    await open_stream(peer)
    appended = await peer.ask(address, native.AppendRequest(2, 1, pack_body([b"y"])))
    assert appended == [native.PositionResponse(2, 0)]


async def test_actors_of_a_removed_stream_go(core: Core) -> None:
    peer = core.peer()
    await open_stream(peer, partitions=3)
    addresses = [b"ST_S_%d_s" % partition for partition in range(3)]
    for address in addresses:
        await peer.ask(address, PushRequest(1, b"x"))
    assert all(core.router.lookup(address) for address in addresses)
    await peer.ask("stream", REMOVE)
    core.clock.advance(MISSING_SECONDS + 0.1)
    await core.settle()
    assert not any(core.router.lookup(address) for address in addresses)


async def test_passivated_actors_learn_of_the_removal_too(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    for _ in range(3):
        core.clock.advance(61)
        await core.settle()
    await peer.ask("stream", REMOVE)
    await open_stream(peer)
    assert await peer.ask(address, PushRequest(1, b"new")) == [PushConfirm(1, Status.OK, 0)]


async def test_a_push_that_comes_too_late_is_not_confirmed(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    # The removal is on its way to the disk when the stream's actor submits more.
    core.store.faults.sync_seconds = 1.0
    peer.send("stream", encode(REMOVE))
    await core.settle()
    requests = (PushRequest(2, b"late"), native.AppendRequest(3, 1, pack_body([b"late"])))
    assert await peer.ask(address, *requests) == []
    for _ in range(2):
        core.clock.advance(1.1)
        await core.settle()
    refused = native.Failure(3, "stream.removed", "The stream was removed: create it again")
    assert [decode(answer.payload) for answer in peer.answers] == [
        DONE,
        refused,
        PushConfirm(2, Status.ERROR, 0),
    ]


async def test_what_was_asked_before_a_removal_elsewhere_is_answered_however_late(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, told = core.peer(), list[StreamRecord | StreamRemoved]()
    core.changes.append(told.append)
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    cell, record = core.router.lookup(address), told[0]
    assert cell is not None
    assert isinstance(record, StreamRecord)
    held = held_reads(core, monkeypatch)
    core.store.faults.sync_seconds = 5 * MISSING_SECONDS
    late = (PushRequest(2, b"late"), native.AppendRequest(3, 1, pack_body([b"late"])))
    assert await peer.ask(address, *late, PullRequest(4, 0, 9)) == []
    monkeypatch.undo()
    core.system.post(cell, StreamRemoved(record))
    for _ in range(3):
        core.clock.advance(MISSING_SECONDS + 0.1)
        await core.settle()
    assert core.router.lookup(address) is None
    assert cell.exited
    core.clock.advance(3 * MISSING_SECONDS)
    read_late(core, held[0])
    await core.settle()
    assert {type(decode(answer.payload)) for answer in peer.answers[-3:]} == {
        PushConfirm,
        native.PositionResponse,
        PullResponse,
    }
    assert peer.origin.reserved_bytes == 0


async def test_who_asks_an_actor_that_is_about_to_leave_is_answered(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    await peer.ask("stream", REMOVE)
    unregister = core.router.unregister

    def last_moment(given: bytes) -> None:
        # It is on its way to the actor when that gives up its address.
        peer.send(address, encode(native.ReadRequest(2, 0, 9, 99)))
        unregister(given)

    monkeypatch.setattr(core.router, "unregister", last_moment)
    held = held_reads(core, monkeypatch)
    core.clock.advance(MISSING_SECONDS + 0.1)
    await core.settle()
    monkeypatch.undo()
    read_late(core, held[0])
    await core.settle()
    assert said(decode(peer.answers[-1].payload)) == "stream.unknown"
    core.clock.advance(MISSING_SECONDS + 0.1)
    await core.settle()
    assert core.router.lookup(address) is None


async def test_saved_positions_go_with_their_stream(core: Core) -> None:
    peer = core.peer()
    await open_stream(peer)
    save, get = SaveIndexRequest("c", "s", 7), GetIndexRequest("c", "s")
    assert await peer.ask("stream_index", save, get) == [IndexResponse("c", "s", 7)]
    other = SaveIndexRequest("c", "t", 5)
    await peer.ask("stream_index", other)
    await peer.ask("stream", REMOVE)
    assert await peer.ask("stream_index", get) == [IndexResponse("c", "s", None)]
    assert await peer.ask("stream_index", GetIndexRequest("c", "t")) == [IndexResponse("c", "t", 5)]
    await open_stream(peer)
    lower = native.SaveIndexRequest(8, "c", "s", 0, 2)
    assert await peer.ask("stream_index", lower) == [native.SavedIndexResponse(8, 2)]


async def test_what_was_read_before_the_removal_and_told_after_it_is_read_again(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"old"))
    cell = core.router.lookup(address)
    assert cell is not None
    await peer.ask("stream", REMOVE)
    held, read = list[FindStream](), core.store.read

    def slow(operation: ReadOperation) -> bool:
        if operation.reply_to is not cell or not isinstance(operation, FindStream) or held:
            return read(operation)
        core.store.look(operation)
        held.append(operation)
        return False

    monkeypatch.setattr(core.store, "read", slow)
    await open_stream(peer)
    assert await peer.ask(address, PushRequest(2, b"waits")) == []
    assert held[0].record is not None
    await peer.ask("stream", REMOVE)
    await open_stream(peer)
    core.complete(held[0])
    await core.settle()
    assert decode(peer.answers[-1].payload) == PushConfirm(2, Status.OK, 0)
    assert await peer.ask(address, PushRequest(3, b"new")) == [PushConfirm(3, Status.OK, 1)]


async def test_a_failed_removal_is_told_and_the_stream_is_there(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, PushRequest(1, b"kept"))
    core.store.faults.failing_syncs = 1
    failure = (await peer.ask("stream", REMOVE))[0]
    assert (failure.code, failure.retryable) == ("store.failed", True)
    core.clock.advance(1)
    assert await peer.ask(address, PullRequest(1, 0, 9)) == [PullResponse(1, [(0, b"kept")])]
    assert await peer.ask("stream", REMOVE) == [DONE]


async def test_a_stream_that_went_in_a_failed_removal_is_found_gone(core: Core) -> None:
    peer = core.peer()
    address = await open_stream(peer)
    await peer.ask(address, native.SubscribeRequest(9, 0, 1_000))
    core.store.faults.failing_syncs = core.store.faults.surviving = 1
    assert (await peer.ask("stream", REMOVE))[0].code == "store.failed"
    core.clock.advance(1)
    answers = await peer.ask(address, PushRequest(1, b"x"))
    assert PushConfirm(1, Status.ERROR, 0) in answers
    assert [answer.code for answer in answers if isinstance(answer, native.Failure)] == [
        "stream.removed"
    ]
    await open_stream(peer)
    assert await peer.ask(address, PushRequest(1, b"x")) == [PushConfirm(1, Status.OK, 0)]


@pytest.mark.parametrize("how", ["repaired", "asked for"])
async def test_who_is_in_a_stream_that_went_in_a_failed_removal_is_told(
    core: Core, how: str
) -> None:
    peer, other = core.peer(), core.peer()
    address = await open_stream(peer)
    await peer.ask(address, native.SubscribeRequest(9, 0, 1_000))
    member = Consumer(core, "m")
    await member.join()
    assert member.held
    core.store.faults.failing_syncs = core.store.faults.surviving = 1
    peer.answers.clear()
    assert (await other.ask("stream", REMOVE))[0].code == "store.failed"
    core.clock.advance(1)
    await core.settle()
    member.look()
    assert (peer.answers, member.failures) == ([], [])
    if how == "repaired":
        core.system.post(core.streams, StoreHealth(writable=True))
        await core.settle()
    else:
        await open_stream(other)
    (told,) = [native.decode_response(answer.payload) for answer in peer.answers]
    assert told == native.Failure(9, "stream.removed", "The stream was removed")
    member.look()
    assert member.failures == ["stream.removed"]


async def test_removed_streams_are_trimmed_no_more(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.system.post(core.streams, EnsureStream("s", 2, Retention(entries_max=1)))
    await core.settle()
    peer = core.peer()
    await peer.ask("stream", REMOVE)
    submitted: list[object] = []
    monkeypatch.setattr(core.store, "submit", submitted.append)
    core.clock.advance(SWEEP_SECONDS + 0.1)
    await core.settle()
    assert submitted == []


@pytest.mark.parametrize("may", [{"create", "push", "pull", "subscribe"}, {"pull"}])
async def test_only_who_administers_a_stream_removes_it(core: Core, may: set[Verb]) -> None:
    await open_stream(core.peer())
    core.access.add(Grant(who="noise:aa", streams="*", may=frozenset(may)))
    peer = core.peer("noise:aa")
    refused = await peer.ask("stream", REMOVE, native.RemoveRequest(50, "missing"))
    assert refused[0].code == "stream.unknown"
    assert refused[0].text == refused[1].text.replace("missing", "s")
    assert core.router.undelivered["refused"] == 2
    described = await core.peer().ask("stream", native.DescribeRequest(1, "s"))
    assert isinstance(described[0], native.StreamResponse)


async def test_the_store_takes_nothing_for_a_stream_that_is_gone(core: Core) -> None:
    peer = core.peer()
    await open_stream(peer)
    await peer.ask("stream", REMOVE)
    late = Append(log=log_id(1, 0), count=1, body=pack_body([b"x"]))
    core.store.submit(late)
    await core.settle()
    assert late.error is not None
    assert late.error.code == "stream.removed"
