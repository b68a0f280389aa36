"""Groups of consumers over real links: members come, leave, and are killed."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coroutines import handed_by
from forked import PIPE, Forked
from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import (
    ConsumerError,
    GroupError,
    QueueError,
    RequestError,
    RillnodeError,
    TransportError,
)
from rillnode.codecs.group_address import group_address
from rillnode.node.client import Client, Consumer, connect, connect_blocking
from rillnode.node.client.client import GroupMember
from rillnode.node.client.group import Sharing
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.proxy import Proxy

Talk = Callable[[Node, Client], Awaitable[None]]

MEMBER = """
import asyncio, sys
import rillnode

async def main():
    url, identity, key = sys.argv[1:]
    async with await rillnode.connect(url, key_file=key, node_identity=identity) as client:
        stream = await client.stream("s")
        async with stream.consumer("g", group=True, save_seconds=0.05) as c:
            async for entry in c:
                print(entry.partition, entry.index, flush=True)

asyncio.run(main())
"""


def with_node(directory: Path, talk: Talk) -> None:
    async def run() -> None:
        async with Node(node_config(directory)) as node, await connect_to(node) as client:
            async with asyncio.timeout(60.0):
                await talk(node, client)

    asyncio.run(run())


node = handed_by(with_node)
client = handed_by(with_node, 1)


async def spread(*consumers: Consumer[Entry], of: int = 4) -> list[tuple[int, ...]]:
    """Wait until the partitions are spread over these, and return what each has."""

    def settled() -> bool:
        each = [len(one.partitions) for one in consumers]
        return sum(each) == of and max(each) - min(each) <= 1

    await until(settled)
    found = [one.partitions for one in consumers]
    assert sorted(number for part in found for number in part) == list(range(of))
    return found


async def test_members_share_a_stream_and_see_each_entry_once(client: Client) -> None:
    stream = await client.stream("s", partitions=4)
    for number in range(4):
        await stream.push_many([b"%d" % nth for nth in range(50)], partition=number)
    taken: list[tuple[int, int]] = []

    async def work(consumer: Consumer[Entry]) -> None:
        async for entry in consumer:
            taken.append((entry.partition, entry.index))
            await asyncio.sleep(0.001)

    async def processed(count: int) -> None:
        # What was handed out last counts once the next is asked for.
        await until(lambda: len(taken) == count and not any(one.in_flight for one in consumers))

    consumers: list[Consumer[Entry]] = []
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        while len(consumers) < 3:
            consumer = stream.consumer("g", group=True)
            consumers.append(await stack.enter_async_context(consumer))
            tasks.create_task(work(consumer))
            await asyncio.sleep(0.02)
        await spread(*consumers)
        await processed(200)
        await consumers[0].aclose()
        await spread(*consumers[1:])
        for number in range(4):
            await stream.push_many([b"more"] * 10, partition=number)
        await processed(240)
        for consumer in consumers[1:]:
            await consumer.aclose()
    assert Counter(taken) == Counter((number, nth) for number in range(4) for nth in range(60))
    saved = {one.partition: (one.index, one.lag) for one in await client.indexes("s")}
    assert saved == dict.fromkeys(range(4), (60, 0))


async def test_a_member_is_told_what_comes_and_goes(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    told: list[tuple[str, int]] = []
    first = stream.consumer(
        "g",
        group=True,
        on_assigned=lambda parts: told.extend(("came", one) for one in parts),
        on_revoked=lambda parts: told.extend(("gone", one) for one in parts),
    )
    async with first:
        await spread(first, of=2)
        async with stream.consumer("g", group=True) as second:
            await spread(first, second, of=2)
        await spread(first, of=2)
    assert told[2:] == [("gone", 1), ("came", 1)]
    assert sorted(told[:2]) == [("came", 0), ("came", 1)]


async def test_what_is_in_flight_is_waited_for_before_a_partition_goes(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    for number in range(2):
        await stream.push_many([b"x"] * 3, partition=number)
    async with stream.consumer("g", group=True, ack="explicit") as first:
        taken = [await first.next(timeout=5.0) for _ in range(6)]
        async with stream.consumer("g", group=True) as second:
            await asyncio.sleep(0.3)
            assert second.partitions == ()
            for entry in taken:
                first.ack(entry)
            parts = await spread(first, second, of=2)
            with pytest.raises(TimeoutError):
                await second.next(timeout=0.3)
            gone = next(entry for entry in taken if entry.partition == parts[1][0])
            with pytest.raises(ConsumerError, match="was not handed out"):
                first.ack(gone)


async def test_a_member_that_never_acknowledges_holds_only_its_own(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    async with (
        stream.consumer("g", group=True, ack="explicit", max_in_flight=1) as lazy,
        stream.consumer("g", group=True) as busy,
    ):
        (own,), (other,) = await spread(lazy, busy, of=2)
        for number in range(2):
            await stream.push_many([b"x"] * 5, partition=number)
        assert (await lazy.next(timeout=5.0)).partition == own
        found = [await busy.next(timeout=5.0) for _ in range(5)]
        assert {entry.partition for entry in found} == {other}
        with pytest.raises(TimeoutError, match="was acknowledged"):
            await lazy.next(timeout=0.1)


async def test_a_name_is_a_groups_or_a_single_consumers(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    async with stream.consumer("one"), stream.consumer("one"):
        with pytest.raises(GroupError, match="A single consumer uses this name") as refused:
            async with stream.consumer("one", group=True):
                pass
        assert refused.value.code == "group.name"
    async with stream.consumer("one", group=True):
        with pytest.raises(GroupError, match="say group=True"):
            async with stream.consumer("one"):
                pass
        with pytest.raises(GroupError) as refused:
            await client.set_index("one", "s", 5)
        assert refused.value.code == "group.in_use"
        # Also before a position is saved under it.
        with pytest.raises(QueueError, match="one is a consumer of s already"):
            async with stream.work("one"):
                pass
    async with stream.consumer("one"):
        assert await client.set_index("one", "s", 5) == 5
    with pytest.raises(ConsumerError, match="none can be chosen"):
        stream.consumer("one", group=True, partitions=[0])
    with pytest.raises(RequestError) as invalid:
        async with stream.consumer("x" * 513, group=True):
            pass
    assert invalid.value.code == "index.invalid"


async def test_a_position_is_saved_although_the_groups_actor_has_ended(
    node: Node, client: Client
) -> None:
    stream = await client.stream("s")
    await stream.push_many([b"x"] * 3)
    async with stream.consumer("g", group=True, save_seconds=60.0) as consumer:
        await consumer.batch(2, timeout=5.0)
        consumer.ack(await consumer.next(timeout=5.0))
        node.observed.system.exit(node.observed.router.table[group_address("s", "g")])
        await consumer.save()
        assert await client.get_index("g", "s") == 3


async def test_a_position_is_not_saved_by_who_was_given_up(node: Node, client: Client) -> None:
    stream = await client.stream("s")
    await stream.push_many([b"x"] * 3)
    async with Proxy(node.addresses()["noise"]) as proxy:
        other = await connect_to(node, through=proxy.address)
        far = (await other.stream("s")).consumer("g", group=True, save_seconds=60.0)
        async with other, far, stream.consumer("g", group=True) as near:
            await spread(far, of=1)
            far.ack(await far.next(timeout=5.0))
            await proxy.take_away()
            await until(lambda: near.partitions == (0,))
            await proxy.bring_back()
            with pytest.raises(GroupError, match="another member's by now") as refused:
                await far.save()
            assert refused.value.code == "group.generation"
            assert await client.get_index("g", "s") is None
            await far.save()  # it has nothing of that any more


async def test_a_group_may_begin_at_the_end(client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    for number in range(2):
        await stream.push_many([b"old"] * 3, partition=number)
    async with stream.consumer("g", group=True, start="end") as consumer:
        await spread(consumer, of=2)
    saved = {one.partition: one.index for one in await client.indexes("s")}
    assert saved == {0: 3, 1: 3}
    await stream.push(b"new")
    async with stream.consumer("g", group=True) as consumer:
        assert (await consumer.next(timeout=5.0)).data == b"new"


async def test_a_partition_is_read_however_long_nobody_can_say_from_where(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await client.stream("s")
    await stream.push(b"x")
    refusals = [RequestError("store.busy", "as of a full disk", retryable=True)] * 100
    load = Sharing._load_position  # pyright: ignore[reportPrivateUsage]

    async def late(sharing: Sharing, partition: int) -> int | None:
        if refusals:
            raise refusals.pop()
        return await load(sharing, partition)

    monkeypatch.setattr("rillnode.node.client.group.RETRY_SECONDS", 0.0)
    monkeypatch.setattr(Sharing, "_load_position", late)
    async with stream.consumer("g", group=True) as consumer:
        assert (await consumer.next(timeout=10.0)).data == b"x"


async def test_two_hundred_members_of_four_partitions(node: Node, client: Client) -> None:
    stream = await client.stream("s", partitions=4)
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(stream.consumer("g", group=True)) for _ in range(200)
        ]
        await until(lambda: sum(len(one.partitions) for one in members) == 4)
        assert max(len(one.partitions) for one in members) == 1
        (kind,) = [
            stats for name, stats in node.observed.system.stats().items()
            if name.endswith(".GroupActor")
        ]  # fmt: skip
        handled = kind.handled
        await asyncio.sleep(1.0)
        (kind,) = [
            stats for name, stats in node.observed.system.stats().items()
            if name.endswith(".GroupActor")
        ]  # fmt: skip
        assert kind.handled - handled <= 10  # signs of life of four
        holder = next(one for one in members if one.partitions)
        await stream.push(b"x", partition=holder.partitions[0])
        assert (await holder.next(timeout=5.0)).data == b"x"


async def test_a_cut_link_is_waited_for_and_then_not(node: Node, client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    async with Proxy(node.addresses()["noise"]) as proxy:
        other = await connect_to(node, through=proxy.address)
        far = (await other.stream("s")).consumer("g", group=True, save_seconds=0.05)
        near = stream.consumer("g", group=True)
        async with other, far, near:
            (own,), _ = await spread(far, near, of=2)
            proxy.cut()
            await until(lambda: other.connected)
            await stream.push(b"1", partition=own)
            assert (await far.next(timeout=5.0)).data == b"1"
            assert far.partitions == (own,)
            await proxy.take_away()
            await until(lambda: near.partitions == (0, 1))
            # What it had in hand was not acknowledged: it comes to the other one.
            assert (await near.next(timeout=5.0)).data == b"1"


@pytest.mark.parametrize("ends", ["close", "link"])
async def test_who_waits_without_a_partition_is_told_of_the_clients_end(
    node: Node, client: Client, ends: str
) -> None:
    async with Proxy(node.addresses()["noise"]) as proxy:
        url = f"noise://{proxy.address}"
        other = await connect(url, identity=CLIENT, node_identity=node.identity, reconnect=False)
        async with (await client.stream("s")).consumer("g", group=True) as busy:
            await spread(busy, of=1)
            idle = (await other.stream("s")).consumer("g", group=True)
            async with idle:
                waiting = asyncio.ensure_future(anext(idle))
                await asyncio.sleep(0.1)
                assert not idle.partitions
                if ends == "close":
                    await other.close()
                else:
                    proxy.cut()
                with pytest.raises(TransportError) as caught:
                    await asyncio.wait_for(waiting, 5.0)
                assert caught.value.code == ("client.closed" if ends == "close" else "link.closed")
        await other.close()


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("ends", ["close", "stop"])
async def test_who_waits_to_join_is_told_of_the_end(node: Node, group: bool, ends: str) -> None:
    async with Proxy(node.addresses()["noise"]) as proxy:
        client = await connect_to(node, through=proxy.address)
        consumer = (await client.stream("s")).consumer("c", group=group)
        await proxy.take_away()
        await until(lambda: not client.connected)
        waiting = asyncio.ensure_future(consumer.next())
        await asyncio.sleep(0.1)
        if ends == "close":
            await client.close(timeout_seconds=0.1)
        else:
            consumer.stop()
        with pytest.raises(RillnodeError) as caught:
            await asyncio.wait_for(waiting, 5.0)
        assert caught.value.code == ("client.closed" if ends == "close" else "consumer.stopped")
        await client.close(timeout_seconds=0.1)


async def test_a_killed_members_partitions_move(node: Node, client: Client, tmp_path: Path) -> None:
    key = tmp_path / "client.key"
    write_key(key, CLIENT)
    stream = await client.stream("s", partitions=4)
    url = f"noise://{node.addresses()['noise']}"
    process = Forked("-c", MEMBER, url, node.identity, key, stdout=PIPE)
    try:
        async with stream.consumer("g", group=True) as survivor:
            # By what the group says: a member takes on what it has one after the other.
            async with asyncio.timeout(20.0):
                while [len(one.partitions) for one in await members(client)] != [2, 2]:
                    await asyncio.sleep(0.01)
            await until(lambda: len(survivor.partitions) == 2)
            kept = set(survivor.partitions)
            for number in range(4):
                await stream.push_many([b"x"] * 20, partition=number)
            seen = Counter((one.partition, one.index) for one in await take(survivor, 40))
            lines = await asyncio.to_thread(told, process, 40)
            await asyncio.sleep(1.0)
            process.send_signal(signal.SIGKILL)
            await until(lambda: len(survivor.partitions) == 4)
            assert kept < set(survivor.partitions)
            theirs = [tuple(map(int, line.split())) for line in lines]
            seen.update((number, index) for number, index in theirs)
            # All but the last that it had in hand of each were acknowledged, and saved.
            again = [(one.partition, one.index) for one in await survivor.batch(9, timeout=0.5)]
            assert again in ([], [theirs[-1]])
            assert set(seen) == {(number, nth) for number in range(4) for nth in range(20)}
            assert max(seen.values()) == 1
    finally:
        process.kill()
        process.wait()


async def members(client: Client) -> list[GroupMember]:
    """Return the members of the only group."""
    (group,) = await client.groups("s")
    return group.members


def told(process: Forked, count: int) -> list[bytes]:
    """Read so many lines that a program has printed; fewer where it has ended."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


