"""Instructions that a node executes for a push, a job, a Streamr message or a NextGraph event.

    python -m benchmarks.instructions push BYTES WINDOW [--count N]
    python -m benchmarks.instructions work WORKERS IN_FLIGHT [--count N]
    python -m benchmarks.instructions published SUBSCRIBERS WINDOW [--count N]
    python -m benchmarks.instructions event DEVICES WINDOW [--count N]

With `--steps` it is the steps of the interpreter that are counted, which takes seconds.

A busy machine does not change them. The node runs under valgrind's callgrind, some 50 times slower
than else, and counts while the load is under way; handshakes and the start are left out. Two runs
of one tree differ by 1 % with pushes and 4 % with jobs, so two trees can be compared whatever else
the machine does. What is not counted is the kernel, and how long anything waits: a change that
saves instructions and adds a wake-up is none that helps. As the node is slow, all commits are its
writer's thread's.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from benchmarks.fanout_load import FanoutLoad, make_stream
from benchmarks.jobs import FanoutJob
from benchmarks.measure import payloads
from benchmarks.nextgraph import Broker, commits, device, new_key, publish, receive, signed_events
from benchmarks.processes import Process
from benchmarks.rillnode_load import connect_to
from benchmarks.servers import Server, start_rillnode
from rillnode.codecs.nextgraph.events import Event
from rillnode.node.client import Client, Stream

_MESSAGE_BYTES: Final = 1_024
_LOOK_SECONDS: Final = 0.01
_SIGNAL_SECONDS: Final = 0.2
_WARM_UP: Final = 4
"""A part of the count, one in so many, comes before what is counted."""

_UNDER_VALGRIND: Final = """
import os, sys
os.execvp("valgrind", [
    "valgrind", "--tool=callgrind", "--instr-atstart=no", "--fair-sched=yes", "--quiet",
    "--callgrind-out-file=" + sys.argv[1], sys.executable, "-m", "rillnode", *sys.argv[2:],
])
"""


class Callgrind:
    """Counts what a process under callgrind executes between `begin` and `end`, once.

    Args:
        pid: the process.
        file: what callgrind was told to write to; a number follows its name.
    """

    def __init__(self, pid: int, file: Path) -> None:
        self._pid = str(pid)
        self._file = file

    def begin(self) -> None:
        """Count from now on."""
        self._control("-i", "on")

    def end(self) -> int:
        """Count no more; return how many it were."""
        self._control("-i", "off")
        self._control("-d")
        (dump,) = self._file.parent.glob(f"{self._file.name}.*")
        # A summary says how many are counted to the moment, which are none, and the end the total.
        totals = re.findall(r"^totals: (\d+)", dump.read_text(errors="replace"), re.MULTILINE)
        return int(totals[-1])

    def _control(self, *arguments: str) -> None:
        command = ("callgrind_control", *arguments, self._pid)
        subprocess.run(command, check=True, capture_output=True)


class Steps:
    """Counts the interpreter's steps of a node (`stepping`) between `begin` and `end`, once."""

    def __init__(self, process: Process, file: Path) -> None:
        self._process = process
        self._file = file

    def begin(self) -> None:
        """Count from now on."""
        self._process.signal(signal.SIGUSR2)
        time.sleep(_SIGNAL_SECONDS)

    def end(self) -> int:
        """Count no more; return how many it were."""
        self._process.signal(signal.SIGUSR2)
        while not self._file.exists():
            time.sleep(_LOOK_SECONDS)
        return sum(json.loads(self._file.read_text()).values())


Counter = Callgrind | Steps


async def _push(stream: Stream, size: int, window: int, count: int) -> None:
    messages = payloads(size, 64)
    under_way: deque[asyncio.Future[int]] = deque()
    for number in range(count):
        if len(under_way) == window:
            await under_way.popleft()
        under_way.append(stream.push_nowait(messages[number % len(messages)]))
    await asyncio.gather(*under_way)


