"""What a client numbers, and sends again: over another link, of another node, by another object."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from far_end import FarEnd, with_session
from rillnode.codecs import native
from rillnode.codecs.entries import HEADER_BYTES, EntryKind as Kind, encode_block, items_of
from rillnode.codecs.errors import (
    ProducerOutOfOrder,
    QuotaError,
    RequestError,
    TransportError,
)
from rillnode.codecs.limits import APPENDS_UNDER_WAY_MAX, SEQUENCE_MAX
from rillnode.node.client.appends import TOGETHER_MIN
from rillnode.node.client.producer import NamedProducer, Producer
from rillnode.node.client.session import PRODUCER_BYTES, Session
from rillnode.node.client.stream import Stream
from rillnode.node.testing.contract.base import until

ADDRESS = b"ST_S_0_s"


def data_of(request: native.AppendRequest | native.AppendItem) -> list[bytes]:
    body = request.body
    value = encode_block(count=request.count, kind=Kind.BYTES, received_at=0, position=0, body=body)
    assert len(value) == HEADER_BYTES + len(body)
    return items_of(value)


async def appends(far: FarEnd, count: int) -> list[native.AppendRequest]:
    """The requests that have come, which are forgotten then."""
    await until(lambda: len(far.requests) >= count)
    await asyncio.sleep(0.01)
    found, far.requests = far.requests, []
    assert len(found) == count
    assert all(isinstance(one, native.AppendRequest) for one in found)
    return [one for one in found if isinstance(one, native.AppendRequest)]


async def turn() -> None:
    """Let what was pushed go out."""
    for _ in range(5):
        await asyncio.sleep(0)


def named(session: Session, epoch: int = 3, following: int = 5) -> NamedProducer:
    last = 40 if following else None
    opened = native.ProducerResponse(1, epoch, following, last)
    return NamedProducer(session, ADDRESS, 0, "m7", opened)


def test_entries_of_each_partition_are_numbered() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        one, other = Producer(session, ADDRESS), Producer(session, b"ST_S_1_s")
        futures = [one.push(b"0"), one.push(b"1"), other.push(b"0")]
        first, second = await appends(far, 2)
        assert len(first.producer) == PRODUCER_BYTES
        assert first.producer == second.producer
        assert [(r.sequence, r.epoch, r.count) for r in (first, second)] == [(0, 0, 2), (0, 0, 1)]
        futures += [one.push(b"2")]
        all_of_them = asyncio.ensure_future(one.push_all([b"3", b"4"]))
        third, fourth = await appends(far, 2)
        assert [(r.sequence, data_of(r)) for r in (third, fourth)] == [
            (2, [b"2"]),
            (3, [b"3", b"4"]),
        ]
        far.store(*(r.request_id for r in (first, second, third, fourth)))
        await asyncio.gather(*futures, all_of_them)

    with_session(test)


def test_a_lost_link_changes_no_number() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        many = [Producer(session, b"ST_S_0_%d" % number) for number in range(TOGETHER_MIN)]
        alone = Producer(session, ADDRESS)
        futures = [alone.push(b"0")]
        await turn()
        futures += [producer.push(b"1") for producer in (*many, *many)]
        await turn()
        futures += [alone.push(b"2")]
        await until(lambda: len(far.requests) == 3)
        before, far.requests = far.requests, []
        for _ in range(2):
            far.links[-1].close("lost")
            await until(lambda: len(far.requests) == 3)
            assert far.requests == before
            far.requests = []
        (together,) = [one for one in before if isinstance(one, native.AppendManyRequest)]
        assert [item.sequence for item in together.items] == [0] * TOGETHER_MIN
        assert [item.count for item in together.items] == [2] * TOGETHER_MIN
        assert len(together.producer) == PRODUCER_BYTES
        for request in before:
            if isinstance(request, native.AppendManyRequest):
                zeros = [0] * len(request.items)
                far.answer(native.PositionsResponse(request.request_id, zeros, []))
            else:
                far.store(request.request_id)
        await asyncio.gather(*futures)

    with_session(test)


def test_what_its_node_does_not_serve_keeps_its_numbers() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        many = [Producer(session, b"ST_S_0_%d" % number) for number in range(TOGETHER_MIN)]
        futures = [producer.push(b"0") for producer in many]
        await until(lambda: len(far.requests) == 1)
        (together,) = far.requests
        far.requests = []
        assert isinstance(together, native.AppendManyRequest)
        nodes = [native.NodeAddress("b:4100", "cc")]
        refused = native.Failure(0, "store.elsewhere", "not here", False, 0, nodes)
        zeros = [0] * TOGETHER_MIN
        far.answer(native.PositionsResponse(together.request_id, zeros, [refused]))
        futures.append(many[0].push(b"1"))
        found = await appends(far, 2)
        assert [(one.sequence, data_of(one)) for one in found] == [(0, [b"0"]), (1, [b"1"])]
        assert {one.producer for one in found} == {together.producer}
        far.store(*(one.request_id for one in found))
        await asyncio.gather(*futures)

    with_session(test)


def test_objects_of_one_partition_share_its_numbers_and_later_ones_go_on() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        seen: list[int] = []
        for round_ in range(3):
            one, other = Producer(session, ADDRESS), Producer(session, ADDRESS)
            futures = [one.push(b"x"), other.push(b"x"), Producer(session, b"y").push(b"x")]
            await turn()
            found = await appends(far, 3)
            seen += sorted(request.sequence for request in found[:2])
            far.store(*(request.request_id for request in found))
            await asyncio.gather(*futures)
            del one, other, futures
            gc.collect()
            assert len(seen) == 2 * (round_ + 1)
        assert seen == sorted(set(seen))

    with_session(test)


def test_blocks_under_way_are_bounded_and_what_comes_meanwhile_goes_together() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, ADDRESS)
        futures: list[asyncio.Future[int]] = []
        count = 2 * APPENDS_UNDER_WAY_MAX
        for number in range(count):
            futures.append(producer.push(b"%d" % number))
            await turn()
        found = await appends(far, APPENDS_UNDER_WAY_MAX)
        half = APPENDS_UNDER_WAY_MAX // 2
        far.store(*(one.request_id for one in found[: half - 1]))
        await asyncio.sleep(0.01)
        assert not far.requests
        far.store(found[half - 1].request_id)
        (rest,) = await appends(far, 1)
        assert (rest.sequence, rest.count) == (APPENDS_UNDER_WAY_MAX, APPENDS_UNDER_WAY_MAX)
        assert data_of(rest) == [b"%d" % number for number in range(count // 2, count)]
        far.store(rest.request_id, *(one.request_id for one in found[half:]))
        await asyncio.gather(*futures)

    with_session(test)


@pytest.mark.parametrize("in_one_turn", [False, True])
def test_much_at_once_goes_out_as_there_is_room(
    in_one_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there is room for, pushed in one turn, by `push_all`, or by both."""
    most_in_block = 64
    monkeypatch.setattr("rillnode.codecs.entries.BLOCK_ENTRIES_MAX", most_in_block)

    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, ADDRESS)
        count = (APPENDS_UNDER_WAY_MAX + 20) * most_in_block + 5
        waiting: list[asyncio.Future[int]] = []
        if in_one_turn:
            waiting += [producer.push(b"") for _ in range(count)]
        waiting.append(asyncio.ensure_future(producer.push_all(b"" for _ in range(count))))
        stored = most = 0
        while stored < count * (1 + in_one_turn):
            await until(lambda: bool(far.requests))
            await asyncio.sleep(0.002)
            most = max(most, len(far.requests))
            request, *far.requests = far.requests
            assert isinstance(request, native.AppendRequest)
            assert request.sequence == stored
            stored += request.count
            far.answer(native.PositionResponse(request.request_id, request.sequence))
        assert most == APPENDS_UNDER_WAY_MAX
        results = await asyncio.gather(*waiting)
        if in_one_turn:
            assert sorted(results[:-1]) == results[:-1]

    with_session(test)


