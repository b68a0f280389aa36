"""Groups and queues: how soon partitions move, and what members, jobs and producers take in memory.

    python -m benchmarks.shared_work [--moves N] [--count N]

A *group move*: 2, 10 and 50 members share a stream of 64 partitions, each over a link of its own.
One more joins, leaves, or is killed in a process of its own, and it is timed until all partitions
are shared anew; what that takes of the node's processor time, and how many partitions change hands.
Redis' groups have nothing to set this beside: there a consumer takes over what has been idle for as
long as it chooses, one entry after the other (XAUTOCLAIM).

Memory is the growth of the node's resident memory for each member of groups, for each job that is
with a worker, and for each producer that has a name.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.jobs import Endpoint
from benchmarks.processes import Process, cpu_seconds
from benchmarks.rillnode_load import connect_to
from benchmarks.servers import Server, start_rillnode
from rillnode.codecs.entries import Entry
from rillnode.node.client import Client, Stream
from rillnode.node.client.consumer import Consumer

_PARTITIONS: Final = 64
_MEMBERS: Final = (2, 10, 50)
"""Of groups, with the one that comes and goes."""

_IN_GROUP: Final = 8
"""Members of each of the groups whose memory is measured."""

_QUIET_SECONDS: Final = 0.5
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


async def _member(endpoint: Endpoint, group: str) -> None:
    """Be a member until killed."""
    async with await connect_to(endpoint) as client:
        stream = await client.stream("moves", partitions=_PARTITIONS)
        async with stream.consumer(group, group=True) as consumer:
            await _until(lambda: consumer.partitions)
            print("has some", flush=True)
            await asyncio.Event().wait()


class _Moves:
    """How long, and what, partitions take to move when a member of a group comes or goes.

    Args:
        server: the node.
        members: of this process; another one comes and goes.
    """

    def __init__(self, server: Server, members: Sequence[Consumer[Entry]]) -> None:
        self._server = server
        self._members = members
        self._found: dict[str, list[tuple[float, float, int]]] = {}

    async def begun(self) -> None:
        """All are there."""
        await _until(lambda: self.held() == _PARTITIONS)

    async def killed(self, group: str) -> None:
        """Another process is a member, and is killed."""
        text = msgspec.json.encode(self._server.endpoint).decode()
        child = await create_subprocess_exec(
            sys.executable, "-m", "benchmarks.shared_work", "--member", text, "--group", group,
            stdout=PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        await child.stdout.readline()
        await _until(lambda: self._is_shared(self.held()))
        async with self._timed("is killed"):
            child.kill()
            await _until(lambda: self.held() == _PARTITIONS)
        await child.wait()

    async def joins_and_leaves(self, stream: Stream, group: str) -> None:
        """Another member joins, and leaves when it has its part."""
        async with AsyncExitStack() as stack:
            async with self._timed("joins"):
                joining = stream.consumer(group, group=True)
                await stack.enter_async_context(joining)
                await _until(
                    lambda: (
                        self._is_shared(self.held())
                        and self.held() + len(joining.partitions) == _PARTITIONS
                    )
                )
            async with self._timed("leaves"):
                await stack.aclose()
                await _until(lambda: self.held() == _PARTITIONS)

    def show(self) -> None:
        """Tell what was found."""
        for what, found in self._found.items():
            took = [seconds for seconds, _, _ in found]
            median, most = statistics.median(took), max(took)
            cpu = statistics.median(milliseconds for _, milliseconds, _ in found)
            moved = statistics.median(count for _, _, count in found)
            print(
                f"group move, {len(self._members) + 1} members, {_PARTITIONS} partitions, one "
                f"{what}: {median:.3f} s, at most {most:.3f}; {cpu:.0f} ms of the node's processor "
                f"time; {moved:.0f} partitions change hands",
                flush=True,
            )

    def held(self) -> int:
        """How many partitions the members of this process have."""
        return sum(len(one.partitions) for one in self._members)

    def _is_shared(self, held: int) -> bool:
        count = len(self._members) + 1
        return _PARTITIONS - held in (_PARTITIONS // count, -(-_PARTITIONS // count))

    @asynccontextmanager
    async def _timed(self, what: str) -> AsyncGenerator[None]:
        await asyncio.sleep(_QUIET_SECONDS)  # what came before is over
        pid, before = self._server.process.pid, self._holders()
        used, begun = cpu_seconds(pid), time.perf_counter()
        yield
        took = time.perf_counter() - begun
        milliseconds = 1_000 * (cpu_seconds(pid) - used)
        moved = sum(before.get(one) != who for one, who in self._holders().items())
        moved += len(before.keys() - self._holders().keys())
        self._found.setdefault(what, []).append((took, milliseconds, moved))

    def _holders(self) -> dict[int, int]:
        return {
            partition: number
            for number, one in enumerate(self._members)
            for partition in one.partitions
        }


async def _moves(server: Server, count: int) -> None:
    for members in _MEMBERS:
        group = f"of {members}"
        async with AsyncExitStack() as stack:
            streams: list[Stream] = []
            consumers: list[Consumer[Entry]] = []
            for _ in range(members):
                client = await stack.enter_async_context(await connect_to(server.endpoint))
                streams.append(await client.stream("moves", partitions=_PARTITIONS))
            for stream in streams[1:]:
                consumer = stream.consumer(group, group=True)
                consumers.append(await stack.enter_async_context(consumer))
            moves = _Moves(server, consumers)
            await moves.begun()
            for _ in range(count):
                await moves.joins_and_leaves(streams[0], group)
                await moves.killed(group)
            moves.show()


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
        stream = await clients[0].stream("memory", partitions=_IN_GROUP)
        streams = [await one.stream("memory", partitions=_IN_GROUP) for one in clients]
        await stream.push_many([b"x" * 100] * _JOBS)
        for name in ("first", "q"):  # the first one makes what is there from then on
            before = process.rss_bytes()
            queue = await stack.enter_async_context(stream.work(name, in_flight=_JOBS))
            for _ in range(_JOBS if name == "q" else 1):
                await queue.next(timeout=_WAIT_SECONDS)
        before = await _grown(process, before, _JOBS, "jobs in flight")
        for number in range(count):
            consumer = streams[number % _LINKS].consumer(f"m-{number // _IN_GROUP}", group=True)
            await stack.enter_async_context(consumer)
        before = await _grown(process, before, count, f"members of groups of {_IN_GROUP}")
        for number in range(_PRODUCERS):
            await (await stream.producer(f"p-{number}")).push(b"x")
        await _grown(process, before, _PRODUCERS, "producers with names")


async def _measure(server: Server, moves: int, count: int) -> None:
    await _moves(server, moves)
    if count:
        await _memory(server.endpoint, server.process, count)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_work", description=__doc__)
    parser.add_argument("--moves", type=int, default=5)
    parser.add_argument("--count", type=int, default=2_000, help="members; 0: no memory")
    parser.add_argument("--member", default="", help="an endpoint: be a member, for itself")
    parser.add_argument("--group", default="", help="of that member")
    arguments = parser.parse_args()
    if arguments.member:
        endpoint = msgspec.json.decode(arguments.member, type=Endpoint)
        asyncio.run(_member(endpoint, arguments.group))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        start_rillnode(Path(directory)) as server,
    ):
        asyncio.run(_measure(server, arguments.moves, arguments.count))


if __name__ == "__main__":
    main()
