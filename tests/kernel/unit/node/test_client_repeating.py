"""A client asks again for what its node has not handled, in order; all else is told at once."""

import asyncio

import pytest

from far_end import FarEnd, with_session
from rillnode.codecs import native
from rillnode.codecs.errors import ProducerOutOfOrder, QuotaError, RequestError
from rillnode.node.client.producer import NamedProducer, Producer
from rillnode.node.client.repeating import READ_FAILURES_MAX
from rillnode.node.client.session import Session
from rillnode.node.testing.contract.base import until

STREAM = b"ST_S_0_s"


async def pause() -> None:
    """Long enough for all that is under way, and for what was refused to be sent again."""
    await asyncio.sleep(0.02)


@pytest.mark.parametrize("code", ["actor.busy", "actor.stopped"])
def test_what_was_not_handled_is_asked_again(code: str) -> None:
    async def test(session: Session, far: FarEnd) -> None:
        for request in (native.StatusRequest(1), native.TrimRequest(2, "s", 0, 9)):
            asking = asyncio.ensure_future(session.request(b"node", request, native.DoneResponse))
            for _ in range(10):
                await until(lambda: far.requests)
                assert far.requests == [request]
                far.requests.clear()
                far.refuse(request.request_id, code=code)
            await until(lambda: far.ids())
            far.answer(native.DoneResponse(request.request_id))
            assert await asking == native.DoneResponse(request.request_id)
        assert session.unasked == 0

    with_session(test)


def test_a_node_is_asked_again_when_it_has_said_it_may_be() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        loop = asyncio.get_running_loop()
        asking = asyncio.ensure_future(
            session.request(b"node", native.StatusRequest(1), native.DoneResponse)
        )
        await until(lambda: far.ids())
        far.refuse(1, milliseconds=300)
        refused = loop.time()
        await until(lambda: far.ids())
        assert loop.time() - refused >= 0.3
        far.answer(native.DoneResponse(1))
        await asking

    with_session(test)


def test_a_read_is_repeated_a_few_times_when_its_actor_fails_and_nothing_else_is() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        reading = asyncio.ensure_future(
            session.request(STREAM, native.ReadRequest(1, 0, 1, 1_000), native.DoneResponse)
        )
        for _ in range(1 + READ_FAILURES_MAX):
            await until(lambda: far.ids())
            far.refuse(1, code="actor.failed")
        with pytest.raises(RequestError, match="why not") as caught:
            await reading
        assert caught.value.code == "actor.failed"
        for request in (
            native.AppendRequest(2, 1, b""),
            native.TrimRequest(3, "s", 0, 9),
            native.RemoveRequest(4, "s"),
        ):
            asking = asyncio.ensure_future(session.request(STREAM, request, native.DoneResponse))
            await until(lambda: far.ids())
            far.refuse(request.request_id, code="actor.failed")
            with pytest.raises(RequestError):
                await asking
        await pause()
        assert far.requests == []

    with_session(test)


def test_other_refusals_are_told_at_once_and_keep_what_they_say() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        reading = asyncio.ensure_future(
            session.request(STREAM, native.ReadRequest(1, 0, 1, 1_000), native.DoneResponse)
        )
        await until(lambda: far.ids())
        far.refuse(1, code="store.full", milliseconds=1_500)
        with pytest.raises(RequestError) as caught:
            await reading
        error = caught.value
        assert (error.code, error.retryable, error.retry_seconds) == ("store.full", True, 1.5)

    with_session(test)


def test_who_waits_no_longer_learns_why_it_was_refused() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        asking = session.request(b"node", native.StatusRequest(1), native.DoneResponse, seconds=0.1)
        task = asyncio.ensure_future(asking)
        await until(lambda: far.ids())
        far.refuse(1, milliseconds=200)
        with pytest.raises(RequestError) as caught:
            await task
        assert caught.value.code == "actor.busy"
        await asyncio.sleep(0.3)
        assert far.requests == []

    with_session(test)


# Appends keep their order ------------------------------------------------------------------------


async def push(producer: Producer, *items: bytes) -> list[asyncio.Future[int]]:
    """Push each in a block of its own."""
    futures: list[asyncio.Future[int]] = []
    for item in items:
        futures.append(producer.push(item))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return futures