def test_what_waits_for_room_is_waited_for_when_the_session_closes() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, ADDRESS)
        futures: list[asyncio.Future[int]] = []
        for _ in range(APPENDS_UNDER_WAY_MAX + 5):
            futures.append(producer.push(b"x"))
            await turn()
        closing = asyncio.ensure_future(session.close())
        far.store(*(one.request_id for one in await appends(far, APPENDS_UNDER_WAY_MAX)))
        (rest,) = await appends(far, 1)
        assert rest.count == 5
        assert not closing.done()
        far.store(rest.request_id)
        await closing
        assert all(future.result() for future in futures)

    with_session(test)


def test_what_waits_for_room_fails_when_the_session_ends() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, ADDRESS)
        futures: list[asyncio.Future[int]] = []
        for _ in range(APPENDS_UNDER_WAY_MAX + 5):
            futures.append(producer.push(b"x"))
            await turn()
        futures.append(asyncio.ensure_future(producer.push_all([b"x"])))
        await turn()
        await session.close(timeout_seconds=0.0)
        for future in futures:
            with pytest.raises(TransportError):
                await future

    with_session(test)


# By name -------------------------------------------------------------------------------------


def test_a_named_producer_goes_on_where_it_stopped() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = named(session)
        assert (producer.last_sequence, producer.last_index) == (4, 40)
        futures = [producer.push_nowait(b"5"), producer.push_nowait(b"6")]
        (request,) = await appends(far, 1)
        assert (request.producer, request.epoch, request.sequence) == (b"m7", 3, 5)
        assert data_of(request) == [b"5", b"6"]
        assert producer.last_sequence == 4
        far.answer(native.PositionResponse(request.request_id, 50))
        assert await asyncio.gather(*futures) == [50, 51]
        assert (producer.last_sequence, producer.last_index) == (6, 51)

    with_session(test)


