"""A work queue whose workers are at two nodes of one log."""

import asyncio
from collections import Counter
from pathlib import Path

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import connect_to, node_config
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.node.client import Client, WorkQueue
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS

pytestmark = needs_nats

ENTRIES = 120


async def work(queue: WorkQueue, done: Counter[bytes], rejected: set[bytes]) -> None:
    """Work until all is done or rejected by somebody."""
    while len(done) + len(rejected) < ENTRIES:
        try:
            job = await queue.next(timeout=0.5)
        except TimeoutError:
            continue
        if job.index % 20 == 7:
            await job.reject("every twentieth")
            rejected.add(job.data)
        else:
            await job.done()
            done[job.data] += 1


def test_two_nodes_give_no_entry_twice_and_dead_letters_are_one_commit_with_the_state(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        done: Counter[bytes] = Counter()
        rejected: set[bytes] = set()
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as first,
            Node(on_jetstream(node_config(tmp_path / "b"), nats)) as second,
            await connect_to(first) as one,
            await connect_to(second) as two,
        ):
            stream = await one.stream("jobs")
            await stream.push_many([b"%d" % number for number in range(ENTRIES)])
            there = await two.stream("jobs")
            async with (
                stream.work("q", in_flight=8) as here,
                there.work("q", in_flight=8) as far,
                asyncio.TaskGroup() as tasks,
            ):
                tasks.create_task(work(here, done, rejected))
                tasks.create_task(work(far, done, rejected))
            await look(two, done, rejected)

    async def look(client: Client, done: Counter[bytes], rejected: set[bytes]) -> None:
        assert set(done.values()) == {1}
        info = await client.queue("jobs", "q")
        assert (info.depth, info.done, info.dead) == (0, len(done), len(rejected))
        letters = await (await client.stream("jobs.dead")).pull()
        assert Counter(entry.data for entry in letters) == Counter(rejected)
        assert {DeadLetter.of(entry).queue for entry in letters} == {"q"}
        assert await client.queues() == [("jobs", "q")]

    asyncio.run(run())
