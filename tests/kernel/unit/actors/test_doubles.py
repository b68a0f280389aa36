"""What a client numbers is stored once: by streams' actors, and by requests to many streams."""

from typing import Any, cast

import pytest

from core_support import Core, Peer, decode
from coroutines import run_with
from rillnode.actors.core.access import VERBS, Grant
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.appender import ADDRESS, AppenderActor
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.log import Append, FindStream, GetRecord, OpenProducer, Read, log_id
from rillnode.codecs import native
from rillnode.codecs.entries import items_of, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import ONCE_EPOCH, PRODUCER_BYTES_MAX, SEQUENCE_MAX
from rillnode.testing import fail

S = stream_address("s", 0)


def numbered(
    sequence: int, *items: bytes, producer: bytes = b"p", epoch: int = 0, number: int = 7
) -> native.AppendRequest:
    data = items or (b"%d" % sequence,)
    return native.AppendRequest(number, len(data), pack_body(data), 0, producer, epoch, sequence)


def many(*sequences: int, names: tuple[str, ...] = ("s", "t")) -> native.AppendManyRequest:
    """A block for each of some streams, each with one number."""
    items = [
        native.AppendItem(stream_address(name, 0), 1, pack_body([b"%d" % sequence]), 0, sequence)
        for name in names
        for sequence in sequences
    ]
    return native.AppendManyRequest(9, items, b"p")


async def opened(core: Core, *names: str) -> Peer:
    peer = core.peer()
    for name in names or ("s",):
        await peer.ask("stream", native.OpenRequest(1, name, 1))
    return peer


async def index_of(peer: Peer, request: native.AppendRequest) -> int:
    (answer,) = await peer.ask(S, request)
    assert isinstance(answer, native.PositionResponse), answer
    return answer.index


async def named(peer: Peer, name: str = "m7") -> native.ProducerResponse:
    (answer,) = await peer.ask(S, native.OpenProducerRequest(2, name))
    assert isinstance(answer, native.ProducerResponse), answer
    return answer


async def failure_of(peer: Peer, request: native.Request) -> native.Failure:
    (answer,) = await peer.ask(S, request)
    assert isinstance(answer, native.Failure), answer
    assert not answer.retryable
    return answer


def stored(core: Core, name: str = "s") -> list[bytes]:
    find = FindStream(name=name)
    core.store.look(find)
    assert find.record is not None
    read = Read(log=log_id(find.record.id, 0))
    core.store.look(read)
    return [item for block in read.blocks for item in items_of(block.value)]


async def test_what_comes_again_over_another_link_has_the_index_that_it_had(core: Core) -> None:
    first = await opened(core)
    requests = [numbered(n, number=n + 1) for n in range(3)]
    # The first attempt is under way still.
    for request in requests:
        first.send(S, native.encode(request))
    again = await core.peer().ask(S, *requests, numbered(3, number=4))
    assert again == [native.PositionResponse(n + 1, n) for n in range(4)]
    assert stored(core) == [b"0", b"1", b"2", b"3"]
    assert core.context.appended.entries == 4


async def test_a_stale_number_is_refused_with_the_index_that_it_has(core: Core) -> None:
    peer = await opened(core)
    await peer.ask(S, native.AppendRequest(1, 1, pack_body([b"other"])))
    opening = await named(peer)
    assert (opening.next_sequence, opening.last_index) == (0, None)
    assert await index_of(peer, numbered(5, producer=b"m7", epoch=opening.epoch)) == 1
    again = await named(peer)
    assert (again.next_sequence, again.last_index) == (6, 1)
    stale = await failure_of(peer, numbered(5, producer=b"m7", epoch=again.epoch))
    assert (stale.code, stale.index) == ("producer.stale", 1)
    assert "entry 1 has it" in stale.text
    gap = await failure_of(peer, numbered(3, producer=b"m7", epoch=again.epoch))
    assert (gap.code, gap.index) == ("producer.stale", None)
    assert await index_of(peer, numbered(9, producer=b"m7", epoch=again.epoch)) == 2


