"""Nodes and clients are killed again and again: nothing is stored twice, nothing confirmed is lost.

One client lives through all of it, and pushes without a name. Another one is killed itself, and
goes on under its name where the node says that it has stopped.
"""

import asyncio
import json
import os
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from forked import DEVNULL, PIPE, Forked
from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.errors import (
    ProducerFenced,
    ProducerOutOfOrder,
    ProducerStale,
    QuotaError,
    TransportError,
)
from rillnode.node.client import Client, connect
from rillnode.node.config import Config, QuotaTable
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_address

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE)}
NODE = """
import sys
import test_doubles_kill
test_doubles_kill.run_node(sys.argv[1], sys.argv[2])
"""
PUSHER = """
import sys
import test_doubles_kill
test_doubles_kill.run_pusher(sys.argv[1], sys.argv[2])
"""

STREAMS = [f"s{number}" for number in range(6)]
NAMED = "by name"
UNDER_WAY = 12
"""Entries that each client leaves unconfirmed in each stream."""

PAUSE_SECONDS = 0.002
"""Between what a client pushes and what it pushes next."""


def run_node(directory: str, listen: str) -> None:
    """Be a node, until it is killed."""

    async def work() -> None:
        async with Node(config_of(Path(directory), listen)) as node:
            print(json.dumps(node.identity), flush=True)
            await asyncio.Event().wait()

    asyncio.run(work())


def config_of(directory: Path, listen: str) -> Config:
    config = node_config(directory)
    return replace(config, noise=replace(config.noise, listen=listen))


def run_pusher(address: str, node_identity: str) -> None:
    """Push on under a name, several entries at a time, until killed; tell of what is confirmed."""

    async def work() -> None:
        client = await connected(address, node_identity)
        producer = await (await client.stream(NAMED)).producer("m7")
        last = -1 if producer.last_sequence is None else producer.last_sequence
        print(last, flush=True)
        waiting: list[asyncio.Future[int]] = []
        for number in range(last + 1, 1_000_000):
            waiting.append(producer.push_nowait(b"%d" % number, sequence=number))
            if len(waiting) >= UNDER_WAY:
                await waiting.pop(0)
                print(number + 1 - UNDER_WAY, flush=True)
            if number % 3 == 0:
                await asyncio.sleep(PAUSE_SECONDS)

    asyncio.run(work())


async def connected(address: str, node_identity: str) -> Client:
    """A client, once the node is there."""
    while True:
        try:
            return await connect(f"noise://{address}", identity=CLIENT, node_identity=node_identity)
        except TransportError:
            await asyncio.sleep(0.05)


