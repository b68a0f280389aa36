"""A whole node whose streams are in NATS JetStream."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import connect_to, node_config
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.node.client import Client
from rillnode.node.runtime import Node
from store_support import ANSWER_SECONDS

pytestmark = needs_nats


async def pushed(client: Client, data: bytes) -> int:
    """Push until it is confirmed, as an application does."""
    stream = await client.stream("s")
    deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
    while True:
        try:
            return await stream.push(data)
        except RillnodeError as error:
            if not error.retryable or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


async def consumed(client: Client, count: int) -> list[bytes]:
    stream = await client.stream("s")
    found: list[bytes] = []
    # Closed here: else the position is saved some time after this returns.
    async with (
        asyncio.timeout(ANSWER_SECONDS),
        aclosing(stream.consume(client_id="c1")) as entries,
    ):
        async for entry in entries:
            found.append(entry.data)
            if len(found) == count:
                break
    return found


def test_a_node_keeps_nothing_of_its_streams_on_its_own_disk(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def first() -> None:
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as node,
            await connect_to(node) as client,
        ):
            stream = await client.stream("s")
            assert await stream.push_many([b"%d" % number for number in range(100)])
            assert [entry.data for entry in await stream.pull(97)] == [b"97", b"98", b"99"]
            assert await consumed(client, 40) == [b"%d" % number for number in range(40)]

    async def second() -> None:
        # Another machine with the same streams, after the first is gone.
        async with (
            Node(on_jetstream(node_config(tmp_path / "b"), nats)) as node,
            await connect_to(node) as client,
        ):
            stream = await client.stream("s")
            assert await stream.push(b"100") == 100
            found = await consumed(client, 61)
            # Of the first run's last entry the position may not have been saved.
            assert found[-1] in (b"99", b"100")
            assert found == [b"%d" % (int(found[0]) + number) for number in range(61)]
            assert int(found[0]) in (39, 40)

    asyncio.run(first())
    assert not (tmp_path / "a" / "store").exists()
    asyncio.run(second())


def test_a_node_outlives_the_crash_of_its_server(nats: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as node,
            await connect_to(node) as client,
        ):
            confirmed = [await pushed(client, b"%d" % number) for number in range(20)]
            await asyncio.to_thread(nats.kill)
            async with asyncio.timeout(ANSWER_SECONDS):
                while all(check.ok for check in node.checks()):
                    await asyncio.sleep(0.01)
            stream = await client.stream("s")
            with pytest.raises(RillnodeError) as caught:
                await stream.push(b"refused")
            assert (caught.value.code, caught.value.retryable) == ("store.unreachable", True)
            await asyncio.to_thread(nats.start)
            confirmed += [await pushed(client, b"%d" % number) for number in range(20, 40)]
            entries = {entry.index: entry.data for entry in await stream.pull(0, 1_000)}
            assert [entries[index] for index in confirmed] == [b"%d" % n for n in range(40)]
            assert len(set(entries.values()) - {b"refused"}) == 40

    asyncio.run(run())


def test_a_node_does_not_start_without_its_servers(nats: NatsServer, tmp_path: Path) -> None:
    nats.kill()

    async def run() -> None:
        async with Node(on_jetstream(node_config(tmp_path / "a"), nats)):
            pass

    with pytest.raises(StoreError, match="JetStream does not answer"):
        asyncio.run(run())


@pytest.mark.usefixtures("impatient", "nobody_is_lost")
def test_a_node_shows_who_writes(nats: NatsServer, tmp_path: Path) -> None:
    async def document(http: aiohttp.ClientSession, node: Node, path: str) -> Any:
        async with http.get(f"http://{node.addresses()['http']}{path}") as answer:
            assert answer.status == 200
            return await (answer.text() if path == "/metrics" else answer.json())

    async def run(a: Node, b: Node, http: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            for node in (a, b):
                while len((await document(http, node, "/v1/overview"))["nodes"]) != 2:
                    await asyncio.sleep(0.05)
        stream = await a.client.stream("s", partitions=8)
        for partition in range(8):
            await stream.push(b"x", partition=partition)
        seen = [await document(http, node, "/v1/streams/s") for node in (a, b)]
        writers = [one["written_by"] for one in seen[0]["extents"]]
        assert writers == [one["written_by"] for one in seen[1]["extents"]]
        assert set(writers) <= {"a", "b"}
        assert seen[0]["written_by"] == sorted(set(writers))
        status = [await document(http, node, "/v1/status") for node in (a, b)]
        handed, taken = (one["store"]["sharing"] for one in status)
        assert handed["handed_appends"] == taken["taken_appends"] == writers.count("b")
        assert [one["name"] for one in handed["nodes"]] == ["a", "b"]
        metrics = await document(http, b, "/metrics")
        assert "rillnode_store_nodes 2.0" in metrics
        count = float(writers.count("b"))
        assert f'rillnode_store_forwarded_appends_total{{direction="in"}} {count}' in metrics
        assert "rillnode_store_hand_overs_total" in metrics

    async def main() -> None:
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as a,
            Node(on_jetstream(node_config(tmp_path / "b"), nats)) as b,
            aiohttp.ClientSession() as http,
        ):
            await run(a, b, http)

    asyncio.run(main())
