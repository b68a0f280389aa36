"""Reading many messages of a JetStream stream: in order, whole, and in pages."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nats_support import NatsServer, needs_nats
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.publishing import Publisher
from rillnode.actors.storage.jetstream.server import Message, Server

pytestmark = needs_nats


def with_stream(
    nats: NatsServer, data: list[bytes], work: Callable[[Server], Awaitable[None]]
) -> None:
    """Do something with a stream `s` of these messages."""

    async def run() -> None:
        server = Server(JetStreamOptions(servers=(nats.url,), replicas=1), lambda: None)
        await server.open()
        try:
            await server.make_stream("s")
            for number, one in enumerate(data):
                await server.publish("s", one, after=number)
            await work(server)
        finally:
            await server.close()

    asyncio.run(run())


def test_a_scan_has_pages_in_memory_and_no_more(nats: NatsServer) -> None:
    message = bytes(400_000)

    async def work(server: Server) -> None:
        client = server._client  # pyright: ignore[reportPrivateUsage]
        before = client.stats["in_bytes"]
        scan = server.scan("s", 1, 100)
        for taken in range(1, 101):
            assert (await anext(scan)).sequence == taken
            if taken in (1, 50):
                # Whatever was asked for comes.
                await asyncio.sleep(0.5)
                ahead = client.stats["in_bytes"] - before - taken * len(message)
                assert ahead < 6_000_000
        await scan.aclose()

    with_stream(nats, [message] * 100, work)


@pytest.mark.parametrize("sizes", [[1] * 500, [1, 300_000] * 20, [1] * 100 + [700_000] * 20])
def test_a_scan_is_whole_and_in_order(nats: NatsServer, sizes: list[int]) -> None:
    data = [b"%d" % number + bytes(size) for number, size in enumerate(sizes)]

    async def work(server: Server) -> None:
        for first, last in ((1, len(data)), (7, 7), (8, 7), (3, 40)):
            found = [message async for message in server.scan("s", first, last)]
            assert found == [Message(n, data[n - 1]) for n in range(first, last + 1)]

    with_stream(nats, data, work)


def test_a_scan_goes_over_what_was_purged(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = Publisher.read

    async def counted(self: Publisher, name: str, first: int, count: int) -> list[bytes | None]:
        asked.append(count)
        return await read(self, name, first, count)

    monkeypatch.setattr(Publisher, "read", counted)

    async def work(server: Server) -> None:
        await server.purge("s", 501)
        found = [message.sequence async for message in server.scan("s", 1, 510)]
        assert found == list(range(501, 511))
        # Not one after the other.
        assert sum(asked) < 40

    with_stream(nats, [b"."] * 510, work)


def test_what_a_replica_does_not_have_yet_its_leader_has(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Publisher.read

    async def late(self: Publisher, name: str, first: int, count: int) -> list[bytes | None]:
        found = await read(self, name, first, count)
        return [None if (first + at) % 3 == 0 else one for at, one in enumerate(found)]

    monkeypatch.setattr(Publisher, "read", late)
    data = [b"%d" % number for number in range(1, 31)]

    async def work(server: Server) -> None:
        assert [one.data async for one in server.scan("s", 1, 30)] == data
        assert await server.get("s", 3) == Message(3, b"3")

    with_stream(nats, data, work)
