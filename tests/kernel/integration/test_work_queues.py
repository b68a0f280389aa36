"""Work queues against a running node, over links that are lost."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from command_line import call, lines
from nodes import CLIENT, at_own_ports, connect_to, node_config
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.errors import JobLate, QueueError, QueueStopped, RillnodeError
from rillnode.node.client import (
    Client,
    Job,
    TakenBack,
    WorkQueue,
    connect,
    connect_blocking,
)
from rillnode.node.client.stream import Stream
from rillnode.node.config import GrantTable
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.proxy import Proxy

ENTRIES = 200


async def filled(client: Client, count: int = ENTRIES, *, partitions: int = 2) -> Stream:
    stream = await client.stream("jobs", partitions=partitions)
    for partition in range(partitions):
        items = [b"%d/%d" % (partition, number) for number in range(count // partitions)]
        await stream.push_many(items, partition=partition)
    return stream


async def work_until(queue: WorkQueue, done: Counter[bytes], count: int) -> None:
    """Work until so many entries are done by all who share the counter."""
    while len(done) < count:
        try:
            job = await queue.next(timeout=0.5)
        except TimeoutError:
            continue
        async with job:
            done[job.data] += 1


async def test_workers_share_a_queue_and_each_entry_is_done_once(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as one:
        other = await connect_to(node)
        stream = await filled(one)
        done: Counter[bytes] = Counter()
        async with other, stream.work("q") as first:
            theirs = await other.stream("jobs")
            async with theirs.work("q") as second, asyncio.TaskGroup() as tasks:
                for queue in (first, first, second):
                    tasks.create_task(work_until(queue, done, ENTRIES))
        assert len(done) == ENTRIES
        assert set(done.values()) == {1}
        # A queue of another name begins anew, and what is done stays done.
        async with stream.work("q") as queue:
            with pytest.raises(TimeoutError):
                await queue.next(timeout=0.2)
        async with stream.work("another") as queue:
            assert (await queue.next(timeout=5.0)).attempt == 1


async def test_what_fails_is_given_again_and_is_a_dead_letter_in_the_end(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("jobs")
        await stream.push(b"bad", key="k", headers={"h": "1"})
        async with stream.work("q", attempts=2) as queue:
            job = await queue.next(timeout=5.0)
            assert (job.key, job.headers, job.attempt) == (b"k", {"h": b"1"}, 1)
            await job.retry(0.01)
            assert job.is_answered
            for answer in (job.done(), job.extend(1.0), job.reject()):
                with pytest.raises(JobLate, match="Attempt 1 at entry 0") as caught:
                    await answer
                assert caught.value.code == "queue.late"
            job = await queue.next(timeout=5.0)
            with pytest.raises(ZeroDivisionError):
                async with job:
                    raise ZeroDivisionError("no paper")
            with pytest.raises(TimeoutError):
                await queue.next(timeout=0.2)
        dead = await client.stream("jobs.dead")
        (entry,) = await dead.pull()
        assert (entry.data, entry.key, entry.headers) == (b"bad", b"k", {"h": b"1"})
        note = DeadLetter.of(entry)
        assert (note.queue, note.attempts, note.index) == ("q", 2, 0)
        assert note.reason == "ZeroDivisionError: no paper"


async def test_what_is_late_is_refused(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("jobs")
        await stream.push(b"x")
        async with stream.work("q", visibility_seconds=0.2) as queue:
            late = await queue.next(timeout=5.0)
            for seconds in (-1.0, 1e9):
                with pytest.raises(QueueError, match="0 to 43,200 s") as caught:
                    await late.retry(seconds)
                assert caught.value.code == "queue.limit"
            again = await queue.next(timeout=5.0)
            assert (again.index, again.attempt) == (0, 2)
            with pytest.raises(JobLate):
                await late.done()
            await again.extend(30.0)
            await asyncio.sleep(0.5)
            await again.done()


@pytest.mark.parametrize("sleep", [asyncio.sleep, time.sleep])
async def test_what_waits_behind_slow_jobs_costs_no_attempt(
    tmp_path: Path, sleep: Callable[[float], Awaitable[None] | None]
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 8, partitions=1)
        done: list[int] = []
        async with stream.work("q", attempts=1, visibility_seconds=2.0, in_flight=8) as queue:
            while len(done) < 8:
                job = await queue.next(timeout=5.0)
                waiting = sleep(0.3)  # with the loop, or in it
                if waiting is not None:
                    await waiting
                await job.done()
                done.append(job.index)
        assert sorted(done) == list(range(8))
        assert (await client.queue("jobs", "q")).dead == 0


async def test_what_waits_at_a_worker_that_hangs_goes_to_another(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 6, partitions=1)
        async with stream.work("q", visibility_seconds=1.0, in_flight=6) as hanging:
            held = await hanging.next(timeout=5.0)
            await held.extend(60.0)
            async with stream.work("q", visibility_seconds=1.0) as other:
                done: list[tuple[int, int]] = []
                while len(done) < 5:
                    job = await other.next(timeout=5.0)
                    await job.done()
                    done.append((job.index, job.attempt))
        assert sorted(done) == [(index, 1) for index in range(6) if index != held.index]


async def test_leaving_gives_back_what_was_not_answered(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 10, partitions=1)
        async with stream.work("q", in_flight=10) as queue:
            begun = await queue.next(timeout=5.0)
        with pytest.raises(JobLate):
            await begun.done()
        with pytest.raises(QueueStopped):
            await queue.next(timeout=1.0)
        async with stream.work("q", in_flight=10) as queue:
            jobs = [await queue.next(timeout=5.0) for _ in range(10)]
        # Of those that waited at the worker no attempt was lost.
        assert Counter(job.attempt for job in jobs) == {1: 9, 2: 1}


async def test_a_worker_that_nobody_refers_to_gives_its_jobs_back(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 6, partitions=1)
        begun = await anext(stream.work("q", in_flight=6))
        await asyncio.sleep(0.1)
        # As long as a job is in use its worker is.
        await begun.extend(60.0)
        assert (await client.queue("jobs", "q")).workers == 1
        del begun
        gc.collect()
        async with stream.work("q", in_flight=6) as queue:
            jobs = [await queue.next(timeout=1.5) for _ in range(6)]
        assert Counter(job.attempt for job in jobs) == {1: 5, 2: 1}


async def test_a_wait_that_is_cancelled_loses_no_job(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("jobs")
        async with stream.work("q", in_flight=32) as queue:
            got: list[Job] = []
            for number in range(20):
                waiting = asyncio.create_task(queue.next())
                await asyncio.sleep(0)
                pushing = asyncio.create_task(stream.push(b"%d" % number))
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    got.append(await waiting)
                await pushing
            while len(got) < 20:
                got.append(await queue.next(timeout=5.0))
            assert [int(job.data) for job in got] == list(range(20))


async def test_links_that_are_lost_cost_no_job_and_no_word(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        await filled(client)
        async with Proxy(node.addresses()["noise"]) as proxy:
            worker = await connect_to(node, through=proxy.address)
            done: Counter[bytes] = Counter()
            async with worker, (await worker.stream("jobs")).work("q") as queue:
                working = asyncio.create_task(work_until(queue, done, ENTRIES))
                for _ in range(5):
                    await asyncio.sleep(0.02)
                    proxy.cut()
                await asyncio.wait_for(working, 60.0)
                assert set(done.values()) == {1}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"attempts": 0}, "queue.limit"),
        ({"in_flight": -1}, "queue.limit"),
        ({"visibility_seconds": 1e9}, "queue.limit"),
    ],
)
async def test_numbers_that_cannot_be_are_refused(
    tmp_path: Path, fields: dict[str, float], code: str
) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("jobs")
        with pytest.raises(QueueError) as caught:
            async with stream.work("q", **fields):  # type: ignore[arg-type]
                pass
        assert caught.value.code == code


def test_a_removed_stream_ends_the_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
            stream = await client.stream("jobs")
            async with stream.work("q") as queue:
                waiting = asyncio.create_task(queue.next())
                await asyncio.sleep(0.1)
                await client.remove("jobs")
                with pytest.raises(RillnodeError) as caught:
                    await waiting
                assert caught.value.code == "stream.removed"
            await asyncio.sleep(0.1)

    asyncio.run(run())
    assert "bad_delivery" not in caplog.text  # nobody waits for what is taken out of the store


async def test_who_waits_to_be_a_worker_is_told_of_the_clients_end(tmp_path: Path) -> None:
    async with (
        Node(node_config(tmp_path)) as node,
        Proxy(node.addresses()["noise"]) as proxy,
        asyncio.timeout(30.0),
    ):
        client = await connect_to(node, through=proxy.address)
        queue = (await client.stream("jobs")).work("q")
        await proxy.take_away()
        entering = asyncio.ensure_future(queue.__aenter__())
        await asyncio.sleep(0.1)
        await client.close(timeout_seconds=0.1)
        with pytest.raises(QueueStopped):
            await entering


@pytest.mark.parametrize("code", ["queue.revoked", "stream.removed", "link.closed"])
async def test_a_worker_that_has_failed_for_good_keeps_no_job_and_nobody_waiting(
    tmp_path: Path, code: str
) -> None:
    async with (
        Node(node_config(tmp_path)) as node,
        Proxy(node.addresses()["noise"]) as proxy,
        asyncio.timeout(30.0),
    ):
        url = f"noise://{proxy.address}"
        client = await connect(url, identity=CLIENT, node_identity=node.identity, reconnect=False)
        stream = await filled(client, 4, partitions=1)
        busy = stream.work("q", in_flight=4, visibility_seconds=3_600.0)
        held = await busy.next()
        assert "4 in flight" in repr(busy)
        idle = stream.work("q", visibility_seconds=3_600.0)
        waiting = [asyncio.create_task(idle.next()) for _ in range(2)]
        while not idle._worker.joined:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
        match code:
            case "queue.revoked":
                left = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="s", may=("pull",))
                node.reload(replace(node.config, grants=(left,)))
            case "stream.removed":
                await node.client.remove("jobs")
            case _:
                proxy.cut()
        for wait in waiting:
            with pytest.raises(RillnodeError) as caught:
                await wait
            assert caught.value.code == code
        for queue in (busy, idle):  # though three jobs have waited at the first of them
            with pytest.raises(RillnodeError) as caught:
                await queue.next()
            assert caught.value.code == code
        assert "1 in flight" in repr(busy)
        with pytest.raises(RillnodeError):
            await held.done()
        # Long before their time is over all that it had is another's.
        if code != "stream.removed":
            async with (await node.client.stream("jobs")).work("q") as other:
                jobs = [await other.next() for _ in range(4)]
            assert {job.index for job in jobs} == {0, 1, 2, 3}
        await busy.stop()
        await idle.stop()
        await client.close()


async def test_a_node_that_starts_again_knows_what_is_with_workers(tmp_path: Path) -> None:
    config = at_own_ports(node_config(tmp_path))
    async with Node(config) as node:
        client = await connect_to(node)
        stream = await filled(client, 20, partitions=1)
        queue = stream.work("q", in_flight=4)
        await queue.__aenter__()
        held: list[Job] = [await queue.next(timeout=5.0) for _ in range(4)]
        await held[0].done()
        held[0] = await queue.next(timeout=5.0)
    async with Node(config):
        for job in held:
            await job.done()
        rest = [await queue.next(timeout=20.0) for _ in range(4)]
        assert [job.index for job in rest] == [5, 6, 7, 8]
        assert {job.attempt for job in rest} == {1}
        await client.close()


def test_the_blocking_face_works_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        async with Node(node_config(tmp_path)) as node:
            address = f"noise://{node.addresses()['noise']}"
            await asyncio.to_thread(blocking, address, node.identity)

    def blocking(address: str, identity: str) -> None:
        with connect_blocking(address, identity=CLIENT, node_identity=identity) as client:
            stream = client.stream("jobs")
            stream.push_many([b"a", b"b", b"c", b"d"])
            with stream.work("q", attempts=1) as queue:
                job = queue.next(timeout=5.0)
                job.extend(60.0)
                assert (job.data, job.attempt, job.entry.index) == (b"a", 1, 0)
                job.done()
                assert job.is_answered
                with queue.next(timeout=5.0) as job:
                    job.retry(reason="no")
                next(queue).reject("never")
                with next(queue) as job:
                    assert job.data == b"d"
                with pytest.raises(TimeoutError):
                    queue.next(timeout=0.1)
            assert client.queues("jobs") == [("jobs", "q")]
            info = client.queue("jobs", "q")
            assert (info.depth, info.done, info.dead, info.workers) == (0, 2, 2, 0)
            assert client.take_back("jobs", "q", entries_max=1) == TakenBack(1, 0)
            assert client.queue("jobs", "q").depth == 1

    asyncio.run(run())


async def test_operators_list_queues_look_at_one_and_take_dead_letters_back(tmp_path: Path) -> None:
    key = tmp_path / "client.key"
    write_key(key, CLIENT)

    async def carried_out(node: Node, *verb: str) -> list[dict[str, Any]]:
        address = f"noise://{node.addresses()['noise']}"
        options = ("--node", address, "--node-identity", node.identity, "--key", key, "--json")
        return lines(await asyncio.to_thread(call, *verb, *options))

    async with Node(node_config(tmp_path / "node")) as node, await connect_to(node) as client:
        assert await carried_out(node, "queue", "ls") == []
        stream = await filled(client, 4, partitions=2)
        async with stream.work("q", attempts=1) as queue:
            for _ in range(3):
                await (await queue.next(timeout=5.0)).reject("no paper")
        (row,) = await carried_out(node, "queue", "ls", "jobs")
        assert (row["queue"], row["depth"], row["dead"]) == ("q", 1, 3)
        (found,) = await carried_out(node, "queue", "show", "jobs", "q", "-n", "2")
        assert [one["index"] for one in found["dead_letters"]] == [1, 2]
        assert {one["reason"] for one in found["dead_letters"]} == {"no paper"}
        assert [one["end"] for one in found["partitions"]] == [2, 2]
        (back,) = await carried_out(node, "queue", "retry", "jobs", "q")
        assert (back["taken"], back["gone"]) == (3, 0)
        (row,) = await carried_out(node, "queue", "ls")
        assert (row["depth"], row["dead"]) == (4, 0)
        (about,) = await carried_out(node, "route", "ls", "--kind", "queue")
        assert about["name"] == "q of jobs"


async def test_letters_of_a_stream_that_was_made_anew_are_taken_back(tmp_path: Path) -> None:
    async with (
        Node(node_config(tmp_path)) as node,
        await connect_to(node) as client,
        asyncio.timeout(30.0),
    ):
        stream = await filled(client, 3, partitions=1)
        async with stream.work("q", attempts=1) as queue:
            for _ in range(3):
                await (await queue.next()).reject("no")
            assert await client.take_back("jobs", "q") == TakenBack(3, 0)
            for _ in range(3):
                await (await queue.next()).done()
            await client.remove("jobs.dead")
            assert await client.take_back("jobs", "q") == TakenBack(0, 0)
            await stream.push_many([b"x", b"y"])
            for _ in range(2):
                await (await queue.next()).reject("no")
            while (await client.queue("jobs", "q")).dead_kept < 2:
                await asyncio.sleep(0.01)
            assert await client.take_back("jobs", "q") == TakenBack(2, 0)
            assert await client.take_back("jobs", "q") == TakenBack(0, 0)


async def test_a_queue_is_seen_on_the_pages_while_it_is_worked_on(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 6, partitions=1)
        async with stream.work("q", in_flight=2) as queue, aiohttp.ClientSession() as session:
            await (await queue.next(timeout=5.0)).reject("no")
            await queue.next(timeout=5.0)
            base = f"http://{node.addresses()['http']}"
            async with session.get(f"{base}/v1/queues") as answer:
                (row,) = (await answer.json())["queues"]
            wanted = {"depth": 5, "in_flight": 2, "waiting": 0, "workers": 1, "dead": 1}
            assert {name: row[name] for name in wanted} == wanted
            assert abs(time.time() - row["oldest_at"] / 1_000) < 60.0
            async with session.get(f"{base}/v1/streams/jobs") as answer:
                assert (await answer.json())["queues"] == [row]
            async with session.get(f"{base}/metrics") as answer:
                found = (await answer.text()).splitlines()
            labels = '{queue="q",stream="jobs"}'
            assert f"rillnode_queue_depth_entries{labels} 5.0" in found
            assert f"rillnode_queue_in_flight_entries{labels} 2.0" in found
            assert f"rillnode_queue_dead_entries{labels} 1.0" in found
            assert f"rillnode_queue_held{labels} 0.0" in found
            (shown,) = node.status()["queues"]
            assert shown == row


async def test_a_worker_that_cannot_be_asked_for_is_not_asked_for_on_the_next_link(
    tmp_path: Path,
) -> None:
    async with (
        Node(node_config(tmp_path)) as node,
        Proxy(node.addresses()["noise"]) as proxy,
        await connect_to(node, through=proxy.address) as client,
    ):
        stream = await filled(client, 2)
        for seconds in (float("inf"), -1.0):
            with pytest.raises(QueueError, match=r"0\.01 to"):
                stream.work("q", visibility_seconds=seconds)
        with pytest.raises(RillnodeError, match=r"^attempts is .*client\.argument"):
            async with stream.work("q", attempts=2**70):
                pass
        proxy.cut()
        async with stream.work("q") as queue:
            await (await queue.next(timeout=10.0)).done()


async def test_a_reason_that_is_no_text_fails_nothing_that_is_said_with_it(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await filled(client, 2)
        async with stream.work("q") as queue:
            jobs = [await queue.next(timeout=5.0) for _ in range(2)]
            await asyncio.gather(jobs[0].reject("no file \udcff"), jobs[1].done())
        letters = await client.stream("jobs.dead")
        (letter,) = await letters.pull()
        assert DeadLetter.of(letter).reason == "no file \\udcff"
