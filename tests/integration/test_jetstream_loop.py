"""A store on NATS JetStream that runs on its node's loop, and wakes no other thread."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import connect_to, node_config
from rillnode.actors.storage import Append, Operation, StoreHealth
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.store import JetStreamLogStore
from rillnode.codecs.errors import StoreError
from rillnode.node.runtime import Node
from store_support import ANSWER_SECONDS, append

pytestmark = needs_nats


def threads_of_stores() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "store-jetstream"]


class Told:
    """Takes what a store completes, and says when there is as much as is waited for."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.operations: list[Operation] = []
        self._came = asyncio.Event()

    def complete(self, operations: Sequence[Operation]) -> None:
        self.threads.add(threading.get_ident())
        self.operations += operations
        self._came.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            while len(self.operations) < count:
                self._came.clear()
                await self._came.wait()


def ignored(_: StoreHealth) -> None:
    """Nobody looks."""


def test_a_store_on_a_given_loop_has_no_thread_and_leaves_the_loop_running(
    nats: NatsServer,
) -> None:
    async def run() -> None:
        told = Told()
        options = JetStreamOptions(servers=(nats.url,), monitors=(nats.monitor,), replicas=1)
        loop = asyncio.get_running_loop()
        store = JetStreamLogStore(options, complete=told.complete, on_health=ignored, loop=loop)
        for opening in range(2):
            await asyncio.to_thread(store.open)
            assert not threads_of_stores()
            appends = [append(b"%d" % number) for number in range(5)]
            for one in appends:
                store.submit(one)
            assert store.pending_bytes > 0
            await told.wait_for(5 * (opening + 1))
            assert [one.first_index for one in appends] == [5 * opening + n for n in range(5)]
            assert store.pending_bytes == 0
            await asyncio.to_thread(store.close)
        assert told.threads == {threading.get_ident()}
        late = append(b"late")
        store.submit(late)
        assert isinstance(told.operations[-1], Append)
        assert told.operations[-1] is late
        assert late.error is not None

    asyncio.run(run())


def test_a_given_loop_outlives_a_store_that_does_not_open(nats: NatsServer) -> None:
    nats.stop()

    async def run() -> None:
        options = JetStreamOptions(servers=(nats.url,), monitors=(nats.monitor,), replicas=1)
        loop = asyncio.get_running_loop()
        told = Told()
        store = JetStreamLogStore(options, complete=told.complete, on_health=ignored, loop=loop)
        with pytest.raises(StoreError) as caught:
            await asyncio.to_thread(store.open)
        assert caught.value.code == "store.unreachable"
        await asyncio.to_thread(store.close)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(run())


def test_a_node_keeps_its_store_on_its_own_loop(nats: NatsServer, tmp_path: Path) -> None:
    config = on_jetstream(node_config(tmp_path / "a"), nats)

    async def run() -> None:
        async with Node(config) as node, await connect_to(node) as client:
            stream = await client.stream("s")
            assert [await stream.push(b"%d" % number) for number in range(3)] == [0, 1, 2]
            assert not threads_of_stores()
        # What was cancelled ends.
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(run())
