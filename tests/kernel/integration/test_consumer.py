"""Consumers and pushers on a real node, over cut links, and through kills of either side."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from forked import PIPE, Forked
from nodes import CLIENT, connect_to, node_config
from rillnode import (
    BlockingClient,
    BlockingConsumer,
    ConsumerError,
    ConsumerStopped,
    Entry,
    connect,
)
from rillnode.codecs.errors import RequestError, TransportError
from rillnode.node.client import Client, Consumer, connect_blocking
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.proxy import Proxy

SECONDS = 60.0
KILLS = 4
HERE = Path(__file__).parent

CHILD = """
import asyncio, os, sys
from rillnode import connect
from nodes import CLIENT

async def main():
    address, identity, log = sys.argv[1:]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    client = await connect(f"noise://{address}", identity=CLIENT, node_identity=identity)
    stream = await client.stream("s")
    async with client, stream.consumer("c", ack="explicit", save_seconds=0.02) as consumer:
        async def work():
            async for entry in consumer:
                await asyncio.sleep(0.0005 * (entry.index % 4))
                os.write(file, b"%d %d\\n" % (entry.partition, entry.index))
                consumer.ack(entry)
        await asyncio.gather(*(work() for _ in range(4)))

asyncio.run(main())
"""


@asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[tuple[Node, Client]]:
    async with (
        asyncio.timeout(SECONDS),
        Node(node_config(directory)) as node,
        await connect_to(node) as client,
    ):
        yield node, client


async def test_workers_side_by_side_over_links_that_are_cut(tmp_path: Path) -> None:
    """Each entry comes once, whichever link is cut, and all of them are saved at the end."""
    told: list[str] = []
    seen: list[tuple[int, int]] = []
    count = 1_500
    async with running(tmp_path) as (node, client), Proxy(node.addresses()["noise"]) as proxy:
        log = await client.stream("s", partitions=2)
        async with await connect(
            f"noise://{proxy.address}",
            identity=CLIENT,
            node_identity=node.identity,
            on_disconnect=told.append,
            on_reconnect=lambda: told.append("again"),
        ) as reader:
            stream = await reader.stream("s")
            consumer = stream.consumer("c", ack="explicit", max_in_flight=20, save_seconds=0.01)
            async with consumer:

                async def work() -> None:
                    async for entry in consumer:
                        await asyncio.sleep(0.001 * (entry.index % 3))
                        seen.append((entry.partition, entry.index))
                        consumer.ack(entry)
                        if len(seen) == count:
                            consumer.stop()

                async def push_and_cut() -> None:
                    async with log.pusher(in_flight=50) as pusher:
                        for number in range(count):
                            await pusher.push(b"%d" % number, partition=number % 2)
                            if number % 300 == 150:
                                await asyncio.sleep(0.02)
                                proxy.cut()

                await asyncio.gather(push_and_cut(), *(work() for _ in range(5)))
            assert reader.connected
        assert sorted(seen) == [(p, index) for p in range(2) for index in range(count // 2)]
        saved = [await client.get_index("c", "s", partition=at) for at in range(2)]
        assert saved == [count // 2] * 2
        assert "again" in told
        assert len(told) >= 4


async def test_a_consumer_that_is_killed_goes_on_and_passes_over_nothing(tmp_path: Path) -> None:
    """What comes again was processed after the last position, and no position goes back."""
    log, kills = tmp_path / "log", KILLS
    count = 150 * kills
    async with running(tmp_path / "data") as (node, client):
        stream = await client.stream("s", partitions=2)
        for partition in range(2):
            await stream.push_many([b"x"] * (count // 2), partition=partition)
        log.touch()
        before = [0, 0]
        done: set[tuple[int, ...]] = set()
        for number in range(kills + 1):
            lines_before = len(log.read_text().splitlines())
            child = Forked("-c", CHILD, node.addresses()["noise"], node.identity, log)
            try:
                while len(set(log.read_text().splitlines())) < count and (
                    number == kills or len(log.read_text().splitlines()) < lines_before + 120
                ):
                    await asyncio.sleep(0.005)
                    assert child.poll() is None
            finally:
                child.kill()
                child.wait()
            saved = [await client.get_index("c", "s", partition=at) or 0 for at in range(2)]
            assert all(now >= then for now, then in zip(saved, before, strict=True))
            done = {tuple(map(int, line.split())) for line in log.read_text().splitlines()}
            for partition, position in enumerate(saved):
                assert {(partition, index) for index in range(position)} <= done
            before = saved
        assert done == {(p, index) for p in range(2) for index in range(count // 2)}


def test_a_node_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    async def start() -> tuple[Forked, dict[str, str]]:
        child = Forked(HERE / "node_process.py", tmp_path, stdout=PIPE)
        assert child.stdout is not None
        return child, json.loads(await asyncio.to_thread(child.stdout.readline))

    async def test() -> None:
        child, there = await start()
        seen: list[int] = []
        try:
            async with asyncio.timeout(SECONDS), Proxy(there["noise"]) as proxy:
                url = f"noise://{proxy.address}"
                client = await connect(url, identity=CLIENT, node_identity=there["identity"])
                async with client:
                    stream = await client.stream("s")
                    async with stream.consumer("c", save_seconds=0.01) as consumer:
                        for part in range(3):
                            await stream.push_many([b"%d" % part] * 50)
                            while len(seen) < 50 * (part + 1):
                                seen += [entry.index for entry in await consumer.batch(20)]
                            child.kill()
                            child.wait()
                            with pytest.raises(TimeoutError):
                                await consumer.next(timeout=0.05)
                            await until(lambda: not client.connected)
                            child, there = await start()
                            proxy.point_to(there["noise"])
                    assert seen == list(range(150))
                    assert await client.get_index("c", "s") == 150
        finally:
            child.kill()
            child.wait()

    asyncio.run(test())


async def test_a_client_is_closed_in_its_time_though_the_node_is_away(tmp_path: Path) -> None:
    async with running(tmp_path) as (node, _), Proxy(node.addresses()["noise"]) as proxy:
        client = await connect_to(node, through=proxy.address)
        stream = await client.stream("s")
        await stream.push_many([b"x"] * 4)
        consumers = [
            stream.consumer(name, ack="explicit", save_seconds=SECONDS) for name in ("a", "b")
        ]
        for consumer in consumers:
            consumer.ack(await consumer.next())
        await proxy.take_away()
        await until(lambda: not client.connected)
        async with asyncio.timeout(10.0):
            with pytest.raises(TransportError):
                await client.close(timeout_seconds=0.2)


async def test_a_position_that_is_refused_keeps_no_other_from_being_saved(tmp_path: Path) -> None:
    async with running(tmp_path) as (node, _):
        client = await connect_to(node)
        kept, lost = ("k1", "k2", "k3"), ("l1", "l2", "l3")
        consumers: list[Consumer[Entry]] = []
        for name in (*lost, *kept):
            stream = await client.stream(name)
            await stream.push_many([b"x"] * 4)
            consumers.append(stream.consumer("c", ack="explicit", save_seconds=SECONDS))
            consumers[-1].ack(await consumers[-1].next())
        left = tuple(replace(table, streams="k*") for table in node.config.grants)
        node.reload(replace(node.config, grants=left))
        with pytest.raises(RequestError):
            await client.close()
        saved = {one.stream: one.index for one in await node.client.indexes()}
        assert saved == dict.fromkeys(kept, 1)


async def test_a_pusher_stores_all_and_raises_what_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        stream = await client.stream("s", partitions=2)
        async with stream.pusher(in_flight=10) as pusher:
            confirms = [await pusher.push(b"%d" % n, partition=n % 2) for n in range(500)]
        assert [confirm.result() for confirm in confirms] == [n // 2 for n in range(500)]
        entries = await stream.pull(0, 1_000, partition=1)
        assert [entry.data for entry in entries] == [b"%d" % n for n in range(1, 500, 2)]
        async with stream.pusher() as pusher:
            for number in range(10):
                await pusher.push(b"x", key=f"k{number}", headers={"n": b"%d" % number})
        async with stream.consumer("c") as consumer:
            consumed = await consumer.batch(1_000)
            while len(consumed) < 510:
                consumed += await consumer.batch(1_000)
        with_key = {one.key: one for one in consumed if one.key is not None}
        assert len(with_key) == 10
        assert with_key[b"k3"].headers == {"n": b"3"}
        assert with_key[b"k3"].partition == stream.partition_of("k3")
        pusher = stream.pusher()
        await pusher.push(b"x")
        await client.remove("s")
        await pusher.push(b"y")
        with pytest.raises(RequestError):
            await pusher.flush()


# Without a loop ------------------------------------------------------------------------------


@pytest.fixture
def blocking(tmp_path: Path) -> Generator[BlockingClient]:
    """A stream of a client without a loop, and the node's own client."""
    ready = threading.Event()
    over = threading.Event()
    found: list[Node] = []

    async def serve() -> None:
        async with Node(node_config(tmp_path)) as node:
            found.append(node)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(SECONDS)
    (node,) = found
    url = f"noise://{node.addresses()['noise']}"
    try:
        with connect_blocking(url, identity=CLIENT, node_identity=node.identity) as client:
            assert client.connected
            assert repr(client) == f"<Client of {url}: connected>"
            yield client
    finally:
        over.set()
        thread.join()


