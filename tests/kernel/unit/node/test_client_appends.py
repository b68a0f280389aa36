"""Tests that appends of one turn to many partitions go together, each in its order."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from coroutines import run_with
from far_end import FarEnd
from rillnode.codecs import native
from rillnode.codecs.entries import NewEntry, pack_body
from rillnode.codecs.errors import QuotaError, RequestError, TransportError
from rillnode.codecs.limits import APPENDS_MAX, LINK_BUFFER_BYTES_MAX
from rillnode.node.client.appends import (
    TOGETHER_BYTES,
    TOGETHER_MIN,
    Appends,
    Block,
    Partition,
)
from rillnode.node.client.producer import Producer, push_keyed
from rillnode.node.client.repeating import OnResponse
from rillnode.node.client.session import Session
from rillnode.node.testing.contract.base import until


def producers(session: Session, count: int) -> list[Producer]:
    return [Producer(session, b"ST_S_0_s%d" % number) for number in range(count)]


def push(producers: Sequence[Producer], data: bytes = b"x") -> list["asyncio.Future[int]"]:
    return [producer.push(data) for producer in producers]


async def requests(far: FarEnd, count: int = 1) -> list[native.Request]:
    await until(lambda: len(far.requests) >= count)
    found, far.requests = far.requests, []
    return found


async def test_pushes_of_one_turn_make_one_request(session: Session, far: FarEnd) -> None:
    many = producers(session, TOGETHER_MIN)
    futures = [*push(many, b"1"), *push(many[:1], b"22")]
    (request,) = await requests(far)
    assert isinstance(request, native.AppendManyRequest)
    assert request.items[0] == native.AppendItem(b"ST_S_0_s0", 2, pack_body([b"1", b"22"]))
    assert [item.address for item in request.items[1:]] == [
        b"ST_S_0_s%d" % number for number in range(1, TOGETHER_MIN)
    ]
    refused = native.Failure(2, "quota.bytes", "too much")
    indexes = list(range(10, 10 + TOGETHER_MIN))
    far.answer(native.PositionsResponse(request.request_id, indexes, [refused]))
    with pytest.raises(RequestError, match="too much"):
        await futures.pop(2)
    assert await asyncio.gather(*futures) == [10, 11, *range(13, 10 + TOGETHER_MIN), 11]


async def test_what_another_node_serves_goes_there_alone_and_in_its_order(
    session: Session, far: FarEnd
) -> None:
    first, *_ = many = producers(session, TOGETHER_MIN)
    futures = [push(many, b"1")[0]]
    (one,) = await requests(far)
    futures += [push(many, b"2")[0]]
    (two,) = await requests(far)
    nodes = [native.NodeAddress("b:4100", "cc")]
    refused = native.Failure(0, "store.elsewhere", "not here", False, 0, nodes)
    indexes = list(range(TOGETHER_MIN))
    # The answer to what came first may come last, and more may come meanwhile.
    far.answer(native.PositionsResponse(two.request_id, indexes, [refused]))
    await asyncio.sleep(0.01)
    futures.append(first.push(b"3"))
    await asyncio.sleep(0.01)
    assert not far.requests
    far.answer(native.PositionsResponse(one.request_id, indexes, [refused]))
    found = await requests(far, 3)
    futures.append(first.push(b"4"))
    found += await requests(far)
    bodies = [pack_body([b"%d" % number]) for number in range(1, 5)]
    assert [item.body for item in found if isinstance(item, native.AppendRequest)] == bodies
    far.store(*(item.request_id for item in found))
    assert await asyncio.gather(*futures) == [100 + item.request_id for item in found]


async def test_few_partitions_are_appended_to_one_by_one(session: Session, far: FarEnd) -> None:
    push(producers(session, TOGETHER_MIN - 1))
    found = await requests(far, TOGETHER_MIN - 1)
    assert {type(request) for request in found} == {native.AppendRequest}


async def test_a_way_is_changed_only_when_nothing_is_under_way_on_it(
    session: Session, far: FarEnd
) -> None:
    many = producers(session, TOGETHER_MIN + 1)
    futures = push(many[:1])
    (alone,) = await requests(far)
    futures += push(many)
    with_others, still_alone = sorted(
        await requests(far, 2), key=lambda one: isinstance(one, native.AppendRequest)
    )
    assert isinstance(with_others, native.AppendManyRequest)
    assert b"ST_S_0_s0" not in {item.address for item in with_others.items}
    futures += push(many[1:2])
    (together,) = await requests(far)
    assert isinstance(together, native.AppendManyRequest)
    far.store(alone.request_id, still_alone.request_id)
    for request in (with_others, together):
        zeros = [0] * len(request.items)
        far.answer(native.PositionsResponse(request.request_id, zeros, []))
    await asyncio.gather(*futures)
    push(many)
    (all_of_them,) = await requests(far)
    assert isinstance(all_of_them, native.AppendManyRequest)
    assert len(all_of_them.items) == TOGETHER_MIN + 1


class Recorded:
    """A session that notes what it is asked to do."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.asks: list[Callable[[], None]] = []

    def next_id(self) -> int:
        return len(self.did)

    def ask(self, address: bytes, request: native.Request, on_response: OnResponse, /) -> None:
        assert isinstance(request, native.AppendManyRequest)
        self.did.append(f"ask {len(request.items)}")

    def gather(self, ask: Callable[[], None], /) -> None:
        self.asks.append(ask)

    def write(self) -> None:
        self.did.append("write")


