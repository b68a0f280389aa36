"""Three servers, one of which is lost."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jetstream.support import administer, appended, options_of, pair_of
from nats_replicas import different_messages
from nats_support import NatsCluster, needs_nats
from rillnode.actors.jetstream.making import found_log
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.node.testing.contract.shared_logs import Client, opened, until

pytestmark = needs_nats

SHARDS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path)
    cluster.start()
    yield cluster
    cluster.kill()


def options_in(cluster: NatsCluster, first: int = 0) -> JetStreamOptions:
    """A client's that prefers one of the servers."""
    return options_of(*cluster.servers[first:], *cluster.servers[:first], replicas=3)


async def write(
    client: Client, told: dict[int, list[tuple[int, bytes]]], stop: asyncio.Event
) -> int:
    """Append to all shards until told to stop; returns how often something was lost."""
    number = 0
    while not stop.is_set():
        shard, data = number % SHARDS, b"%d" % number
        told[shard].append((await appended(client, shard, data, 90.0), data))
        number += 1
    return number


async def lacking(client: Client) -> set[str]:
    """The servers that do not have all of the log."""
    log: Any = client.log
    _, found = await found_log(log.connection, "t")
    return {name for one in found.values() for name in one.lacking}


@pytest.mark.parametrize(
    "lost",
    ["connected", *(pytest.param(lost, marks=pytest.mark.long) for lost in ("leader", "paused"))],
)
async def test_logs_go_on_without_one_of_three_servers(
    cluster: NatsCluster, tmp_path: Path, lost: str
) -> None:
    options = options_in(cluster)
    async with (
        opened(pair_of(options), SHARDS) as client,
        opened(pair_of(options_in(cluster, 1)), SHARDS) as other,
    ):
        assert client.opened == other.opened
        told: dict[int, list[tuple[int, bytes]]] = {shard: [] for shard in range(SHARDS)}
        stop = asyncio.Event()
        writing = asyncio.create_task(write(client, told, stop))
        await asyncio.sleep(1.0)
        leader = (await administer(options, "STREAM.INFO.t-log-1"))["cluster"]["leader"]
        number = int(leader.removeprefix("n")) if lost == "leader" else 0
        server = cluster.servers[number]
        await asyncio.to_thread(server.pause if lost == "paused" else server.kill)
        counts = [len(frames) for frames in told.values()]
        async with asyncio.timeout(90.0):
            while any(
                len(frames) < count + 20
                for frames, count in zip(told.values(), counts, strict=True)
            ):
                await asyncio.sleep(0.05)
        await until(partial(lacking, other), lambda names: names == {f"n{number}"})
        await asyncio.to_thread(server.resume if lost == "paused" else server.start)
        await until(partial(lacking, other), lambda names: not names)
        stop.set()
        await writing
        for shard, frames in told.items():
            await other.wait_heard(shard, frames[-1][0])
            for reader in (client, other):
                found = dict(await reader.read(shard, 0, frames[-1][0]))
                # Each stands where it was said to; one that was lost may stand there, too.
                assert [found[sequence] for sequence, _ in frames] == [data for _, data in frames]
                assert [sequence for sequence, _ in frames] == sorted(
                    {sequence for sequence, _ in frames}
                )

    cluster.kill()
    assert not different_messages([server.directory / "data" for server in cluster.servers])


async def test_logs_are_made_once_by_clients_of_all_servers(cluster: NatsCluster) -> None:
    pairs = [pair_of(options_in(cluster, number % 3)) for number in range(6)]
    clients = [Client(*pair) for pair in pairs]
    made = await asyncio.gather(*[client.open(8 + number) for number, client in enumerate(clients)])
    assert len(set(made)) == 1
    sequences = await asyncio.gather(*[client.append(7, b"a") for client in clients])
    assert sorted(sequence for (sequence,) in sequences) == [1, 2, 3, 4, 5, 6]
    await asyncio.gather(*[client.log.close() for client in clients])