class Process:
    """A child of this test that tells things, line by line."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._child = Forked(
            "-c", program, *arguments, env=ENVIRONMENT, stdout=PIPE, stderr=DEVNULL, text=True
        )

    async def line(self) -> str:
        """The next line; empty when it has ended."""
        assert self._child.stdout is not None
        return await asyncio.to_thread(self._child.stdout.readline)

    def kill(self) -> list[str]:
        """End it as a crash would; the rest of what it has told."""
        assert self._child.stdout is not None
        self._child.kill()
        if self._child.returncode is not None:
            return []
        rest: list[str] = self._child.stdout.read().splitlines()
        self._child.wait()
        return rest


async def push_on(client: Client, confirmed: Counter[bytes], stop: asyncio.Event) -> None:
    """Push to many streams at once, and to one, until told to stop; note what is confirmed."""
    streams = await client.open_streams(STREAMS)
    waiting = deque[tuple[bytes, asyncio.Future[int]]]()
    number = 0
    while not stop.is_set() or waiting:
        if not stop.is_set():
            for stream in streams if number % 3 else streams[:1]:
                entry = b"%s %d" % (stream.name.encode(), number)
                waiting.append((entry, stream.push_nowait(entry)))
            number += 1
        most = 0 if stop.is_set() else UNDER_WAY * len(STREAMS)
        while len(waiting) > most:
            entry, future = waiting.popleft()
            await future
            confirmed[entry] += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def kill_again_and_again(directory: Path, kills: int, seed: int) -> None:
    random, listen = Random(seed), free_address()
    processes: list[Process] = []

    def started(program: str, *arguments: str) -> Process:
        processes.append(Process(program, *arguments))
        return processes[-1]

    try:
        await kill_some(random, started, directory, listen, kills)
    finally:
        for process in processes:
            process.kill()


async def kill_some(
    random: Random, started: Callable[..., Process], directory: Path, listen: str, kills: int
) -> None:
    node = started(NODE, str(directory), listen)
    identity = json.loads(await node.line())
    pusher = started(PUSHER, listen, identity)
    assert await pusher.line() == "-1\n"
    client = await connected(listen, identity)
    confirmed, stop = Counter[bytes](), asyncio.Event()
    pushing = asyncio.ensure_future(push_on(client, confirmed, stop))
    highest = -1
    for number in range(kills):
        await asyncio.sleep(random.uniform(0.05, 0.3))
        if number % 2:
            rest = pusher.kill()
            highest = max([highest, *map(int, rest)])
            pusher = started(PUSHER, listen, identity)
            last = int(await pusher.line())
            assert last >= highest, "what was confirmed is forgotten"
            highest = last
        else:
            node.kill()
            node = started(NODE, str(directory), listen)
            assert json.loads(await node.line()) == identity
    highest = max(highest, int(await pusher.line()))
    pusher.kill()
    stop.set()
    await asyncio.wait_for(pushing, 120.0)
    found: Counter[bytes] = Counter()
    for name in STREAMS:
        stored = [entry.data for entry in await (await client.stream(name)).pull(0, 1_000_000)]
        numbers = [int(data.rpartition(b" ")[2]) for data in stored]
        assert numbers == sorted(set(numbers)), f"{name} has doubles, or another order"
        found.update(stored)
    assert found == confirmed
    by_name = [entry.data for entry in await (await client.stream(NAMED)).pull(0, 1_000_000)]
    assert by_name == [b"%d" % number for number in range(len(by_name))]
    assert len(by_name) > highest > 0
    await client.close()


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(3, 1), *(pytest.param(100, seed, marks=pytest.mark.long) for seed in range(2, 12))],
)
def test_nothing_is_doubled_or_lost_by_kills(tmp_path: Path, kills: int, seed: int) -> None:
    asyncio.run(kill_again_and_again(tmp_path, kills, seed))


async def test_a_program_that_begins_again_with_an_old_number(tmp_path: Path) -> None:
    """Programs of one name, one after the other and two at a time."""
    async with Node(node_config(tmp_path)) as node:
        async with await connect_to(node) as first:
            producer = await (await first.stream("s")).producer("m7")
            assert producer.last_sequence is None
            assert [await producer.push(b"%d" % n) for n in range(3)] == [0, 1, 2]
            assert await producer.push(b"10", sequence=10) == 3
            # An attempt whose outcome a program does not know is made again.
            assert await producer.push(b"10", sequence=10) == 3
            assert producer.last_sequence == 10
        async with await connect_to(node) as second, await connect_to(node) as third:
            stream = await second.stream("s")
            await stream.push(b"without a name")
            producer = await stream.producer("m7")
            assert (producer.last_sequence, producer.last_index) == (10, 3)
            for number, index in ((1, 1), (10, 3), (5, None)):
                with pytest.raises(ProducerStale) as caught:
                    await producer.push(b"again", sequence=number)
                assert caught.value.index == index
                assert not caught.value.retryable
            assert await producer.push(b"11") == 5
            other = await (await third.stream("s")).producer("m7")
            with pytest.raises(ProducerFenced):
                await producer.push(b"12")
            assert await other.push(b"12") == 6
            assert await node.client.stream("s")
            own = await (await node.client.stream("s")).producer("own")
            assert await own.push(b"embedded") == 7
            stored = [entry.data for entry in await stream.pull(0, 100)]
            assert stored == [
                b"0", b"1", b"2", b"10", b"without a name", b"11", b"12", b"embedded"
            ]  # fmt: skip


async def test_what_was_refused_is_not_passed_over(tmp_path: Path) -> None:
    """Who goes on behind the last number leaves nothing out, in this process and in the next."""
    quota = QuotaTable(who=f"noise:{CLIENT.public_hex}", bytes_max=1_000)
    async with Node(replace(node_config(tmp_path), quotas=(quota,))) as node:
        async with await connect_to(node) as client:
            producer = await (await client.stream("s")).producer("m7")
            assert await producer.push(b"0" * 700) == 0
            # There would be room for what comes second and third.
            pushes = [(b"1" * 700, 1), (b"3", 3), (b"5", 5)]
            futures = [producer.push_nowait(data, sequence=number) for data, number in pushes]
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in results] == [
                QuotaError, ProducerOutOfOrder, ProducerOutOfOrder
            ]  # fmt: skip
            assert producer.last_sequence == 0
        async with await connect_to(node) as client:
            stream = await client.stream("s")
            producer = await stream.producer("m7")
            assert producer.last_sequence == 0
            with pytest.raises(QuotaError):
                await producer.push(b"1" * 700)
            # It is given up.
            futures = [producer.push_nowait(data, sequence=number) for data, number in pushes[1:]]
            assert await asyncio.gather(*futures) == [1, 2]
            assert [entry.data for entry in await stream.pull(1, 100)] == [b"3", b"5"]