def test_what_is_packed_goes_out_while_the_rest_is_packed() -> None:
    recorded = Recorded()
    appends = Appends(recorded, b"id")
    partitions = [appends.partition(b"%d" % number) for number in range(APPENDS_MAX + 1)]

    def pack(to: Partition) -> list[Block]:
        if to is partitions[-1]:
            recorded.did.append("pack the last")
        return [Block.to(to, 1, pack_body([b"x"]), lambda _: None, 0)]

    for to in partitions:
        appends.gather(partial(pack, to))
    (flush,) = recorded.asks
    flush()
    assert recorded.did == [f"ask {APPENDS_MAX}", "write", "pack the last", "ask 1", "write"]


def test_partitions_that_are_not_used_any_more_are_forgotten() -> None:
    appends = Appends(Recorded(), b"id")
    kept = [appends.partition(b"kept %d" % number) for number in range(3)]
    for number in range(5_000):
        appends.partition(b"%d" % number)
    assert [appends.partition(b"kept %d" % number) for number in range(3)] == kept
    assert len(appends._partitions) < 2_000  # pyright: ignore[reportPrivateUsage]


async def test_requests_are_cut_by_number_and_size(session: Session, far: FarEnd) -> None:
    push(producers(session, 2 * APPENDS_MAX + 1))
    sizes = [len(request.items) for request in await requests(far, 3)]  # type: ignore[union-attr]
    assert sizes == [APPENDS_MAX, APPENDS_MAX, 1]
    push(producers(session, TOGETHER_MIN), b"x" * (TOGETHER_BYTES // 2))
    sizes = [len(request.items) for request in await requests(far, 2)]  # type: ignore[union-attr]
    assert sizes == [2] * (TOGETHER_MIN // 2)


async def test_a_refused_request_is_sent_again_before_those_behind_it(
    session: Session, far: FarEnd
) -> None:
    many = producers(session, TOGETHER_MIN)
    futures = push(many)
    (first,) = await requests(far)
    far.refuse(first.request_id, milliseconds=20)
    await asyncio.sleep(0.005)
    futures += push(many)
    await until(lambda: len(far.requests) == 2)
    assert [one.request_id for one in far.requests] == [first.request_id, first.request_id + 1]
    for request in await requests(far):
        zeros = [0] * TOGETHER_MIN
        far.answer(native.PositionsResponse(request.request_id, zeros, []))
    await asyncio.gather(*futures)


@pytest.mark.parametrize("indexes", [[], [1] * (TOGETHER_MIN - 1), None])
async def test_an_answer_of_another_kind_stores_nothing(
    session: Session, far: FarEnd, indexes: list[int] | None
) -> None:
    futures = push(producers(session, TOGETHER_MIN))
    (request,) = await requests(far)
    if indexes is None:
        far.store(request.request_id)
    else:
        far.answer(native.PositionsResponse(request.request_id, indexes, []))
    for future in futures:
        with pytest.raises(TransportError, match="another kind"):
            await future


async def test_all_fail_when_the_session_ends(session: Session, far: FarEnd) -> None:
    many = producers(session, TOGETHER_MIN)
    futures = push(many)
    await requests(far)
    await session.close(timeout_seconds=0.0)
    for future in (*futures, *push(many)):
        with pytest.raises(TransportError):
            await future


@run_with(reconnect=False)
async def test_more_than_a_link_may_hold_goes_out_as_it_is_taken(
    session: Session, far: FarEnd
) -> None:
    items = [b"x" * 60_000] * 64
    pushing = [asyncio.create_task(one.push_all(items)) for one in producers(session, 20)]
    assert len(pushing) * sum(map(len, items)) > LINK_BUFFER_BYTES_MAX
    while not all(task.done() for task in pushing):
        await asyncio.sleep(0)
        taken, far.requests = far.requests, []
        for request in taken:
            if isinstance(request, native.AppendManyRequest):
                zeros = [0] * len(request.items)
                far.answer(native.PositionsResponse(request.request_id, zeros, []))
            else:
                far.store(request.request_id)
    await asyncio.gather(*pushing)


@pytest.mark.parametrize("keyed", [False, True])
async def test_of_many_blocks_that_fail_the_first_is_told_and_nothing_is_logged(
    session: Session, far: FarEnd, keyed: bool
) -> None:
    logged: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    data, producer = b"x" * 600_000, Producer(session, b"ST_S_0_s")
    entries = [(0, NewEntry(data, b"key", b""))] * 8
    pushing = asyncio.create_task(
        push_keyed(lambda _: producer, entries) if keyed else producer.push_all([data] * 8)
    )
    await until(lambda: len(far.requests) == len(entries))
    for request in far.requests:
        far.answer(native.Failure(request.request_id, "quota.bytes", "too much"))
    with pytest.raises(QuotaError):
        await pushing
    del pushing
    for _ in range(2 * len(entries)):  # the other answers come
        await asyncio.sleep(0)
    gc.collect()
    assert logged == []