def test_a_new_name_begins_at_0() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = named(session, following=0)
        assert (producer.last_sequence, producer.last_index) == (None, None)
        pushing = producer.push_nowait(b"x")
        (request,) = await appends(far, 1)
        assert request.sequence == 0
        far.store(request.request_id)
        await pushing
        assert producer.last_sequence == 0

    with_session(test)


def test_own_numbers_may_leave_gaps_and_come_again() -> None:
    """What comes again is alone in its block: the others are stored whatever becomes of it."""

    async def test(session: Session, far: FarEnd) -> None:
        producer = named(session)
        pushes: list[tuple[bytes, int | None]] = [
            (b"5", None), (b"9", 9), (b"10", None), (b"10 again", 10), (b"11", None),
            (b"3", 3), (b"4", 4), (b"12", None), (b"13", 13),
        ]  # fmt: skip
        futures = [producer.push_nowait(data, sequence=number) for data, number in pushes]
        found = await appends(far, 7)
        assert [(one.sequence, data_of(one)) for one in found] == [
            (5, [b"5"]),
            (9, [b"9", b"10"]),
            (10, [b"10 again"]),
            (11, [b"11"]),
            (3, [b"3"]),
            (4, [b"4"]),
            (12, [b"12", b"13"]),
        ]
        stale = native.Failure(found[4].request_id, "producer.stale", "old", index=39)
        far.answer(stale)
        unknown = native.Failure(found[5].request_id, "producer.stale", "old")
        far.answer(unknown)
        far.store(*(one.request_id for one in found if one.sequence > 4))
        results = await asyncio.gather(*futures, return_exceptions=True)
        told = {n: one for n, one in enumerate(results) if isinstance(one, BaseException)}
        assert sorted(told) == [5, 6]
        assert isinstance(told[5], RequestError)
        assert isinstance(told[6], RequestError)
        assert (told[5].code, told[5].context) == ("producer.stale", {"index": 39})
        assert told[6].context == {}
        assert producer.last_sequence == 13

    with_session(test)