async def test_the_later_of_two_of_one_name_fences_the_earlier(core: Core) -> None:
    first, second = await opened(core), core.peer()
    one, two = await named(first), await named(second)
    late = await failure_of(first, numbered(0, producer=b"m7", epoch=one.epoch))
    assert late.code == "producer.fenced"
    assert "m7 was opened once more" in late.text
    assert await index_of(second, numbered(0, producer=b"m7", epoch=two.epoch)) == 0
    assert (await named(first, "m8")).next_sequence == 0
    assert await index_of(first, numbered(0)) == 1


async def test_many_partitions_at_once(core: Core) -> None:
    peer = await opened(core, "s", "t")
    first, again = many(0, 1), many(0, 1, 2)
    peer.send(ADDRESS.decode(), native.encode(first))
    (answer,) = await core.peer().ask(ADDRESS, again)
    assert answer == native.PositionsResponse(9, [0, 1, 2, 0, 1, 2], [])
    assert stored(core, "s") == stored(core, "t") == [b"0", b"1", b"2"]
    # One by one, a block goes on where they have stopped, and the other way round.
    assert [await index_of(peer, numbered(n)) for n in (1, 3)] == [1, 3]
    (answer,) = await peer.ask(ADDRESS, many(3, 9, names=("s",)))
    assert answer.indexes == [3, 4]
    (answer,) = await peer.ask(ADDRESS, many(5, names=("s",)))
    (failure,) = answer.failures
    assert (failure.code, failure.index) == ("producer.stale", None)
    assert core.context.appended.entries == 8


async def test_nothing_is_forgotten_with_an_actor(core: Core) -> None:
    peer = await opened(core, "s", "t")
    await peer.ask(S, numbered(0))
    await peer.ask(ADDRESS, many(0, names=("t",)))
    for _ in range(2):
        core.clock.advance(200.0)  # the stream's instance has gone
        await core.settle()
        assert await index_of(peer, numbered(0)) == 0
    with fail(StreamActor, message=Append) as one, fail(AppenderActor, message=Append) as two:
        assert await index_of(peer, numbered(1)) == 1
        (answer,) = await peer.ask(ADDRESS, many(1, names=("t",)))
        assert answer == native.PositionsResponse(9, [1], [])
        assert (one.hits, two.hits) == (1, 1)
    for sequence in range(3):
        assert await index_of(peer, numbered(sequence)) == sequence
        (answer,) = await peer.ask(ADDRESS, many(sequence, names=("t",)))
        assert answer == native.PositionsResponse(9, [sequence], [])


async def test_what_failed_in_the_store_and_is_there_all_the_same(core: Core) -> None:
    peer = await opened(core)
    follower = core.peer()
    follower.send(S, native.encode(native.SubscribeRequest(3, 0, 65_536)))
    await core.settle()
    core.store.faults.failing_syncs = core.store.faults.surviving = 1
    (answer,) = await peer.ask(S, numbered(0, b"a", b"b"))
    assert answer.code == "store.failed"
    core.clock.advance(1)
    assert follower.answers == []
    # Nobody was told that it is there: who follows the stream is told now.
    assert await index_of(peer, numbered(0, b"a", b"b")) == 0
    brought = [decode(wire.payload) for wire in follower.answers]
    assert [one.next_index for one in brought if one.blocks] == [2]
    assert await index_of(peer, numbered(2)) == 2


async def test_a_stream_made_anew_answers_with_nothing_of_the_old_one(core: Core) -> None:
    peer = await opened(core)
    await peer.ask(S, native.AppendRequest(1, 1, pack_body([b"other"])))
    assert await index_of(peer, numbered(0)) == 1
    opening = await named(peer)
    await peer.ask("stream", native.RemoveRequest(1, "s"))
    await peer.ask("stream", native.OpenRequest(1, "s", 1))
    assert await index_of(peer, numbered(0)) == 0
    assert await index_of(peer, numbered(4, producer=b"m7", epoch=opening.epoch)) == 1
    assert await index_of(peer, numbered(1)) == 2


async def test_a_trimmed_stream_knows_doubles(core: Core) -> None:
    peer = await opened(core)
    await peer.ask(S, *(numbered(n) for n in range(3)))
    await peer.ask("stream", native.TrimRequest(1, "s", 0, 3))
    assert [await index_of(peer, numbered(n)) for n in range(4)] == [0, 1, 2, 3]
    assert stored(core) == [b"3"]


