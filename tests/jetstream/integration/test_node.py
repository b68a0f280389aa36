"""A whole node whose streams are in NATS JetStream."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import aiohttp
import msgspec
import pytest

from nats_support import SHARDS, NatsServer, needs_nats, on_jetstream, running_nats
from node_processes import NodeProcess
from nodes import connect_to, node_config
from rillnode.actors.log.shared.shard import SharedOptions
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.node.client import Client, connect
from rillnode.node.config import Config
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS
from store_support import eventually

pytestmark = needs_nats


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes wait two seconds for their servers, and not fifteen."""
    made = partial(SharedOptions, patience_seconds=2.0)
    monkeypatch.setattr("rillnode.actors.log.shared.shard.SharedOptions", made)


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


async def consumed(client: Client, count: int, name: str = "s") -> list[bytes]:
    """Process so many entries, and save the position behind them."""
    stream = await client.stream(name)
    found: list[bytes] = []
    # Closed here: else the position is saved some time after this returns.
    async with asyncio.timeout(ANSWER_SECONDS), stream.consumer("c1") as entries:
        async for entry in entries:
            found.append(entry.data)
            if len(found) == count:
                break
    return found


def test_a_node_keeps_nothing_on_its_own_disk_that_another_does_not_have(
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


@pytest.mark.usefixtures("impatient")
async def test_a_node_outlives_the_crash_of_its_server(nats: NatsServer, tmp_path: Path) -> None:
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


async def test_nodes_divide_the_streams_and_clients_go_where_theirs_are(
    nats: NatsServer, tmp_path: Path
) -> None:
    def serving(name: str, *serve: str) -> Config:
        config = on_jetstream(node_config(tmp_path / name), nats)
        return msgspec.structs.replace(
            config, store=msgspec.structs.replace(config.store, serve=serve)
        )

    async def known(node: Node, other: Node) -> bool:
        """Whether a node has heard what another one serves."""
        try:
            await node.client.stream("logs")
        except RillnodeError as error:
            return other.addresses()["noise"] in error.text
        return True

    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        sensors = await start(Node(serving("a", "sensors", "!*")))
        logs = Node(serving("b", "logs", "!*"))
        await logs.start()
        await eventually(partial(known, sensors, logs))
        client = await start(await connect_to(sensors))
        there, here = await client.stream("logs"), await client.stream("sensors")
        assert [await there.push(b"0"), await here.push(b"s")] == [0, 0]
        tail = await start(aclosing(there.tail(start="start")))
        assert (await anext(tail)).data == b"0"
        # The client goes on where another one takes over.
        other = await start(Node(serving("c")))
        await eventually(partial(known, sensors, other))
        await logs.stop()
        assert await there.push(b"1") == 1
        assert (await anext(tail)).data == b"1"
        assert await consumed(client, 1, "logs") == [b"0"]
        for node, serve in ((sensors, ["sensors", "!*"]), (other, [])):
            log: Any = node.status()["store"]["log"]
            assert log["serve"] == serve


@pytest.mark.usefixtures("impatient")
def test_a_node_does_not_start_without_its_servers(nats: NatsServer, tmp_path: Path) -> None:
    nats.kill()

    async def run() -> None:
        async with Node(on_jetstream(node_config(tmp_path / "a"), nats)):
            pass

    with pytest.raises(StoreError, match="servers of the log do not answer"):
        asyncio.run(run())


async def test_any_node_serves_any_stream(nats: NatsServer, tmp_path: Path) -> None:
    async with (
        Node(on_jetstream(node_config(tmp_path / "a"), nats)) as a,
        Node(on_jetstream(node_config(tmp_path / "b"), nats)) as b,
        await connect_to(a) as near,
        await connect_to(b) as far,
    ):
        stream, same = await near.stream("s"), await far.stream("s")
        following = asyncio.create_task(consumed(far, 40))
        for number in range(20):
            assert await stream.push(b"%d" % (2 * number)) == 2 * number
            assert await same.push(b"%d" % (2 * number + 1)) == 2 * number + 1
        assert await following == [b"%d" % number for number in range(40)]
        await far.close()

        async def known() -> bool:
            return (await near.get_index("c1", "s") or 0) >= 39

        # The consumer goes on at the other node, where it was before.
        await eventually(known)
        await stream.push_many([b"%d" % number for number in range(40, 60)])
        rest = await consumed(near, 20)
        assert rest[0] in (b"39", b"40")


def test_a_node_that_was_killed_goes_on_where_it_was(nats: NatsServer, tmp_path: Path) -> None:
    process = NodeProcess(tmp_path / "a", [nats])

    async def push(numbers: range) -> None:
        async with await connect(
            process.url, key_file=process.key_file, node_identity=process.identity
        ) as client:
            stream = await client.stream("s")
            for number in numbers:
                assert await stream.push(b"%d" % number) == number
            found = [entry.data for entry in await stream.pull(0, 1_000)]
            assert found == [b"%d" % number for number in range(numbers.stop)]

    try:
        for round_ in range(2):
            process.start()
            asyncio.run(push(range(20 * round_, 20 * round_ + 20)))
            process.kill()
    finally:
        process.kill()


def test_a_view_that_is_gone_is_made_anew(nats: NatsServer, tmp_path: Path) -> None:
    async def run(count: int) -> None:
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as node,
            await connect_to(node) as client,
        ):
            stream = await client.stream("s")
            assert await stream.push(b"x") == count
            assert len(await stream.pull(0)) == count + 1

    asyncio.run(run(0))
    rmtree(tmp_path / "a" / "views")
    asyncio.run(run(1))