def taken(consumer: BlockingConsumer[Entry]) -> list[int]:
    found: list[int] = []
    while batch := consumer.batch(7, timeout=0.2):
        found += [entry.index for entry in batch]
    return found


def test_a_consumer_without_a_loop(blocking: BlockingClient) -> None:
    client = blocking
    gone = client.stream("gone")
    client.remove("gone")
    with pytest.raises(RequestError), gone.pusher() as pusher:
        assert isinstance(pusher.push(b"x").exception(timeout=10.0), RequestError)
    stream = client.stream("s")
    with stream.pusher(in_flight=5) as pusher:
        for number in range(20):
            assert pusher.push(b"%d" % number).result(timeout=10.0) == number  # in this thread
    with stream.consumer("c") as consumer:
        assert repr(consumer) == "<Consumer 'c' of 's': 0 in flight, lag 20>"
        assert consumer.next().index == 0
        for entry in consumer:
            if entry.index == 4:
                consumer.ack(entry)
                break
        consumer.save()
        assert client.get_index("c", "s") == 5
        assert (consumer.lag, consumer.in_flight) == (15, 0)
        assert taken(consumer) == list(range(5, 20))
        with pytest.raises(TimeoutError, match=r"no entry has come in 0\.05 s"):
            consumer.next(timeout=0.05)
        # What it has left under way brings the next one.
        stream.push(b"late")
        assert consumer.next(timeout=SECONDS).index == 20
        assert client.get_index("c", "s") in (5, 20)
    assert client.get_index("c", "s") == 20
    with stream.consumer("c", ack="explicit", max_in_flight=1) as consumer:
        entry = consumer.next()
        with pytest.raises(TimeoutError, match="none of 1 entries in flight was acknowledged"):
            consumer.next(timeout=0.05)
        with pytest.raises(ConsumerError):
            consumer.ack(stream.pull(3, 1)[0])
        for _ in range(2):
            consumer.ack(entry)
    assert client.get_index("c", "s") == 21


