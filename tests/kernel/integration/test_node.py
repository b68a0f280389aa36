"""A node's life: failing disks, draining, crashes, retention, many streams."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import aclosing
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec
import pytest

from forked import PIPE, Forked
from nodes import CLIENT, connect_to, node_config, store_with
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.log.memory import Faults
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.client import connect
from rillnode.node.config import StreamTable
from rillnode.node.runtime import Node

CHILD = Path(__file__).with_name("node_process.py")


def readiness(address: str) -> tuple[int, str]:
    """What /readyz says."""
    request = urllib.request.Request(f"http://{address}/readyz?verbose")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def fails(*_: object) -> None:
    raise RuntimeError("planted")


async def test_a_node_whose_stream_service_has_ended_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        http = node.addresses()["http"]
        stream = await client.stream("s")
        with monkeypatch.context() as patch:
            patch.setattr(StreamService, "handle", fails)
            for _ in range(10):
                with pytest.raises(RequestError):
                    await client.describe("s")
        status, text = await asyncio.to_thread(readiness, http)
        assert status == 503
        assert "StreamService" in text
        assert await stream.push(b"there still") == 0


async def test_a_full_disk_is_told_and_left_again_without_loss(tmp_path: Path) -> None:
    faults = Faults(capacity_bytes=20_000, repair_seconds=2.0)
    async with Node(node_config(tmp_path), make_store=store_with(faults)) as node:
        http = node.addresses()["http"]
        assert (await asyncio.to_thread(readiness, http))[0] == 200
        async with await connect_to(node) as client:
            stream = await client.stream("s")
            confirmed, error = 0, None
            while error is None:
                try:
                    assert await stream.push(bytes(1_000)) == confirmed
                    confirmed += 1
                except RequestError as refused:
                    error = refused
            assert 0 < confirmed < 20
            assert (error.code, error.retryable) == ("store.full", True)
            status, text = await asyncio.to_thread(readiness, http)
            assert (status, "[-] store" in text, "full" in text) == (503, True, True)
            assert len(await stream.pull(0, 1_000)) == confirmed  # reading goes on

            faults.capacity_bytes = None  # someone has made room
            while True:
                try:
                    assert await stream.push(b"after") == confirmed
                    break
                except RequestError:
                    await asyncio.sleep(0.02)
            assert (await asyncio.to_thread(readiness, http))[0] == 200
            assert len(await stream.pull(0, 1_000)) == confirmed + 1


async def test_positions_are_gone_with_a_stream_whose_removal_failed_and_is_found_done_later(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with (
        Node(node_config(tmp_path), make_store=store_with(faults)) as node,
        await connect_to(node) as client,
    ):
        await client.stream("s")
        await client.set_index("c", "s", 6)
        faults.failing_syncs = faults.surviving = 1
        with pytest.raises(RequestError) as refused:
            await client.remove("s")
        assert refused.value.retryable
        async with asyncio.timeout(60.0):
            while not all(check.ok for check in node.checks()):
                await asyncio.sleep(0.01)
        assert await client.get_index("c", "s") is None
        await client.stream("s")
        assert await client.set_index("c", "s", 2) == 2
        assert [one.index for one in await client.indexes("s")] == [2]


async def test_entries_are_dropped_by_retention_and_readers_go_on(tmp_path: Path) -> None:
    table = StreamTable(name="short", partitions=2, retain_entries_max=100)
    config = msgspec.structs.replace(node_config(tmp_path), streams=(table,))
    async with Node(config) as node, await connect_to(node) as client:
        stream = await client.stream("short")
        assert stream.partitions == 2
        for _ in range(10):
            await stream.push_many([b"x" * 1_000] * 100)
        async with asyncio.timeout(60.0):
            while (await client.describe("short")).partitions[0].first_index < 900:
                await asyncio.sleep(0.1)
        entries = await stream.pull(0, 1_000)
        assert [entry.index for entry in entries] == list(range(900, 1_000))
        async with aclosing(stream.tail(start="start")) as tail:
            assert (await anext(tail)).index == 900


def start_child(directory: Path) -> tuple[Forked, dict[str, str]]:
    """Run a node in a process of its own; return it with its addresses and identity."""
    process = Forked(CHILD, directory, stdout=PIPE)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


Confirmed = dict[tuple[str, int], bytes]
"""What was confirmed, by stream and index."""

ONE: Final = ("s",)
MANY: Final = tuple(f"s{number}" for number in range(50))


async def push_until_it_ends(
    facts: dict[str, str], confirmed: Confirmed, names: Sequence[str]
) -> None:
    """Push as fast as it goes, noting every confirm, until the node is gone."""
    client = await connect(
        f"noise://{facts['noise']}",
        identity=CLIENT,
        node_identity=facts["identity"],
        reconnect=False,
    )
    streams = [await client.stream(name) for name in names]
    number = len(confirmed)
    futures: list[asyncio.Future[int]] = []
    try:
        while True:
            items = [b"%d %s" % (number + at, os.urandom(200).hex().encode()) for at in range(200)]
            pairs = list(zip(items, cycle(streams), strict=False))
            futures = [stream.push_nowait(item) for item, stream in pairs]
            number += len(items)
            for (item, stream), future in zip(pairs, futures, strict=True):
                confirmed[stream.name, await future] = item
    except RillnodeError:  # the link broke: that is what this waits for
        await asyncio.gather(*futures, return_exceptions=True)


async def grown(confirmed: Confirmed, count: int) -> None:
    """Let it run for a while, and until so many are confirmed."""
    await asyncio.sleep(0.5)
    async with asyncio.timeout(60.0):
        while len(confirmed) < count:
            await asyncio.sleep(0.01)


async def check(facts: dict[str, str], confirmed: Confirmed, names: Sequence[str]) -> None:
    """All that was confirmed is where it was confirmed to be, and each log is without a hole."""
    async with await connect(
        f"noise://{facts['noise']}", identity=CLIENT, node_identity=facts["identity"]
    ) as client:
        stored: Confirmed = {}
        for name in names:
            entries = await (await client.stream(name)).pull(0, 10_000_000)
            assert [entry.index for entry in entries] == list(range(len(entries)))
            stored |= {(name, entry.index): entry.data for entry in entries}
    assert confirmed.items() <= stored.items()


def crash_and_check(directory: Path, rounds: int, names: Sequence[str]) -> None:
    async def one(confirmed: Confirmed, facts: dict[str, str], pid: int) -> None:
        pushing = asyncio.ensure_future(push_until_it_ends(facts, confirmed, names))
        await grown(confirmed, len(confirmed) + 100)
        os.kill(pid, signal.SIGKILL)
        await pushing

    confirmed: Confirmed = {}
    for _ in range(rounds):
        process, facts = start_child(directory)
        asyncio.run(one(confirmed, facts, process.pid))
        process.wait(10)
        process, facts = start_child(directory)
        asyncio.run(check(facts, confirmed, names))
        process.terminate()
        assert process.wait(30) == 0
    assert len(confirmed) >= 100 * rounds


def test_nothing_confirmed_is_lost_when_the_node_is_killed(tmp_path: Path) -> None:
    crash_and_check(tmp_path, 1, MANY)


@pytest.mark.long
@pytest.mark.parametrize("names", [ONE, MANY], ids=["one", "many"])
def test_nothing_confirmed_is_lost_in_twenty_kills(tmp_path: Path, names: Sequence[str]) -> None:
    crash_and_check(tmp_path, 20, names)


def test_sigterm_drains_and_ends_well(tmp_path: Path) -> None:
    async def run(facts: dict[str, str], pid: int) -> Confirmed:
        confirmed: Confirmed = {}
        pushing = asyncio.ensure_future(push_until_it_ends(facts, confirmed, ONE))
        await grown(confirmed, 1)
        os.kill(pid, signal.SIGTERM)
        await pushing
        return confirmed

    process, facts = start_child(tmp_path)
    confirmed = asyncio.run(run(facts, process.pid))
    assert process.wait(30) == 0
    assert confirmed
    process, facts = start_child(tmp_path)
    asyncio.run(check(facts, confirmed, ONE))
    process.terminate()
    assert process.wait(30) == 0


async def test_a_thousand_streams_are_made_used_and_found_again(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        names = [f"s{number:04}" for number in range(1_000)]
        streams = await asyncio.gather(*[client.stream(name) for name in names])
        pushed = await asyncio.gather(*[s.push(s.name.encode()) for s in streams])
        assert set(pushed) == {0}
        assert [info.name for info in await client.streams()] == names
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        for name in names[::97]:
            entries = await (await client.stream(name)).pull()
            assert [entry.data for entry in entries] == [name.encode()]


async def test_many_nodes_live_in_one_process(tmp_path: Path) -> None:
    nodes = [Node(node_config(tmp_path / str(number))) for number in range(3)]
    for node in nodes:
        await node.start()
    for number, node in enumerate(nodes):
        await (await node.stream("s")).push(b"%d" % number)
    for number, node in enumerate(nodes):
        async with await connect_to(node) as client:
            entries = await (await client.stream("s")).pull()
            assert [entry.data for entry in entries] == [b"%d" % number]
    assert len({node.identity for node in nodes}) == 3
    for node in nodes:
        await node.stop()