async def test_a_node_keeps_its_store_on_its_own_loop(nats: NatsServer, tmp_path: Path) -> None:
    config = on_jetstream(node_config(tmp_path / "a"), nats)
    async with Node(config) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        assert [await stream.push(b"%d" % number) for number in range(3)] == [0, 1, 2]
    # What was cancelled ends.
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left


async def test_servers_that_do_not_sync_are_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    async def run(sync: Literal["always", "interval"]) -> str:
        config = on_jetstream(node_config(tmp_path / sync), server)
        store = msgspec.structs.replace(config.store, sync=sync)
        async with Node(msgspec.structs.replace(config, store=store)) as node:
            await node.stream("s")
            unsynced: str = node.observed.store.describe()["unsynced"]
            return unsynced

    with running_nats(tmp_path / "lazy", sync='"2m"') as server:
        with pytest.raises(StoreError, match="syncs every 120 seconds") as caught:
            await run("always")
        assert caught.value.code == "store.unsynced"
        assert "syncs every 120 seconds" in await run("interval")


async def test_a_node_shows_its_log(nats: NatsServer, tmp_path: Path) -> None:
    async def document(http: aiohttp.ClientSession, node: Node, path: str) -> Any:
        async with http.get(f"http://{node.addresses()['http']}{path}") as answer:
            assert answer.status == 200
            return await (answer.text() if path == "/metrics" else answer.json())

    async with (
        Node(on_jetstream(node_config(tmp_path / "a"), nats)) as node,
        aiohttp.ClientSession() as http,
    ):
        await (await node.client.stream("s")).push(b"x")
        log = (await document(http, node, "/v1/status"))["store"]["log"]
        assert (log["engine"], log["shards"], log["unsynced"]) == ("jetstream", SHARDS, "")
        assert log["connected"] in nats.url
        views = log["views"]
        told = ("shard", "sequence", "behind", "always", "damaged", "error")
        assert {*told, "snapshot", "snapshot_seconds"} == set(views[0])
        assert all(one["error"] is one["snapshot_seconds"] is None for one in views)
        assert (await document(http, node, "/v1/overview"))["log"]["shards"] == SHARDS
        metrics = await document(http, node, "/metrics")
        assert "rillnode_store_connected 1.0" in metrics
        assert f"rillnode_store_shards {SHARDS}.0" in metrics
        assert 'rillnode_store_view_frames_behind{shard="0"} 0.0' in metrics
        assert 'rillnode_store_view_failed{shard="0"} 0.0' in metrics
        assert 'rillnode_store_view_sequence{shard="0"} ' in metrics