def test_it_is_stopped_from_another_thread(blocking: BlockingClient) -> None:
    stream = blocking.stream("s")
    stream.push_many([b"x"] * 50)
    seen: list[int] = []
    with stream.consumer("c", ack="explicit") as consumer:

        def work() -> None:
            for entry in consumer:
                seen.append(entry.index)
                consumer.ack(entry)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS
        while len(seen) < 50 and time.monotonic() < until:
            time.sleep(0.01)
        consumer.stop()
        for thread in threads:
            thread.join(SECONDS)
        with pytest.raises(ConsumerStopped):
            consumer.next()
    assert sorted(seen) == list(range(50))
    assert blocking.get_index("c", "s") == 50


def test_what_came_after_a_timeout_is_forgotten_at_the_end(blocking: BlockingClient) -> None:
    stream = blocking.stream("s")
    with stream.consumer("c") as consumer:
        with suppress(TimeoutError):
            consumer.next(timeout=0.01)
        stream.push(b"nobody has asked for it")
        until = time.monotonic() + SECONDS
        while consumer.in_flight == 0 and time.monotonic() < until:
            time.sleep(0.01)
    assert list(consumer) == []
    assert blocking.get_index("c", "s") is None
    with stream.consumer("c") as consumer:
        assert consumer.next().index == 0
