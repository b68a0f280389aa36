"""Actors of streams fail at each kind of message, before and after its effects.

Who asked is told once, what is confirmed stays, and who follows gets each entry once.
"""

from collections.abc import Collection
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest

from core_support import Core, Inserter, Peer, decode, encode, held_reads
from coroutines import run_with
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams import reading, retention
from rillnode.actors.core.streams.appending import Insertion
from rillnode.actors.core.streams.asked import NativeRead
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.followers import Grown
from rillnode.actors.core.streams.retention import SWEEP_SECONDS, Recount, RetentionActor
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.stream import MISSING_SECONDS, StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.faults import When
from rillnode.actors.log import (
    Append,
    FindStream,
    Read,
    ReadOperation,
    Retention,
    StreamRecord,
    Trim,
    WriteOperation,
    log_id,
)
from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, items_of, pack_body
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import (
    ErrorResponse,
    PullRequest,
    PullResponse,
    PushRequest,
    Status,
)
from rillnode.testing import fail

ADDRESS = b"ST_S_0_s"
LOG = log_id(1, 0)


class Client:
    """Asks under a new number each time, and knows what came back for each."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.peer: Peer = core.peer()
        self._number = 100
        self._pull = 0

    def send(self, *requests: Any) -> list[int]:
        """Send requests in one batch."""
        numbered: list[Any] = []
        for request in requests:
            self._number += 1
            numbered.append(msgspec.structs.replace(request, request_id=self._number))
            if isinstance(request, PullRequest):
                self._pull = self._number
        self.peer.send(ADDRESS, *map(encode, numbered))
        return [request.request_id for request in numbered]

    def answers(self, number: int) -> list[Any]:
        """All that has come for a request; an error of Ockam's, without a number, is the pull's."""
        found = [decode(answer.payload) for answer in self.peer.answers]
        return [answer for answer in found if getattr(answer, "request_id", self._pull) == number]

    async def ask(self, request: Any) -> Any:
        """Ask, and get the one answer."""
        (number,) = self.send(request)
        await self.core.settle()
        (answer,) = self.answers(number)
        return answer


def append(item: bytes) -> native.AppendRequest:
    return native.AppendRequest(0, 1, pack_body([item]))


READ = native.ReadRequest(0, 0, 1_000, 1_000_000)


def items(blocks: native.BlocksResponse) -> list[tuple[int, bytes]]:
    return [
        (index, bytes(item))
        for block in native.blocks_of(blocks)
        for index, item in enumerate(items_of(block.value), block.first_index)
    ]


class Follower:
    """A native subscriber: follows anew from where it is when its subscription has failed."""

    def __init__(self, core: Core) -> None:
        self.got: list[tuple[int, bytes]] = []
        self._core = core
        self._peer = core.peer()
        self._number = 0
        self._address: Route = ()

    @property
    def attached(self) -> Collection[Cell]:
        """The actors of its subscriptions."""
        return self._peer.origin.attached

    async def grant(self) -> None:
        """Give credit."""
        if self._address:
            request = native.encode(native.CreditRequest(self._number, 1))
            self._peer.send(self._address[0].value, request)
            await self._core.settle()

    async def follow(self) -> None:
        self._number += 1
        self._address = ()
        index = self.got[-1][0] + 1 if self.got else 0
        request = native.SubscribeRequest(self._number, index, 60_000_000)
        self._peer.send(ADDRESS, encode(request))
        await self._core.settle()

    async def settle(self) -> None:
        """Take what has come."""
        for _ in range(20):
            await self._core.settle()
            answers, self._peer.answers[:] = list(self._peer.answers), []
            if not answers:
                return
            for wire in answers:
                answer = decode(wire.payload)
                if answer.request_id != self._number:
                    continue
                if isinstance(answer, native.BlocksResponse):
                    self._address = wire.return_route
                    self.got += items(answer)
                else:
                    assert answer.code.startswith("actor.")
                    await self.follow()


async def opened(core: Core) -> None:
    await core.peer().ask("stream", native.OpenRequest(1, "s", 1))


def read_later(core: Core, patch: pytest.MonkeyPatch) -> None:
    """Have no read complete at once."""

    def later(operation: ReadOperation) -> bool:
        core.store.look(operation)
        core.complete(operation)
        return False

    patch.setattr(core.store, "read", later)


MESSAGES = (Delivery, StreamRecord, StreamRemoved, Append, Read, FindStream)


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: one.__name__)
async def test_a_stream_fails_once_and_every_ask_has_its_outcome(
    core: Core, message: type, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    read_later(core, monkeypatch)
    client, follower, told = Client(core), Follower(core), list[tuple[str, int, str]]()
    inserter = core.system.spawn(partial(Inserter, core.context, LOG, told))
    await follower.follow()
    before = await client.ask(append(b"before"))
    assert isinstance(before, native.PositionResponse)
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    if message is FindStream:  # it is looked for when it wakes
        for _ in range(3):
            core.clock.advance(StreamActor.idle_seconds or 0.0)
            await core.settle()
        assert cell.instance is None
    with fail(StreamActor, message, when=when) as planted:
        numbers = client.send(append(b"a"), PushRequest(0, b"b"), READ, PullRequest(0, 0, 9))
        core.system.post(inserter, Insertion("node", EntryKind.BYTES, [b"c"]))
        (last,) = client.send(append(b"d"))
        core.system.post(cell, StreamRecord(name="s", id=1))
        core.system.post(cell, StreamRemoved(StreamRecord(name="other", id=77)))
        await core.settle()
        core.clock.advance(1.0)
        await core.settle()
    assert planted.hits == 1
    outcomes = {number: client.answers(number) for number in (*numbers, last)}
    assert all(len(answers) == 1 for answers in outcomes.values())
    confirmed = {b"before": 0}
    for number, item in ((numbers[0], b"a"), (last, b"d")):
        (answer,) = outcomes[number]
        if isinstance(answer, native.PositionResponse):
            confirmed[item] = answer.index
        else:
            assert answer.code == "actor.failed"
    (push,) = outcomes[numbers[1]]
    if push.status is Status.OK:
        confirmed[b"b"] = push.index
    ((how, confirmed[b"c"], code),) = told
    assert (how, code) == ("run", "")  # the stream's actor takes no part in it
    assert (await client.ask(append(b"after"))).index >= len(confirmed)
    stored = items(await client.ask(READ))
    assert {item: index for index, item in stored if item in confirmed} == confirmed
    await follower.settle()
    assert follower.got == stored
    assert client.peer.origin.reserved_bytes == 0
    assert all(cell.mailbox is not GONE for cell in core.router.table.values())


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize(
    "message", [Grown, Delivery, Read, RightsChanged], ids=lambda one: one.__name__
)
async def test_who_follows_gets_each_entry_once_when_its_subscription_fails(
    core: Core, message: type, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    read_later(core, monkeypatch)
    client, follower = Client(core), Follower(core)
    await follower.follow()
    await client.ask(append(b"1"))
    await follower.settle()
    with fail(SubscriptionActor, message, when=when) as planted:
        for item in (b"2", b"3"):
            assert isinstance(await client.ask(append(item)), native.PositionResponse)
            await follower.grant()
            core.access.rights.changed("s")
            await follower.settle()
    assert planted.hits == 1
    await client.ask(append(b"4"))
    await follower.settle()
    assert follower.got == list(enumerate((b"1", b"2", b"3", b"4")))
    assert len(follower.attached) == 1
    assert core.context.subscribers.of(LOG) == 1


async def test_what_is_under_way_when_an_instance_is_replaced_has_the_true_outcome(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    client, follower = Client(core), Follower(core)
    await client.ask(append(b"0"))
    await follower.follow()
    read = core.store.read
    with monkeypatch.context() as slow:
        held = held_reads(core, slow)
        core.store.faults.sync_seconds = 1.0
        numbers = client.send(append(b"1"), READ, PullRequest(0, 0, 9))
        await core.settle()
        cell = core.router.lookup(ADDRESS)
        assert cell is not None
        instance = cell.instance
        with fail(StreamActor, Delivery):
            (failed,) = client.send(append(b"lost"))
            await core.settle()
        assert cell.instance is not instance
        assert len(held) == 2
        assert [client.answers(number) for number in numbers] == [[], [], []]
    for operation in held:
        if read(operation):
            core.complete(operation)
    core.clock.advance(1.1)
    await core.settle()
    outcomes = [client.answers(number) for number in (*numbers, failed)]
    (appended,), (found,), (pulled,), (lost,) = outcomes
    assert appended.index == 1
    assert items(found) == [(0, b"0")]
    assert isinstance(pulled, PullResponse)
    assert [bytes(data) for _, data in pulled.messages] == [b"0"]
    assert lost.code == "actor.failed"
    await follower.settle()
    assert follower.got == [(0, b"0"), (1, b"1")]
    assert client.peer.origin.reserved_bytes == 0


async def test_a_request_at_which_a_batch_fails_costs_none_before_it_its_outcome(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = StreamActor._request  # pyright: ignore[reportPrivateUsage]

    def failing(self: StreamActor, origin: Any, wire: Any, asked: Any, answers: Any) -> None:
        if isinstance(asked, PullRequest):
            raise RuntimeError("planted")
        request(self, origin, wire, asked, answers)

    await opened(core)
    client = Client(core)
    with monkeypatch.context() as patch:
        patch.setattr(StreamActor, "_request", failing)
        numbers = client.send(
            append(b"a"), PushRequest(0, b"b"), READ, PullRequest(0, 0, 9), append(b"c"), READ
        )
        await core.settle()
    outcomes = [client.answers(number) for number in numbers]
    assert [len(answers) for answers in outcomes] == [1] * 6
    assert outcomes[0][0].index in (0, 1)
    assert outcomes[1][0].status is Status.OK
    assert isinstance(outcomes[3][0], ErrorResponse)
    assert {answer.code for answers in outcomes[4:] for answer in answers} == {"actor.failed"}
    stored = [item for _, item in items(await client.ask(READ))]
    assert sorted(stored) == [b"a", b"b"]
    assert client.peer.origin.reserved_bytes == 0


@pytest.mark.parametrize("exits", [False, True])
async def test_who_waits_for_a_stream_that_is_looked_for_is_told_when_the_look_ends(
    core: Core, exits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    client = Client(core)
    await client.ask(append(b"0"))
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    # An append is under way when the stream is looked for anew.
    core.store.faults.sync_seconds = 1.0
    (under_way,) = client.send(append(b"1"))
    await core.settle()
    core.system.post(cell, StreamRemoved(StreamRecord(name="s", id=1)))
    read = core.store.read
    with monkeypatch.context() as slow:
        held = held_reads(core, slow)
        (looked_for,) = client.send(append(b"2"))
        await core.settle()
        (waits,) = client.send(append(b"3"))
        await core.settle()
        assert len(held) == 1
    if exits:
        core.system.exit(cell)
        await core.settle()
    with fail(StreamActor, Append) as planted:
        core.clock.advance(1.1)
        await core.settle()
    core.store.faults.sync_seconds = 0.0
    core.clock.advance(1.1)
    await core.settle()
    assert planted.hits == (not exits)
    assert client.answers(under_way) == [native.PositionResponse(under_way, 1)]
    (told,), (served,) = client.answers(looked_for), client.answers(waits)
    if exits:
        assert (told.code, served.code) == ("actor.stopped", "actor.stopped")
    else:
        assert told.code == "actor.failed"
        assert served == native.PositionResponse(waits, 2)
    if read(held[0]):  # nobody waits for it any more
        core.complete(held[0])
    await core.settle()
    assert isinstance(await client.ask(append(b"4")), native.PositionResponse)
    assert client.peer.origin.reserved_bytes == 0


async def test_a_stream_that_is_removed_and_made_anew_while_it_is_looked_for_serves_the_new_one(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    client, read = Client(core), core.store.read
    held: list[FindStream] = []

    def slow(operation: ReadOperation) -> bool:
        if isinstance(operation, FindStream) and operation.reply_to is not core.streams:
            held.append(operation)
            core.store.look(operation)
            return False
        return read(operation)

    with monkeypatch.context() as patch:
        patch.setattr(core.store, "read", slow)
        numbers = [*client.send(append(b"a")), *client.send(append(b"b"), READ)]
        await core.settle()
        for remaining in (1, 0):
            await core.peer().ask("stream", native.RemoveRequest(1, "s"))
            await opened(core)
            core.complete(held[-1])
            await core.settle()
            assert len(held) == 3 - remaining
    core.store.look(held[-1])
    core.complete(held[-1])
    await core.settle()
    (first,), (second,), (found,) = map(client.answers, numbers)
    assert (first.index, second.index) == (0, 1)
    assert found.next_index in (0, 1, 2)
    assert items(await client.ask(READ)) == [(0, b"a"), (1, b"b")]


async def test_who_follows_a_stream_that_is_given_up_misses_nothing_of_its_next_actor(
    core: Core,
) -> None:
    await opened(core)
    client, follower = Client(core), Follower(core)
    await follower.follow()
    assert (await client.ask(append(b"0"))).index == 0
    first = core.router.lookup(ADDRESS)
    with fail(StreamActor, Delivery, times=6) as planted:
        for _ in range(6):
            assert (await client.ask(append(b"lost"))).code == "actor.failed"
    assert planted.hits == 6
    assert first is not None
    assert first.exited
    for item in (b"1", b"2"):
        for _ in range(30):  # it may be some time before there is another
            answer = await client.ask(append(item))
            if isinstance(answer, native.PositionResponse):
                break
            core.clock.advance(1.0)
    assert core.router.lookup(ADDRESS) is not first
    await follower.settle()
    assert [item for _, item in follower.got] == [b"0", b"1", b"2"]
    assert all(one[0] + 1 == other[0] for one, other in pairwise(follower.got))


async def test_an_append_that_is_late_is_told_to_who_follows_through_another_actor(
    core: Core,
) -> None:
    await opened(core)
    client, follower = Client(core), Follower(core)
    await client.ask(append(b"0"))
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    core.store.faults.sync_seconds = 1.0
    (number,) = client.send(append(b"1"))
    await core.settle()
    core.system.exit(cell)
    await core.settle()
    await follower.follow()
    await follower.settle()
    assert follower.got == [(0, b"0")]
    core.clock.advance(1.1)
    await follower.settle()
    assert client.answers(number) == [native.PositionResponse(number, 1)]
    assert follower.got == [(0, b"0"), (1, b"1")]


# Retention ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("name", ["StreamRecord", "StreamRemoved", "Recount", "_Sweep", "Trim"])
async def test_retention_fails_once_and_trims_all_the_same(
    core: Core, name: str, when: When
) -> None:
    message: type = getattr(retention, name)
    client = Client(core)
    await core.settle()
    with fail(RetentionActor, message, when=when) as planted:
        core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=1)))
        core.system.post(core.streams, EnsureStream("t", 1, Retention(entries_max=1)))
        await core.settle()
        core.system.post(core.retention, Recount())
        await core.peer().ask("stream", native.RemoveRequest(1, "t"))
        for number in range(3):
            assert isinstance(await client.ask(append(b"%d" % number)), native.PositionResponse)
        for _ in range(4):
            core.clock.advance(SWEEP_SECONDS + 0.1)
            await core.settle()
    assert planted.hits == 1
    assert items(await client.ask(READ)) == [(2, b"2")]
    # It goes on, and only with what is there.
    trims, submit = list[int](), core.store.submit

    def noting(operation: WriteOperation) -> None:
        if isinstance(operation, Trim):
            trims.append(operation.log)
        submit(operation)

    core.store.submit = noting  # type: ignore[method-assign]
    for _ in range(2):
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle()
    assert len(trims) >= 1
    assert set(trims) == {LOG}


async def test_what_is_heard_of_a_stream_while_all_are_listed_is_newer_than_what_is_found(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=1)))
    core.system.post(core.streams, EnsureStream("t", 1, Retention(entries_max=1)))
    await core.settle()
    held, read = list[ReadOperation](), core.store.read

    def slow(operation: ReadOperation) -> bool:
        if operation.reply_to is not core.retention:
            return read(operation)
        core.store.look(operation)
        held.append(operation)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(core.store, "read", slow)
        core.system.post(core.retention, Recount())
        await core.settle()
        await core.peer().ask("stream", native.RemoveRequest(1, "t"))
        core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=2)))
        await core.settle()
        for operation in held:
            core.complete(operation)
        await core.settle()
    client = Client(core)
    for number in range(3):
        await client.ask(append(b"%d" % number))
    trims, submit = list[Trim](), core.store.submit

    def noting(operation: WriteOperation) -> None:
        if isinstance(operation, Trim):
            trims.append(operation)
        submit(operation)

    monkeypatch.setattr(core.store, "submit", noting)
    for _ in range(2):
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle()
    assert {trim.log for trim in trims} == {LOG}
    assert items(await client.ask(READ)) == [(1, b"1"), (2, b"2")]


async def test_a_stream_that_is_not_there_leaves_no_actor_however_it_fails(core: Core) -> None:
    client = Client(core)
    for message in (Delivery, FindStream):
        with fail(StreamActor, message):
            answer = await client.ask(append(b"x"))
        assert answer.code == "actor.failed"
    assert (await client.ask(append(b"x"))).code == "stream.unknown"
    core.clock.advance(MISSING_SECONDS + 0.1)
    await core.settle()
    assert core.router.lookup(ADDRESS) is None


@run_with(quotas=[Quota(who="*", bytes_max=1000)])
async def test_what_fails_after_an_answer_gives_none_again(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(core)
    client, failures = Client(core), [RuntimeError("planted")]
    charge = core.context.quotas.appended

    def failing(*charged: Any) -> None:
        if failures:
            raise failures.pop()
        charge(*charged)

    monkeypatch.setattr(core.context.quotas, "appended", failing)
    assert isinstance(await client.ask(append(b"0")), native.PositionResponse)
    assert failures == []
    assert (await client.ask(append(b"1"))).index == 1


@pytest.mark.parametrize("request_", [READ, PullRequest(0, 0, 9)], ids=["native", "pull"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_read_that_cannot_be_answered_gives_back_what_it_reserved(
    core: Core, request_: Any, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("planted")

    await opened(core)
    client = Client(core)
    await client.ask(append(b"0"))
    if not at_once:
        read_later(core, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(NativeRead, "answer", failing)
        patch.setattr(reading, "collect", failing)
        (number,) = client.send(request_)
        await core.settle()
    told = client.answers(number)
    if isinstance(request_, PullRequest):
        # Ockam's protocol tells no reason, and only of what the node got to know.
        assert all(isinstance(answer, ErrorResponse) for answer in told)
    else:
        assert [answer.code for answer in told] == ["actor.failed"]
    client.peer.answers.clear()
    assert client.peer.origin.reserved_bytes == 0
    assert items(await client.ask(READ)) == [(0, b"0")]


async def test_a_stream_that_was_read_from_sleeps_when_it_is_idle(core: Core) -> None:
    await opened(core)
    client = Client(core)
    for request in (append(b"0"), READ, PullRequest(0, 0, 9)):
        await client.ask(request)
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    for _ in range(3):
        core.clock.advance(StreamActor.idle_seconds or 0.0)
        await core.settle()
    assert cell.instance is None