def test_appends_that_were_refused_are_sent_again_in_order_and_later_ones_wait() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, STREAM)
        futures = await push(producer, b"a", b"b", b"c")
        await until(lambda: len(far.requests) == 3)
        assert far.ids() == [1, 2, 3]
        far.refuse(1)
        await pause()
        futures += await push(producer, b"d")
        await pause()
        assert far.requests == []  # 2 and 3 may still be stored
        far.refuse(3)
        far.refuse(2)
        await until(lambda: len(far.requests) == 4)
        assert far.ids() == [1, 2, 3, 4]
        futures += await push(producer, b"e")
        await until(lambda: far.requests)
        far.store(1, 2, 3, 4, 5)
        assert await asyncio.gather(*futures) == [101, 102, 103, 104, 105]

    with_session(test)


def test_appends_to_other_streams_and_other_requests_do_not_wait() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        first = await push(Producer(session, STREAM), b"a")
        await until(lambda: far.requests)
        far.refuse(1, milliseconds=60_000)
        await pause()
        far.ids()
        other = await push(Producer(session, b"ST_S_1_s"), b"b")
        reading = asyncio.ensure_future(
            session.request(
                STREAM, native.ReadRequest(session.next_id(), 0, 1, 1), native.DoneResponse
            )
        )
        await until(lambda: len(far.requests) == 2)
        assert far.ids() == [2, 3]
        far.store(2)
        far.answer(native.DoneResponse(3))
        assert await other[0] == 102
        await reading
        assert not first[0].done()
        first[0].cancel()

    with_session(test)


def test_an_append_that_cannot_take_its_place_any_more_fails() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, STREAM)
        futures = await push(producer, b"a", b"b", b"c", b"d")
        await until(lambda: len(far.requests) == 4)
        far.ids()
        far.refuse(1, 2)
        far.store(3)
        far.refuse(4)
        await until(lambda: far.requests)
        assert far.ids() == [4]
        far.store(4)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert results[2:] == [103, 104]
        for error in results[:2]:
            assert isinstance(error, RequestError)
            assert (error.code, error.retryable) == ("actor.busy", True)
        # The stream is as before: nothing waits there.
        more = await push(producer, b"e")
        await until(lambda: far.requests)
        far.store(5)
        assert await more[0] == 105

    with_session(test)


@pytest.mark.parametrize("code", ["actor.busy", "quota.bytes"])
def test_what_a_name_has_behind_a_refused_append_is_sent_again_with_it(code: str) -> None:
    async def test(session: Session, far: FarEnd) -> None:
        opened = native.ProducerResponse(1, 3, 0, None)
        producer = NamedProducer(session, STREAM, 0, "m7", opened)
        futures = [producer.push_nowait(b"x", sequence=number) for number in (0, 2, 4)]
        await until(lambda: len(far.requests) == 3)
        ids = far.ids()
        far.refuse(ids[0], code=code)
        for request_id in ids[1:]:
            far.refuse(request_id, code="producer.order")
        if code == "actor.busy":
            await until(lambda: len(far.requests) == 3)
            assert far.ids() == ids
            far.store(*ids)
            assert await asyncio.gather(*futures) == [100 + number for number in ids]
        else:
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in results] == [QuotaError, *[ProducerOutOfOrder] * 2]

    with_session(test)


def test_an_append_that_is_stored_before_the_refused_one_changes_nothing() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        futures = await push(Producer(session, STREAM), b"a", b"b")
        await until(lambda: len(far.requests) == 2)
        far.ids()
        far.refuse(2)
        await pause()
        assert far.requests == []
        far.store(1)
        await until(lambda: far.requests)
        assert far.ids() == [2]
        far.store(2)
        assert await asyncio.gather(*futures) == [101, 102]

    with_session(test)


def test_a_new_link_gets_all_at_once_in_order() -> None:
    async def test(session: Session, far: FarEnd) -> None:
        producer = Producer(session, STREAM)
        futures = await push(producer, b"a")
        asking = asyncio.ensure_future(
            session.request(b"node", native.StatusRequest(session.next_id()), native.DoneResponse)
        )
        await until(lambda: len(far.requests) == 2)
        far.refuse(1, 2, milliseconds=50)
        await pause()
        futures += await push(producer, b"b")
        far.ids()
        far.links[0].close("lost")
        await until(lambda: len(far.requests) == 3)
        assert far.ids() == [1, 2, 3]
        await asyncio.sleep(0.1)
        assert far.requests == []  # what was to be sent again has been
        far.store(1, 3)
        far.answer(native.DoneResponse(2))
        assert await asyncio.gather(*futures) == [101, 103]
        await asking

    with_session(test)
