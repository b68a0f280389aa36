"""Streams of a hub: what a client asks, which answers it takes, and what it asks again."""

import asyncio
from typing import Any

import pytest

from coroutines import run_with
from fake_hub import ONCE, SOON, Answers, FakeHub, refusal, with_hub
from rillnode.codecs.errors import CodecError, ConsumerError, ConsumerStopped
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreateRequest,
    ErrorResponse,
    PullRequest,
    PushConfirm,
    PushRequest,
    Request,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
)
from rillnode.node.client import Client
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.client.hub_stream import HubEntry, HubStream
from rillnode.node.testing.contract.base import until


async def take(stream: HubStream, count: int, client_id: str = "c", **options: Any) -> list[bytes]:
    """Consume so many entries; the next is asked for, so that all of them count as processed."""
    found: list[bytes] = []
    consumer = stream.consumer(client_id, poll_seconds=0.01, **options)

    async def read() -> None:
        async for entry in consumer:
            found.append(entry.data)

    reading = asyncio.get_running_loop().create_task(read())
    while len(found) < count:
        await asyncio.sleep(0.01)
        if reading.done():
            reading.result()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await consumer.aclose()
    return found


async def test_a_stream_is_pushed_to_and_pulled_from(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    assert (stream.name, stream.partitions) == ("s", 1)
    assert [await stream.push(b"%d" % number) for number in range(3)] == [0, 1, 2]
    assert await stream.pull() == [HubEntry(0, at, b"%d" % at) for at in range(3)]
    assert await stream.pull(1, 1) == [HubEntry(0, 1, b"1")]
    assert await stream.pull(3) == []
    ids = [
        request.request_id
        for request in hub.requests
        if isinstance(request, PushRequest | PullRequest)
    ]
    assert len(set(ids)) == len(hub.requests) - 1


async def test_partitions_answer_each_for_itself(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s", partitions=3)
    for partition in range(3):
        await stream.push(b"to %d" % partition, partition=partition)
    assert [hub.log("s", partition) for partition in range(3)] == [[b"to 0"], [b"to 1"], [b"to 2"]]
    assert await stream.pull(partition=2) == [HubEntry(2, 0, b"to 2")]
    assert await refusal(stream.push(b"x", partition=3)) == "stream.partition"
    assert await refusal(stream.pull(partition=-1)) == "stream.partition"


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_hub_makes_a_name_up(hub: FakeHub, client: Client, partitions: int | None) -> None:
    stream = await Hub(client).stream(partitions=partitions)
    assert stream.name == "generated_1"
    again = await Hub(client).stream(stream.name, partitions=partitions)
    assert await again.push(b"x") == 0
    assert await stream.pull() == [HubEntry(0, 0, b"x")]


async def test_what_no_hub_can_be_asked_is_refused_here(hub: FakeHub, client: Client) -> None:
    there = Hub(client)
    for partitions in (0, -1, PARTITIONS_MAX + 1):
        assert await refusal(there.stream("s", partitions=partitions)) == "hub.request"
    assert await refusal(there.stream("\ud800")) == "hub.request"
    assert await refusal(there.set_index("c", "s", -1)) == "hub.request"
    assert await refusal((await there.stream("s")).pull(-1)) == "hub.request"
    assert hub.count(CreateRequest) == 1 == len(hub.requests)
    with pytest.raises(CodecError):
        Hub(client, "1#")


async def test_positions_are_saved_and_asked_for(hub: FakeHub, client: Client) -> None:
    there = Hub(client)
    assert await there.get_index("c", "s") is None
    assert await there.set_index("c", "s", 5) == 5
    assert await there.set_index("c", "s", 3) == 5
    assert await there.get_index("c", "s") == 5
    assert await there.set_index("c", "p", 7, partition=1) == 7
    assert await there.get_index("c", "p", partition=1) == 7
    assert SavePartitionIndexRequest("c", "p", 1, 7) in hub.requests


async def test_a_consumer_goes_on_where_it_stopped(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s", partitions=1)
    await stream.push_many(b"%d" % number for number in range(25))
    assert await take(stream, 25) == [b"%d" % number for number in range(25)]
    assert hub.indexes == {("c", "s"): 25}
    saves = [request.index for request in hub.requests if isinstance(request, SaveIndexRequest)]
    assert saves[:3] == [10, 20, 25]
    await stream.push(b"later")
    assert await take(stream, 1) == [b"later"]


async def test_a_consumer_of_partitions_saves_by_partition(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s", partitions=2)
    await stream.push(b"x", partition=1)
    assert await take(stream, 1, partition=1) == [b"x"]
    assert SavePartitionIndexRequest("c", "s", 1, 1) in hub.requests
    assert not hub.count(SaveIndexRequest)


async def test_an_entry_counts_once_the_next_is_asked_for(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    await stream.push_many([b"0", b"1", b"2"])
    consumer = stream.consumer("c")
    assert [(await anext(consumer)).index for _ in range(2)] == [0, 1]
    await consumer.aclose()
    assert hub.indexes == {("c", "s"): 1}


async def test_a_consumer_of_a_hub_acknowledges_waits_and_stops_as_any_other(
    hub: FakeHub, client: Client
) -> None:
    stream = await Hub(client).stream("s")
    await stream.push_many(b"%d" % number for number in range(25))
    consumer = stream.consumer("c", ack="explicit", poll_seconds=0.01, max_in_flight=15)
    async with consumer:
        first = await consumer.batch(99)
        second = await consumer.batch(99)
        assert [entry.index for entry in (*first, *second)] == list(range(15))
        assert await consumer.batch(1, timeout=0.01) == []
        for entry in (*second, *first[1:], first[1]):
            consumer.ack(entry)
        await consumer.save()
        assert hub.indexes == {}
        consumer.ack(first[0])
        await consumer.save()
        assert hub.indexes == {("c", "s"): 15}
        with pytest.raises(ConsumerError) as caught:
            consumer.ack(HubEntry(0, 20, b"20"))
        assert caught.value.code == "consumer.foreign"
        assert (await consumer.next(timeout=1)).index == 15
        assert consumer.lag is None
        consumer.stop()
        with pytest.raises(ConsumerStopped):
            await consumer.next()
    assert hub.indexes == {("c", "s"): 15}


async def test_a_hub_is_told_positions_from_time_to_time(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    await stream.push_many([b"0", b"1", b"2"])
    async with stream.consumer("c", save_seconds=0.01) as consumer:
        await consumer.next()
        await consumer.next()
        # Neither is it left, nor is there anything to be pulled.
        await until(lambda: hub.indexes == {("c", "s"): 1})


async def test_a_stop_ends_a_wait_for_a_hub_that_does_not_answer(
    hub: FakeHub, client: Client
) -> None:
    stream = await Hub(client).stream("s")
    hub.answers = lambda request: []
    consumer = stream.consumer("c")
    waiting = asyncio.ensure_future(consumer.next())
    await asyncio.sleep(0.01)
    consumer.stop()
    with pytest.raises(ConsumerStopped):
        await waiting
    await consumer.aclose()
    consumer = stream.consumer("c")
    asyncio.get_running_loop().call_later(0.01, consumer.stop)
    async with consumer:
        assert [entry async for entry in consumer] == []


async def test_what_is_in_flight_at_a_hub_that_forgot_comes_again(
    hub: FakeHub, client: Client
) -> None:
    await (await Hub(client).stream("s")).push_many([b"0", b"1"])
    stream = await Hub(client, **SOON).stream("s")
    async with stream.consumer("c", ack="explicit", poll_seconds=0.01) as consumer:
        old = await consumer.batch(2)
        hub.forget()
        await (await Hub(client).stream("s")).push(b"new")
        entry = await consumer.next()
        assert (entry.index, entry.data) == (0, b"new")
        with pytest.raises(ConsumerError):
            consumer.ack(old[1])
        consumer.ack(entry)
    assert hub.indexes == {("c", "s"): 1}


async def test_pushes_share_a_window_and_keep_their_order(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    items = [b"%d" % number for number in range(300)]
    taken: list[int] = []

    def read() -> Any:
        for number, item in enumerate(items):
            taken.append(number - len(hub.logs[next(iter(hub.logs))]))
            yield item

    assert await stream.push_many(read()) == 300
    assert hub.log("s") == items
    assert 1 < max(taken) <= 64


async def test_a_push_that_is_not_stored_ends_the_window(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")

    def refuse(request: Request) -> Answers | None:
        if isinstance(request, PushRequest) and request.data == b"5":
            return [(b"s", PushConfirm(request.request_id, Status.ERROR, 0))]
        return None

    hub.answers = refuse
    pushed = stream.push_many(b"%d" % number for number in range(1_000))
    assert await refusal(pushed) == "hub.not_stored"
    assert len(hub.requests) < 200


async def test_a_push_without_a_confirm_is_sent_again(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client, **SOON).stream("s")
    lost: list[bytes] = []

    def lose(request: Request) -> Answers | None:
        if isinstance(request, PushRequest) and len(lost) < 3:
            lost.append(request.data)
            return []
        return None

    hub.answers = lose
    await asyncio.gather(*(stream.push(b"%d" % number) for number in range(5)))
    assert set(hub.log("s")) == {b"0", b"1", b"2", b"3", b"4"}
    assert len(lost) == 3


async def test_a_hub_that_forgot_gets_its_stream_again_once_for_all_that_wait(
    hub: FakeHub, client: Client
) -> None:
    stream = await Hub(client, answer_seconds=0.3).stream("s", partitions=2)
    await stream.push(b"before")
    hub.forget()
    items = [b"%d" % number for number in range(20)]
    await asyncio.gather(*(stream.push(item) for item in items))
    assert set(hub.log("s")) == set(items)
    # One at the beginning, one after the loss; more only where an answer was late.
    assert 2 <= hub.count(CreatePartitionedRequest) < 20


async def test_a_consumer_begins_anew_where_the_hub_forgot(hub: FakeHub, client: Client) -> None:
    await (await Hub(client).stream("s")).push_many([b"old"] * 5)
    stream = await Hub(client, **SOON).stream("s")
    found: list[bytes] = []

    async def read() -> None:
        async for entry in stream.consumer("c", poll_seconds=0.01):
            found.append(entry.data)

    reading = asyncio.get_running_loop().create_task(read())
    while len(found) < 5:
        await asyncio.sleep(0.01)
    hub.forget()
    await (await Hub(client).stream("s")).push(b"new")
    while b"new" not in found:
        await asyncio.sleep(0.01)
    assert found == [b"old"] * 5 + [b"new"]
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_refused_search_is_not_the_end_of_a_stream(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client, **SOON).stream("s")
    hub.forget()
    hub.answers = lambda request: [(b"stream", ErrorResponse("not now"))]
    assert await refusal(stream.push(b"x")) == "hub.refused"
    hub.answers = lambda request: None
    await stream.push(b"x")
    assert set(hub.log("s")) == {b"x"}


def test_a_consumer_ends_where_its_last_save_is_not_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def talk(hub: FakeHub, client: Client) -> None:
        await (await Hub(client).stream("s")).push_many([b"0", b"1"])
        stream = await Hub(client, answer_seconds=0.5).stream("s")
        consumer = stream.consumer("c")
        assert [(await anext(consumer)).index for _ in range(2)] == [0, 1]
        hub.answers = lambda request: []
        await consumer.aclose()

    with_hub(talk)
    assert "position_not_saved" in [record.msg for record in caplog.records]


@run_with(FakeHub(("stream_service", "stream_index_service")))
async def test_an_older_hub_is_found_by_its_names(hub: FakeHub, client: Client) -> None:
    there = Hub(client, **SOON)
    stream = await there.stream("s")
    await stream.push(b"x")
    assert await there.set_index("c", "s", 1) == 1
    assert await refusal(Hub(client, services="stream", **ONCE).stream("s")) == "hub.timeout"
    named = Hub(client, services="stream_service")
    assert await named.get_index("c", "s") == 1


@run_with(FakeHub(("nothing", "nothing_index")))
async def test_a_hub_that_does_not_answer_is_given_up(hub: FakeHub, client: Client) -> None:
    there = Hub(client, **ONCE)
    assert await refusal(there.stream("s")) == "hub.timeout"
    assert await refusal(there.get_index("c", "s")) == "hub.timeout"
    assert await refusal(there.set_index("c", "s", 1)) == "hub.timeout"


async def test_a_save_that_does_not_arrive_is_told(hub: FakeHub, client: Client) -> None:
    hub.answers = lambda request: [] if isinstance(request, SaveIndexRequest) else None
    there = Hub(client, patience_seconds=0.0)
    assert await refusal(there.set_index("c", "s", 1)) == "hub.not_saved"


async def test_a_lost_link_costs_nothing(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    for number in range(5):
        hub.links[-1].close("lost")
        assert await stream.push(b"%d" % number) == number
    hub.links[-1].close("lost")
    assert await take(stream, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert hub.indexes == {("c", "s"): 5}
    for index in (6, 7):
        hub.links[-1].close("lost")
        await asyncio.sleep(0.01 * (index % 2))  # it is known by now, or it is not
        assert await Hub(client).set_index("c", "s", index) == index


async def test_a_closed_client_ends_what_waits() -> None:
    hub = FakeHub()
    client = await hub.client()
    stream = await Hub(client).stream("s")
    await client.close()
    hub_again = Hub(client)
    for asked in (stream.push(b"x"), hub_again.stream("s"), hub_again.set_index("c", "s", 1)):
        assert await refusal(asked) == "client.closed"
