"""Streams shared by three real processes on loopback, of which one is killed and started again."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import pytest

from coroutines import handed_by
from overlay_processes import MEMBER, PATIENCE_SECONDS, TRACKER, Process

LISTEN = "127.0.0.1:0"


@contextmanager
def three(directory: Path) -> Generator[list[Process]]:
    """A tracker that stores, and two members."""
    processes: list[Process] = []
    try:
        tracker = Process(directory, "tracker", TRACKER.format(name="tracker", listen=LISTEN))
        processes.append(tracker)
        for name in "ab":
            text = MEMBER.format(
                name=name,
                listen=LISTEN,
                tracker=tracker.address,
                identity=tracker.identity.public_hex,
            )
            processes.append(Process(directory, name, text))
        yield processes
    finally:
        for process in reversed(processes):
            process.stop()


async def push(process: Process, *items: bytes) -> None:
    async with await process.connect() as client:
        stream = await client.stream("readings")
        await stream.push_many(items, keys=items, headers=repeat({"sender": "hall"}), partition=0)


async def all_have(processes: list[Process], expected: list[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    for process in processes:
        async with await process.connect() as client:
            stream = await client.stream("readings")
            while True:
                entries = await stream.pull(0, 10_000)
                found = [entry.data for entry in entries]
                if Counter(found) == Counter(expected):
                    assert [entry.key for entry in entries] == found
                    assert all(entry.headers == {"sender": b"hall"} for entry in entries)
                    break
                assert time.monotonic() < deadline, f"{process.name} has {len(found)}"
                assert len(found) <= len(expected), f"{process.name} has something twice"
                await asyncio.sleep(0.2)


def run_three(
    directory: Path, test: Callable[[Process, Process, Process], Awaitable[None]]
) -> None:
    """Run a test with a tracker that stores, and two members."""

    async def scenario() -> None:
        with three(directory) as processes:
            tracker, a, b = processes
            await test(tracker, a, b)

    asyncio.run(scenario())


tracker = handed_by(run_three)
a = handed_by(run_three, 1)
b = handed_by(run_three, 2)


@pytest.mark.long
async def test_a_killed_node_gets_what_it_missed_and_nothing_twice(
    tracker: Process, a: Process, b: Process
) -> None:
    first = [b"first %d" % number for number in range(200)]
    meanwhile = [b"meanwhile %d" % number for number in range(200)]
    after = [b"after %d" % number for number in range(200)]
    await push(a, *first)
    await all_have([tracker, a, b], first)
    b.kill()
    await push(a, *meanwhile)
    await all_have([tracker, a], first + meanwhile)
    b.start()
    await all_have([tracker, a, b], first + meanwhile)
    await push(b, *after)
    await all_have([tracker, a, b], first + meanwhile + after)


@pytest.mark.long
async def test_nodes_go_on_without_their_tracker(tracker: Process, a: Process, b: Process) -> None:
    first = [b"first %d" % number for number in range(100)]
    without = [b"without %d" % number for number in range(100)]
    await push(a, *first)
    await all_have([tracker, a, b], first)
    tracker.kill()
    await push(a, *without)
    await all_have([a, b], first + without)
