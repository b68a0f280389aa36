"""Groups and queues: how soon partitions move, and what members, jobs and producers take in memory.

    python -m benchmarks.shared_work [--moves N] [--count N]

Two members share a stream, each in a process of its own; one is killed, or leaves, and it is timed
until the other has all partitions. Redis' groups have nothing to set this beside: there a consumer
takes over what has been idle for as long as it chooses, one entry after the other (XAUTOCLAIM).

Memory is the growth of the node's resident memory for each member of groups, for each job that is
with a worker, and for each producer that has a name.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.jobs import Endpoint
from benchmarks.processes import Process
from benchmarks.rillnode_load import connect_to
from benchmarks.servers import start_rillnode
from rillnode.codecs.entries import Entry
from rillnode.node.client import Client
from rillnode.node.client.consumer import Consumer

_PARTITIONS: Final = 8
_SETTLE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.005
_WAIT_SECONDS: Final = 30.0
_LINKS: Final = 20
_JOBS: Final = 10_000
"""That a queue has open at most."""

_PRODUCERS: Final = 1_000
"""That a partition knows at most."""


async def _until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(_WAIT_SECONDS):
        while not true():
            await asyncio.sleep(_LOOK_SECONDS)


async def _member(endpoint: Endpoint) -> None:
    """Be a member, until told to leave or killed."""
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    async with await connect_to(endpoint) as client:
        stream = await client.stream("moves", partitions=_PARTITIONS)
        async with stream.consumer("g", group=True) as consumer:
            await _until(lambda: len(consumer.partitions) == _PARTITIONS // 2)
            print("has its half", flush=True)
            await leave.wait()


async def _move(endpoint: Endpoint, survivor: Consumer[Entry], number: int) -> float:
    """Seconds from a member's end by a signal until another one has its partitions."""
    text = msgspec.json.encode(endpoint).decode()
    child = await create_subprocess_exec(
        sys.executable, "-m", "benchmarks.shared_work", "--member", text, stdout=PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    await _until(lambda: len(survivor.partitions) == _PARTITIONS // 2)
    child.send_signal(number)
    begun = time.perf_counter()
    await _until(lambda: len(survivor.partitions) == _PARTITIONS)
    took = time.perf_counter() - begun
    await child.wait()
    return took


async def _moves(endpoint: Endpoint, count: int) -> None:
    async with await connect_to(endpoint) as client:
        stream = await client.stream("moves", partitions=_PARTITIONS)
        async with stream.consumer("g", group=True) as survivor:
            for what, number in (("is killed", signal.SIGKILL), ("leaves", signal.SIGTERM)):
                took = [await _move(endpoint, survivor, number) for _ in range(count)]
                median, most = statistics.median(took), max(took)
                print(f"a member {what}: its partitions move in {median:.2f} s, at most {most:.2f}")


async def _grown(process: Process, before: int, count: int, what: str) -> int:
    """Tell how much memory each of so many has cost; return what the node has now."""
    await asyncio.sleep(_SETTLE_SECONDS)
    now = process.rss_bytes()
    print(f"{(now - before) / count:,.0f} bytes for each of {count:,} {what}")
    return now


async def _memory(endpoint: Endpoint, process: Process, count: int) -> None:
    async with AsyncExitStack() as stack:
        clients: list[Client] = [
            await stack.enter_async_context(await connect_to(endpoint)) for _ in range(_LINKS)
        ]
        stream = await clients[0].stream("moves", partitions=_PARTITIONS)
        streams = [await one.stream("moves", partitions=_PARTITIONS) for one in clients]
        await stream.push_many([b"x" * 100] * _JOBS)
        for name in ("first", "q"):  # the first one makes what is there from then on
            before = process.rss_bytes()
            queue = await stack.enter_async_context(stream.work(name, in_flight=_JOBS))
            for _ in range(_JOBS if name == "q" else 1):
                await queue.next(timeout=_WAIT_SECONDS)
        before = await _grown(process, before, _JOBS, "jobs in flight")
        for number in range(count):
            consumer = streams[number % _LINKS].consumer(f"m-{number // _PARTITIONS}", group=True)
            await stack.enter_async_context(consumer)
        before = await _grown(process, before, count, "members of groups of 8")
        for number in range(_PRODUCERS):
            await (await stream.producer(f"p-{number}")).push(b"x")
        await _grown(process, before, _PRODUCERS, "producers with names")


async def _measure(endpoint: Endpoint, process: Process, moves: int, count: int) -> None:
    await _moves(endpoint, moves)
    await _memory(endpoint, process, count)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_work", description=__doc__)
    parser.add_argument("--moves", type=int, default=5)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--member", default="", help="an endpoint: be a member, for itself")
    arguments = parser.parse_args()
    if arguments.member:
        asyncio.run(_member(msgspec.json.decode(arguments.member, type=Endpoint)))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        start_rillnode(Path(directory)) as server,
    ):
        work = _measure(server.endpoint, server.process, arguments.moves, arguments.count)
        asyncio.run(work)


if __name__ == "__main__":
    main()