BAD: dict[str, tuple[native.Request, str]] = {
    "number too large": (numbered(SEQUENCE_MAX), "producer.sequence"),
    "last number too large": (numbered(SEQUENCE_MAX - 1, b"a", b"b"), "producer.sequence"),
    "number beyond all": (numbered(2**64 - 1), "producer.sequence"),
    "epoch too large": (numbered(0, epoch=2**64 - 1), "producer.sequence"),
    "long id": (numbered(0, producer=b"p" * (PRODUCER_BYTES_MAX + 1)), "producer.name"),
    "no name": (native.OpenProducerRequest(1, ""), "producer.name"),
    "long name": (native.OpenProducerRequest(1, "ö" * PRODUCER_BYTES_MAX), "producer.name"),
}


@pytest.mark.parametrize("bad", BAD)
async def test_bad_input(core: Core, bad: str) -> None:
    peer = await opened(core)
    request, code = BAD[bad]
    failure = await failure_of(peer, request)
    assert failure.code == code
    assert "{" not in failure.text
    if isinstance(request, native.AppendRequest) and not request.epoch:
        item = native.AppendItem(S, request.count, request.body, 0, request.sequence)
        (answer,) = await peer.ask(
            ADDRESS, native.AppendManyRequest(9, [item, item], request.producer)
        )
        assert [one.code for one in answer.failures] == [code, code]
    assert stored(core) == []
    assert await index_of(peer, numbered(0)) == 0


async def test_the_last_number_there_is(core: Core) -> None:
    peer = await opened(core)
    last = numbered(SEQUENCE_MAX - 1)
    assert [await index_of(peer, last) for _ in range(2)] == [0, 0]


async def test_numbers_of_nobody_say_nothing(core: Core) -> None:
    peer = await opened(core)
    for index in range(2):
        assert await index_of(peer, numbered(2**64 - 1, producer=b"", epoch=5)) == index


@run_with(quotas=[Quota(who="noise:aa", bytes_max=1500)])
async def test_a_double_is_charged_to_nobody(core: Core) -> None:
    peer = core.peer("noise:aa")
    core.access.add(Grant(who="noise:aa", streams="*", may=frozenset(VERBS)))
    await peer.ask("stream", native.OpenRequest(1, "s", 1))
    for _ in range(20):
        assert await index_of(peer, numbered(0, b"x" * 600)) == 0
    usage = core.context.quotas.usage("noise:aa")
    assert usage is not None
    assert (usage.pending_bytes, usage.kept_bytes) == (0, 600)


async def test_an_opening_whose_stream_is_gone_meanwhile(core: Core) -> None:
    peer = await opened(core)
    store: Any = core.store
    submit, waiting = store.submit, list[Any]()
    store.submit = waiting.append
    peer.send(S, native.encode(native.OpenProducerRequest(5, "m7")))
    await core.settle()
    store.submit = submit
    await peer.ask("stream", native.RemoveRequest(1, "s"))
    for operation in waiting:
        submit(operation)
    await core.settle()
    (answer,) = [decode(wire.payload) for wire in peer.answers if b"removed" in wire.payload]
    assert isinstance(answer, native.Failure)
    assert (answer.request_id, answer.code) == (5, "stream.removed")


async def test_an_opening_is_answered_once(core: Core) -> None:
    """Also where the actor ends before the store has answered."""
    peer = await opened(core)
    for when in ("before", "after"):
        with fail(StreamActor, message=OpenProducer, when=when) as fault:
            await named(peer)
            assert fault.hits == 1
    assert (await named(peer)).next_sequence == 0


def credit(core: Core, who: str = "friend") -> float:
    usage = core.context.quotas.usage(who)
    assert usage is not None
    assert usage.pending_bytes == 0
    return usage.credit_bytes


