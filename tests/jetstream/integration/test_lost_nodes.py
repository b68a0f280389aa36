"""Nodes that are killed, frozen, stopped and added while clients push at every node."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from node_processes import NodeProcess
from nodes import connect_to, node_config
from rillnode.node.client import Client, connect
from rillnode.node.runtime import Node

pytestmark = needs_nats

PARTITIONS = 4
TOGETHER = 4
PAUSE_SECONDS_MAX = 5.0
"""No confirm may take longer, whatever happens to another node: nobody waits for it."""


@pytest.fixture
def lost(nats: NatsServer, tmp_path: Path) -> Iterator[NodeProcess]:
    """The node that is lost, in a process of its own."""
    node = NodeProcess(tmp_path / "b", [nats])
    try:
        yield node
    finally:
        node.kill()


class Producers:
    """One producer for each partition at one node; nothing is ever pushed twice.

    Attributes:
        confirmed: for each partition the entries with their indexes, in the order of the pushes.
    """

    def __init__(self, name: str, client: Client) -> None:
        self.confirmed: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
        self._slowest = 0.0
        self._name = name
        self._client = client
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._push(number)) for number in range(PARTITIONS)]

    async def _push(self, partition: int) -> None:
        stream = await self._client.stream("s")
        clock = asyncio.get_running_loop().time
        confirmed = self.confirmed[partition]
        while not self._stop.is_set():
            texts = [
                b"%s %d %d" % (self._name.encode(), partition, len(confirmed) + number)
                for number in range(TOGETHER)
            ]
            began = clock()
            pushed = [stream.push_nowait(text, partition=partition) for text in texts]
            indexes = await asyncio.gather(*pushed)
            self._slowest = max(self._slowest, clock() - began)
            confirmed += zip(texts, indexes, strict=True)

    async def grow(self, by: int = 20) -> None:
        """Wait until so many entries more are confirmed in each partition."""
        wanted = [len(one) + by for one in self.confirmed]
        async with asyncio.timeout(60.0):
            while any(len(one) < count for one, count in zip(self.confirmed, wanted, strict=True)):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)

    def pause(self) -> float:
        """Seconds of the slowest confirm since this was asked last."""
        slowest, self._slowest = self._slowest, 0.0
        return slowest

    async def stop(self) -> None:
        """End them; raises what a push has raised."""
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def abandon(self) -> None:
        """End them as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self, partition: int, log: list[bytes], *, whole: bool = True) -> None:
        """Every confirm is where it was said, once and in order; and what was not, once at most."""
        confirmed = self.confirmed[partition]
        for text, index in confirmed:
            assert log[index] == text
        mine = [text for text in log if text.startswith(self._name.encode() + b" ")]
        prefix = b"%s %d " % (self._name.encode(), partition)
        assert mine == [prefix + b"%d" % number for number in range(len(mine))]
        assert len(confirmed) <= len(mine) <= len(confirmed) + (0 if whole else TOGETHER)


async def log_of(client: Client, partition: int) -> list[bytes]:
    stream = await client.stream("s")
    found: list[bytes] = []
    while entries := await stream.pull(len(found), 1_000, partition=partition):
        found += [entry.data for entry in entries]
    return found


async def consumed(client: Client, seen: list[list[bytes]]) -> None:
    """Follow all partitions from their beginning."""
    stream = await client.stream("s")
    async for batch in stream.batches(start=0, partitions=range(PARTITIONS)):
        for entry in batch:
            assert entry.index == len(seen[entry.partition])
            seen[entry.partition].append(entry.data)


Fault = Callable[[NodeProcess], Awaitable[None]]


async def killed(node: NodeProcess) -> None:
    await asyncio.to_thread(node.kill)


async def stopped(node: NodeProcess) -> None:
    await asyncio.to_thread(node.stop)


async def frozen(node: NodeProcess) -> None:
    node.pause()
    # What it does when it wakes, others have done meanwhile.
    await asyncio.sleep(6.0)
    node.resume()


@pytest.mark.parametrize(
    "fault",
    [
        killed,
        pytest.param(frozen, marks=pytest.mark.long),
        pytest.param(stopped, marks=pytest.mark.long),
    ],
)
async def test_nodes_come_and_go_and_the_others_do_not_wait_for_them(
    nats: NatsServer, lost: NodeProcess, fault: Fault, tmp_path: Path
) -> None:
    async def run(stack: AsyncExitStack) -> None:
        async def client_of_another(name: str) -> Client:
            config = on_jetstream(node_config(tmp_path / name), nats)
            node = await stack.enter_async_context(Node(config))
            return await stack.enter_async_context(await connect_to(node))

        await asyncio.to_thread(lost.start)
        at_a = await client_of_another("a")
        await at_a.stream("s", partitions=PARTITIONS)
        at_b = await connect(lost.url, key_file=lost.key_file, node_identity=lost.identity)
        seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        following = asyncio.create_task(consumed(at_a, seen))
        producers = [Producers("a", at_a), Producers("b", at_b)]
        for one in producers:
            await one.grow()
        # A node joins.
        at_c = await client_of_another("c")
        producers.append(Producers("c", at_c))
        for one in producers:
            await one.grow()
        assert max(one.pause() for one in producers) < PAUSE_SECONDS_MAX
        # The second is lost while its clients push, too.
        await fault(lost)
        for one in (producers[0], producers[2]):
            await one.grow(40)
        if fault is frozen:
            await producers[1].grow()
            await producers[1].stop()
        else:
            await producers[1].abandon()
        closing = asyncio.create_task(at_b.close())
        for one in (producers[0], producers[2]):
            await one.stop()
        pauses = [one.pause() for one in (producers[0], producers[2])]
        print(f"{fault.__name__}: pauses of {', '.join(f'{one:.2f}' for one in pauses)} s")
        assert max(pauses) < PAUSE_SECONDS_MAX
        logs = [await log_of(at_c, partition) for partition in range(PARTITIONS)]
        async with asyncio.timeout(30.0):
            while [len(one) for one in seen] != [len(one) for one in logs]:
                await asyncio.sleep(0.05)
        following.cancel()
        closing.cancel()
        assert seen == logs
        for partition, log in enumerate(logs):
            for one in producers:
                one.check(partition, log, whole=fault is frozen or one is not producers[1])

    async with AsyncExitStack() as stack:
        await run(stack)