async def _pushes(server: Server, counter: Counter, size: int, window: int, count: int) -> float:
    async with await connect_to(server.endpoint) as client:
        stream = await client.stream("pushes")
        await _push(stream, size, window, count // _WARM_UP)
        counter.begin()
        await _push(stream, size, window, count)
        return counter.end() / count


async def _jobs(
    server: Server, counter: Counter, workers: int, in_flight: int, count: int
) -> float:
    clients = [await connect_to(server.endpoint) for _ in range(workers)]
    stream = await clients[0].stream("jobs")
    await stream.push_many(payloads(_MESSAGE_BYTES, 64) * (count // 32))  # twice as many as counted
    done = [0]
    working = [asyncio.create_task(_work(client, in_flight, done)) for client in clients]
    try:
        while done[0] < count // _WARM_UP:
            await asyncio.sleep(_LOOK_SECONDS)
        counter.begin()
        begun = done[0]
        while done[0] < begun + count:
            await asyncio.sleep(_LOOK_SECONDS)
        return counter.end() / (done[0] - begun)
    finally:
        for task in working:
            task.cancel()
        await asyncio.wait(working)
        for client in clients:
            await client.close()


async def _work(client: Client, in_flight: int, done: list[int]) -> None:
    """Say of each job that it is done, and go on to the next without waiting."""
    stream = await client.stream("jobs")
    async with stream.work("q", in_flight=in_flight) as queue:
        async for job in queue:
            job.done_nowait()
            done[0] += 1


async def _published(
    server: Server, counter: Counter, subscribers: int, window: int, count: int
) -> float:
    port = int(server.ports["streamr"].rpartition(":")[2])
    await make_stream(port)
    job = FanoutJob(
        endpoint=msgspec.structs.replace(server.endpoint, kind="fanout", port=port),
        subscribers=subscribers,
        message_bytes=_MESSAGE_BYTES,
        window=window,
        rate=0.0,
        seconds=0.0,
    )
    load = FanoutLoad(job)
    load.publish(count // _WARM_UP)
    counter.begin()
    load.publish(count)
    return counter.end() / count


async def _events(server: Server, counter: Counter, devices: int, window: int, count: int) -> float:
    peer_id = bytes.fromhex(server.ports["nextgraph_peer_id"])
    broker = Broker(f"ws://{server.ports['nextgraph']}", peer_id, server.process.pid)
    topic, peer = new_key(), new_key()
    made = signed_events(topic, peer, commits(count // _WARM_UP + count))
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        publisher, *wires = [
            await stack.enter_async_context(device(http, broker, topic, one))
            for one in (peer, *(new_key() for _ in range(devices)))
        ]

        async def forwarded(events: list[Event]) -> None:
            reading = (receive(wire, len(events)) for wire in wires)
            await asyncio.gather(publish(publisher, events, window), *reading)

        await forwarded(made[:-count])
        counter.begin()
        await forwarded(made[-count:])
        return counter.end() / count


Load = Callable[[Server, Counter, int, int, int], Coroutine[Any, Any, float]]
LOADS: Final[dict[str, tuple[Load, tuple[str, ...]]]] = {
    "push": (_pushes, ()),
    "work": (_jobs, ()),
    "published": (_published, ("--dev", "--set", "streamr.listen=127.0.0.1:0")),
    "event": (
        _events,
        ("--set", "nextgraph.listen=127.0.0.1:0", "--set", "nextgraph.registration=open"),
    ),
}
"""What there is to count, and the node's options for it."""


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("first", type=int, help="bytes of a push, workers, subscribers, devices")
    parser.add_argument("second", type=int, help="window, or jobs that each worker has at a time")
    parser.add_argument("--count", type=int, default=2_400)
    parser.add_argument("--steps", action="store_true", help="of the interpreter")
    arguments = parser.parse_args()
    if not arguments.steps and shutil.which("valgrind") is None:
        sys.exit("there is no valgrind: install the package of that name")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "callgrind.out"
        program = ("-c", _UNDER_VALGRIND, os.fspath(file))
        if arguments.steps:
            program = ("-m", "benchmarks.stepping", os.fspath(file))
        load, options = LOADS[arguments.load]
        with start_rillnode(Path(directory), program=program, options=options) as server:
            counter: Counter = Callgrind(server.process.pid, file)
            if arguments.steps:
                counter = Steps(server.process, file)
            first, second, count = arguments.first, arguments.second, arguments.count
            each = asyncio.run(load(server, counter, first, second, count))
    what = "steps of the interpreter" if arguments.steps else "instructions"
    print(f"{each:,.0f} {what} of the node for each")


if __name__ == "__main__":
    main()