@pytest.mark.parametrize("epoch", [0, ONCE_EPOCH | 7], ids=["a client's", "once"])
@run_with(quotas=[Quota(who="friend", bytes_max=100, push_bytes_per_second=1_000)])
async def test_what_is_stored_before_is_over_no_quota_and_costs_nothing(
    epoch: int, core: Core
) -> None:
    peer, data = await opened(core), bytes(60)
    assert await index_of(peer, numbered(0, data, epoch=epoch)) == 0
    left = credit(core)
    for one in (peer, core.peer()):
        assert await index_of(one, numbered(0, data, epoch=epoch)) == 0
        assert credit(core) == left
    other = numbered(0 if epoch else 1, data, epoch=epoch + 1 if epoch else 0)
    assert (await failure_of(peer, other)).code == "quota.bytes"
    assert await index_of(peer, numbered(0, data, epoch=epoch)) == 0
    assert len(stored(core)) == 1
    assert core.router.undelivered["over_quota"] == 4


@run_with(quotas=[Quota(who="friend", push_bytes_per_second=1_000)])
async def test_a_rate_counts_what_is_pushed_again_neither(core: Core) -> None:
    peer, data = await opened(core), bytes(600)
    requests = numbered(0, data), numbered(1, data, data)
    assert [await index_of(peer, one) for one in requests] == [0, 1]
    left = credit(core)
    assert left < 0
    assert [await index_of(core.peer(), one) for one in requests] == [0, 1]
    (answer,) = await peer.ask(S, numbered(3, data))
    assert (answer.code, answer.retryable) == ("quota.rate", True)
    # What was refused is stored once there is room, in its turn.
    core.clock.advance(10.0)
    assert await index_of(peer, numbered(3, data)) == 3
    assert await index_of(core.peer(), numbered(3, data)) == 3
    assert credit(core) > left


@run_with(quotas=[Quota(who="friend", bytes_max=100)])
async def test_a_resend_may_follow_while_the_first_is_on_its_way(core: Core) -> None:
    peer, other, data = await opened(core), core.peer(), bytes(60)
    peer.send(S, native.encode(numbered(0, data)))
    assert await other.ask(S, numbered(0, data)) == [native.PositionResponse(7, 0)]
    assert len(stored(core)) == 1
    assert credit(core) == 0


@run_with(quotas=[Quota(who="friend", bytes_max=100)])
async def test_items_of_many_are_looked_for_where_a_quota_does_not_let_them_in(core: Core) -> None:
    peer = await opened(core, "s", "t")
    body = pack_body([bytes(60)])
    items = [
        native.AppendItem(stream_address(name, 0), 1, body, 0, sequence)
        for name, sequence in (("s", 0), ("t", 0), ("t", 1), ("s", 1))
    ]
    (answer,) = await peer.ask(ADDRESS, native.AppendManyRequest(9, items[:1], b"p"))
    assert answer == native.PositionsResponse(9, [0], [])
    (answer,) = await core.peer().ask(ADDRESS, native.AppendManyRequest(9, items, b"p"))
    assert answer.indexes[0] == 0
    assert [(one.request_id, one.code) for one in answer.failures] == [
        (number, "quota.bytes") for number in (1, 2, 3)
    ]
    assert (stored(core), stored(core, "t")) == ([bytes(60)], [])
    assert credit(core) == 0


@run_with(quotas=[Quota(who="friend", bytes_max=100)])
async def test_where_it_cannot_be_looked_for_a_resend_is_told_so(core: Core) -> None:
    peer, store = await opened(core, "s", "t"), cast("Any", core.store)
    assert await index_of(peer, numbered(0, bytes(60))) == 0
    read = store.read

    def failing(operation: Any) -> bool:
        if isinstance(operation, GetRecord):
            operation.error = StoreError("store.failed", "no disk", retryable=True)
            return True
        return bool(read(operation))

    store.read = failing
    (answer,) = await peer.ask(S, numbered(0, bytes(60)))
    assert (answer.code, answer.retryable) == ("store.failed", True)
    item = native.AppendItem(S, 1, pack_body([bytes(60)]), 0, 0)
    (answer,) = await peer.ask(ADDRESS, native.AppendManyRequest(9, [item], b"p"))
    assert [one.code for one in answer.failures] == ["store.failed"]
    store.read = read
    assert await index_of(peer, numbered(0, bytes(60))) == 0