def test_what_is_under_way_is_stored_only_behind_what_was_pushed_before() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = named(session)
        futures: list[asyncio.Future[int]] = []

        async def pushed(*numbers: int) -> native.AppendRequest:
            before = len(far.requests)
            futures.extend(producer.push_nowait(b"x", sequence=number) for number in numbers)
            await until(lambda: len(far.requests) > before)
            request = far.requests[-1]
            assert isinstance(request, native.AppendRequest)
            return request

        requests = [await pushed(5, 6), await pushed(9), await pushed(9), await pushed(10)]
        assert [(one.sequence, one.after) for one in requests] == [(5, 5), (9, 7), (9, 9), (10, 10)]
        far.answer(native.Failure(requests[0].request_id, "quota.rate", "too much"))
        for request in requests[1:]:
            far.answer(native.Failure(request.request_id, "producer.order", "after what failed"))
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(one) for one in results] == [QuotaError] * 2 + [ProducerOutOfOrder] * 3
        # It knows what has failed now: whether it gives that up is its choice.
        requests = [await pushed(9), await pushed(12)]
        assert [(one.sequence, one.after) for one in requests] == [(9, 5), (12, 10)]
        far.store(*(one.request_id for one in requests))
        await asyncio.gather(*futures[5:])
        assert producer.last_sequence == 12
        assert (await pushed(20)).after == 13

    with_session(test)


@pytest.mark.parametrize(
    ("number", "error"),
    [(-1, RequestError), (SEQUENCE_MAX, RequestError), ("5", TypeError), (1.0, TypeError)],
)
def test_what_is_no_number_is_refused_at_once(number: int, error: type[Exception]) -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = named(session)
        with pytest.raises(error, match=r"(number|sequence) is"):
            producer.push_nowait(b"x", sequence=number)
        with pytest.raises(TypeError):
            producer.push_nowait("text")  # type: ignore[arg-type]
        pushing = producer.push_nowait(b"x")
        (request,) = await appends(far, 1)
        assert request.sequence == 5
        far.store(request.request_id)
        await pushing

    with_session(test)


def test_a_named_producer_never_goes_with_others() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        many = [Producer(session, b"ST_S_0_%d" % number) for number in range(TOGETHER_MIN)]
        producer = named(session)
        futures = [one.push(b"x") for one in many]
        futures.append(producer.push_nowait(b"y"))
        await until(lambda: len(far.requests) == 2)
        kinds = {type(request) for request in far.requests}
        assert kinds == {native.AppendManyRequest, native.AppendRequest}
        for request in far.requests:
            if isinstance(request, native.AppendManyRequest):
                zeros = [0] * len(request.items)
                far.answer(native.PositionsResponse(request.request_id, zeros, []))
            else:
                far.store(request.request_id)
        await asyncio.gather(*futures)

    with_session(test)


def test_opening_a_producer_asks_its_partition() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        partitions = [native.PartitionInfo(n, b"ST_S_%d_s" % n, 0, 0, 0) for n in range(2)]
        info = native.StreamInfo("s", 0, "", None, None, None, partitions)
        stream = Stream(session, info)
        opening = asyncio.ensure_future(stream.producer("m7", partition=1))
        await until(lambda: bool(far.requests))
        (request,) = far.requests
        assert request == native.OpenProducerRequest(request.request_id, "m7")
        # Over another link it is asked again, and may be opened twice: the last answer counts.
        far.links[-1].close("lost")
        await until(lambda: len(far.requests) == 2)
        far.answer(native.ProducerResponse(request.request_id, 4, 8, None))
        producer = await opening
        assert (producer.name, producer.partition) == ("m7", 1)
        assert (producer.last_sequence, producer.last_index) == (7, None)
        with pytest.raises(RequestError) as caught:
            await stream.producer("m7", partition=2)
        assert caught.value.code == "stream.partition"
        answers: list[Callable[[int], native.Response]] = [
            lambda n: native.Failure(n, "producer.name", "choose another"),
            lambda n: native.DoneResponse(n),
        ]
        for answer, code in zip(answers, ("producer.name", "client.answer"), strict=True):
            far.requests = []
            opening = asyncio.ensure_future(stream.producer("x"))
            await until(lambda: bool(far.requests))
            far.answer(answer(far.requests[0].request_id))
            with pytest.raises(RequestError) as caught:
                await opening
            assert caught.value.code == code

    with_session(test)