async def take(consumer: Consumer[Entry], count: int) -> list[Entry]:
    """Take so many entries; all of them count as processed."""
    found: list[Entry] = []
    while len(found) < count:
        found += await consumer.batch(count - len(found), timeout=5.0)
    await consumer.batch(1, timeout=0.0)
    return found


async def test_a_node_that_is_started_again_goes_on_in_later_generations(tmp_path: Path) -> None:
    config = node_config(tmp_path)
    async with Node(config) as node, await connect_to(node) as client:
        stream = await client.stream("s", partitions=2)
        async with stream.consumer("g", group=True) as consumer:
            await spread(consumer, of=2)
            (before,) = await client.groups("s")
    async with Node(config) as node, await connect_to(node) as client:
        (resting,) = await client.groups("s")
        assert (resting.members, resting.generation) == ([], before.generation + 1)
        stream = await client.stream("s")
        async with stream.consumer("g", group=True) as consumer:
            await spread(consumer, of=2)
            (after,) = await client.groups()
            assert after.generation > before.generation
            assert [one.partitions for one in after.members] == [(0, 1)]


async def test_the_blocking_face_has_groups(node: Node, client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    await stream.push(b"x")
    url, key = f"noise://{node.addresses()['noise']}", CLIENT

    def blocking() -> bytes:
        with (
            connect_blocking(url, identity=key, node_identity=node.identity) as face,
            face.stream("s").consumer("g", group=True) as consumer,
        ):
            entry = consumer.next(timeout=5.0)
            # It reads from each partition as soon as it knows where to begin there.
            deadline = time.monotonic() + 5.0
            while consumer.partitions != (0, 1) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert consumer.partitions == (0, 1)
            (group,) = face.groups("s")
            assert group.name == "g"
            return bytes(entry.data)

    assert await asyncio.to_thread(blocking) == b"x"


async def test_groups_are_seen_with_their_members(node: Node, client: Client) -> None:
    stream = await client.stream("s", partitions=2)
    await stream.push_many([b"x"] * 3)
    async with (
        stream.consumer("g", group=True) as consumer,
        stream.consumer("single"),
        aiohttp.ClientSession() as session,
    ):
        await consumer.batch(2, timeout=5.0)
        await consumer.batch(1, timeout=0.1)
        await consumer.save()

        async def document(path: str) -> Any:
            async with session.get(f"http://{node.addresses()['http']}{path}") as response:
                assert response.status == 200
                return await response.json() if "metrics" not in path else await response.text()

        (group,) = (await client.status())["groups"]
        assert (group["name"], group["stream"], group["members_count"]) == ("g", "s", 1)
        (member,) = group["members"]
        assert (member["principal"], member["partitions"]) == (
            f"noise:{CLIENT.public_hex}", [0, 1],
        )  # fmt: skip
        one = await document("/v1/streams/s")
        assert one["groups"] == [group]
        every = await document("/v1/consumers")
        assert every["groups"] == [group]
        assert [row["member"] for row in every["positions"]] == [member["id"]]
        (position,) = [row for row in one["positions"] if row["client_id"] == "g"]
        assert (position["partition"], position["lag"], position["member"]) == (
            0, 1, member["id"],
        )  # fmt: skip
        (row,) = (await document("/v1/streams"))["streams"]
        assert row["members"] == 1
        metrics = await document("/metrics")
        assert 'rillnode_group_members{group="g",stream="s"} 1.0' in metrics
        found = [about async for about in client.routes("*", kind="group")]
        assert sorted(about.name for about in found) == [
            "g of s: 1 members", "single of s: 1 members",
        ]  # fmt: skip
