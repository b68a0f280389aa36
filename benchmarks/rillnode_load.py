"""Load on a rillnode node, through its own client, as an application would make it."""

import asyncio
import random
import statistics
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from benchmarks.jobs import (
    BackJob,
    CheckJob,
    CrashJob,
    DividedJob,
    Endpoint,
    FillJob,
    FollowJob,
    LinksJob,
    NumberedJob,
    PushJob,
    ReplayJob,
    Result,
    SpreadJob,
    StreamsJob,
    WorkJob,
)
from benchmarks.measure import (
    RETRY_SECONDS,
    Meter,
    NumberedPayloads,
    Reading,
    payloads,
    until_back,
)
from benchmarks.processes import cpu_seconds
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, Stream, WorkQueue, connect
from rillnode.node.client.appends import Appends
from rillnode.node.iteration import Iteration

_SAVE_ENTRIES: Final = 10_000
"""How often a reader of whole batches saves its position."""

_RUN: Final = 256
"""Messages pushed in one turn of the loop: the node takes them while the next are prepared."""

_TOGETHER: Final = 1_000
"""Streams created, and connections made, at one time."""


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1: keep the window full, in the order of the confirms."""
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream)
        meter = Meter(job)
        messages = cycle(payloads(job.message_bytes))
        push_nowait = stream.push_nowait
        unconfirmed: deque[tuple[asyncio.Future[int], float]] = deque()
        now = perf_counter()
        while meter.running(now):
            while (free := job.window - len(unconfirmed)) > 0:
                for message in islice(messages, min(free, _RUN)):
                    unconfirmed.append((push_nowait(message), now))
                if free > _RUN:
                    await asyncio.sleep(0)
            await unconfirmed[0][0]
            now = perf_counter()
            while unconfirmed and unconfirmed[0][0].done():
                confirm, sent = unconfirmed.popleft()
                confirm.result()
                meter.confirmed(now - sent)
        yield meter.result()


async def numbered(job: NumberedJob) -> AsyncGenerator[Result]:
    """Push by turns, as short as can be measured: a busy machine is as busy for both."""
    async with await connect_to(job.endpoint) as client, await connect_to(job.endpoint) as plain:
        session = plain._session  # pyright: ignore[reportPrivateUsage]
        session.appends = Appends(session, b"")  # nobody has numbered what it sends
        ways = [_Way(job, await one.stream(name)) for one, name in ((client, "n"), (plain, "p"))]
        for way in ways:
            await way.push(job.turn_seconds)  # to warm up
            way.forget()
        end = perf_counter() + job.seconds
        while perf_counter() < end:
            for way in (*ways, *reversed(ways)):
                await way.push(job.turn_seconds)
        for way in ways:
            yield way.result()


class _Way:
    """What one of two ways to push has come to."""

    def __init__(self, job: NumberedJob, stream: Stream) -> None:
        self._job = job
        self._stream = stream
        self._messages = cycle(payloads(job.message_bytes))
        self.forget()

    def forget(self) -> None:
        """Count from now on."""
        self._confirmed = 0
        self._seconds = self._server = self._client = 0.0

    async def push(self, seconds: float) -> None:
        """Keep the window full for so long, and wait for the last confirms."""
        unconfirmed: deque[asyncio.Future[int]] = deque()
        server, client = cpu_seconds(self._job.endpoint.pid), process_time()
        begin = now = perf_counter()
        while now < begin + seconds:
            free = self._job.window - len(unconfirmed)
            unconfirmed.extend(map(self._stream.push_nowait, islice(self._messages, free)))
            await unconfirmed[0]
            while unconfirmed and unconfirmed[0].done():
                unconfirmed.popleft().result()
                self._confirmed += 1
            now = perf_counter()
        self._confirmed += len(await asyncio.gather(*unconfirmed))
        self._seconds += perf_counter() - begin
        self._server += cpu_seconds(self._job.endpoint.pid) - server
        self._client += process_time() - client

    def result(self) -> Result:
        """Rate and processor time of all turns."""
        return {
            "confirmed_per_second": self._confirmed / self._seconds,
            "server_cpu_us": self._server / self._confirmed * 1e6,
            "client_cpu_us": self._client / self._confirmed * 1e6,
        }


async def fill(job: FillJob) -> AsyncGenerator[Result]:
    """W2: store what is then replayed."""
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream)
        started = perf_counter()
        await stream.push_many(islice(cycle(payloads(job.message_bytes)), job.count))
        yield {"messages_per_second": job.count / (perf_counter() - started)}


async def replay(job: ReplayJob) -> AsyncGenerator[Result]:
    """W2: `tail` and a consumer give entry by entry, `batches` what came together."""
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream)
        reading = Reading(job.endpoint.pid)
        match job.mode:
            case "tail":
                read = await _until(stream.tail(start="start"), job.count)
            case "consumer, saved":
                read = await _until(stream.consumer(job.consumer), job.count)
            case "batches":
                read = await _batches(stream, job.count, client, "")
            case "batches, saved":
                read = await _batches(stream, job.count, client, job.consumer)
            case _:
                raise ValueError(job.mode)
        result = reading.result(job.count)
        if read != job.count:
            raise RuntimeError(f"{read} entries were read, not {job.count}")
        yield result


async def _until(entries: Iteration[Entry], count: int) -> int:
    """Take entries one by one; return the number of different ones."""
    read = 0
    try:
        async for entry in entries:
            if entry.index != read:
                raise RuntimeError(f"entry {entry.index} came, not {read}")
            read += 1
            if read == count:
                break
    finally:
        await entries.aclose()
    return read


async def _batches(stream: Stream, count: int, client: Client, consumer: str) -> int:
    read = saved = 0
    batches = stream.batches(start="start")
    try:
        async for batch in batches:
            read = batch[-1].index + 1
            if consumer and (read >= count or read - saved >= _SAVE_ENTRIES):
                saved = await client.set_index(consumer, stream.name, read)
            if read >= count:
                break
    finally:
        await batches.aclose()
    return read


async def work(job: WorkJob) -> AsyncGenerator[Result]:
    """Workers that say `done` of each job, and do not wait for that before they take the next."""
    clients = [await connect_to(job.endpoint) for _ in range(job.workers)]
    reading = Reading(job.endpoint.pid)
    left = _Left(job.count)
    await asyncio.gather(*(_work(client, job, left) for client in clients))
    yield reading.result(job.count)
    for client in clients:
        await client.close()


class _Left:
    """How many messages are not done yet, of all workers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.is_over = asyncio.Event()

    async def confirm(self, said: deque[asyncio.Future[None]], more: asyncio.Event) -> None:
        """Wait until what a worker has said is durable, in the order in which it has said it."""
        while True:
            while not said:
                more.clear()
                await more.wait()
            await said[0]
            while said and said[0].done():
                said.popleft().result()
                self.count -= 1
            if not self.count:
                self.is_over.set()


async def _work(client: Client, job: WorkJob, left: _Left) -> None:
    stream = await client.stream(job.stream)
    said, more = deque[asyncio.Future[None]](), asyncio.Event()
    async with stream.work(job.queue, in_flight=job.in_flight) as queue:
        tasks = [
            asyncio.create_task(_take(queue, said, more)),
            asyncio.create_task(left.confirm(said, more)),
        ]
        await left.is_over.wait()
        for task in tasks:
            task.cancel()


async def _take(queue: WorkQueue, said: deque[asyncio.Future[None]], more: asyncio.Event) -> None:
    async for one in queue:
        said.append(one.done_nowait())
        if len(said) == 1:
            more.set()


async def streams(job: StreamsJob) -> AsyncGenerator[Result]:
    """W4: the phases are connected, created, pushed once, pushed once more."""
    async with await connect_to(job.endpoint) as client:
        await client.stream("before")
        yield {}
        message = payloads(job.message_bytes, 1)[0]
        opened: list[Stream] = []
        started = perf_counter()
        for start in range(0, job.count, _TOGETHER):
            names = range(start, min(start + _TOGETHER, job.count))
            opened += await client.open_streams([f"w4-{n}" for n in names])
        yield {"creates_per_second": job.count / (perf_counter() - started)}
        yield {"first_pushes_per_second": await _push_each(job, opened, message)}
        random.shuffle(opened)
        yield {"random_pushes_per_second": await _push_each(job, opened, message)}


async def _push_each(job: StreamsJob, streams: Sequence[Stream], message: bytes) -> float:
    """Push one message to each stream; return the rate."""
    started = perf_counter()
    for start in range(0, len(streams), job.together):
        pushed = [stream.push_nowait(message) for stream in streams[start : start + job.together]]
        for confirm in pushed:
            await confirm
    return len(streams) / (perf_counter() - started)


async def follow(job: FollowJob) -> AsyncGenerator[Result]:
    """A subscription to each stream, over one link."""
    async with await connect_to(job.endpoint) as client:
        names = [f"follow-{number}" for number in range(job.count)]
        opened: list[Stream] = []
        for start in range(0, job.count, _TOGETHER):
            some = names[start : start + _TOGETHER]
            opened += await asyncio.gather(*(client.stream(name) for name in some))
        started = perf_counter()
        following = [asyncio.create_task(_first_of(stream)) for stream in opened]
        await asyncio.sleep(0)
        await opened[-1].pull(0, 1)  # answered after the subscriptions, which went before it
        yield {"followed_per_second": job.count / (perf_counter() - started)}
        started = perf_counter()
        await opened[-1].push(b"news")
        await following[-1]
        yield {"news_ms": (perf_counter() - started) * 1e3}
        for task in following:
            task.cancel()


async def _first_of(stream: Stream) -> list[Entry]:
    return await anext(stream.batches(start=0))


async def divided(job: DividedJob) -> AsyncGenerator[Result]:
    """All streams at once."""
    async with await connect_to(job.endpoint) as client:
        opened = [await client.stream(name) for name in job.streams]
        messages = payloads(job.message_bytes, 64)
        yield {}
        pushing = (one.push_many(islice(cycle(messages), job.count)) for one in opened)
        await asyncio.gather(*pushing)
        yield {}


async def back(job: BackJob) -> AsyncGenerator[Result]:
    """Pushes that are made again where they fail."""
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream)

        async def push() -> None:
            async with asyncio.timeout(RETRY_SECONDS):
                await stream.push(b"x")

        async for result in until_back(job, push, (RillnodeError, TimeoutError)):
            yield result


async def links(job: LinksJob) -> AsyncGenerator[Result]:
    """W5: the phases are one connection, all connections."""
    clients = [await connect_to(job.endpoint)]
    await clients[0].stream("w5")
    following = [await follow_idle(clients[0])]
    yield {}
    started = perf_counter()
    while len(clients) <= job.count:
        some = min(100, job.count + 1 - len(clients))
        clients += await asyncio.gather(*(connect_to(job.endpoint) for _ in range(some)))
    seconds = perf_counter() - started
    for start in range(1, len(clients), 100):
        following += await asyncio.gather(*map(follow_idle, clients[start : start + 100]))
    yield {"links_per_second": job.count / seconds}
    for task in following:
        task.cancel()


async def follow_idle(client: Client) -> asyncio.Task[list[Entry]]:
    """Wait for the next entry of the stream without any; return when the node knows."""
    stream = await client.stream("w5")

    async def next_batch() -> list[Entry]:
        return await anext(stream.batches(start=0))

    task = asyncio.create_task(next_batch())
    await asyncio.sleep(0)
    await stream.pull(0, 1)  # answered after the subscription, which went before it
    return task


async def crash(job: CrashJob) -> AsyncGenerator[Result]:
    """W6: the phases are under full load, server gone."""
    client = await connect_to(job.endpoint, reconnect=False)
    stream = await client.stream(job.stream)
    pushing = asyncio.create_task(_push_until_lost(stream, job))
    yield {}
    confirms = await pushing
    with Path(job.confirms_file).open("wb") as file:
        confirms.tofile(file)
    yield {"confirmed": len(confirms) / 2}


async def _push_until_lost(stream: Stream, job: CrashJob) -> "array[int]":
    """Return the (index, number) pairs of all that was confirmed."""
    messages = NumberedPayloads(job.message_bytes)
    confirms = array("Q")
    unconfirmed: deque[tuple[asyncio.Future[int], int]] = deque()
    number = job.first
    while True:
        try:
            while len(unconfirmed) < job.window:
                unconfirmed.append((stream.push_nowait(messages[number]), number))
                number += 1
            await unconfirmed[0][0]
        except RillnodeError:
            break
        while unconfirmed and unconfirmed[0][0].done() and not unconfirmed[0][0].exception():
            confirm, of = unconfirmed.popleft()
            confirms.extend((confirm.result(), of))
    await asyncio.wait([confirm for confirm, _ in unconfirmed])
    for confirm, of in unconfirmed:
        if confirm.exception() is None:
            confirms.extend((confirm.result(), of))
    return confirms


async def check(job: CheckJob) -> AsyncGenerator[Result]:
    """W6: count what was confirmed and is not there, has other bytes, or left a hole."""
    messages = NumberedPayloads(job.message_bytes)
    expected: dict[int, int] = {}
    for name in job.confirms_files:
        pairs = array("Q", Path(name).read_bytes())
        expected.update(zip(pairs[::2], pairs[1::2], strict=True))
    lost = wrong = holes = 0
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream)
        (partition,) = (await client.describe(job.stream)).partitions
        index = job.start
        batches = stream.batches(start=index)
        while index < partition.next_index:
            for entry in await anext(batches):
                holes += entry.index != index
                index = entry.index + 1
                number = expected.pop(entry.index, None)
                made = messages[int.from_bytes(entry.data[:8], "big")]
                wrong += entry.data != (made if number is None else messages[number])
        await batches.aclose()
        lost = len(expected)
    yield {"next_index": index, "lost": lost, "wrong": wrong, "holes": holes}


async def connect_to(endpoint: Endpoint, *, reconnect: bool = True) -> Client:
    """A client of a node."""
    return await connect(
        f"noise://127.0.0.1:{endpoint.port}",
        key_file=endpoint.key_file,
        node_identity=endpoint.node_identity,
        reconnect=reconnect,
    )


async def spread(job: SpreadJob) -> AsyncGenerator[Result]:
    """All partitions of a stream at once: how much is confirmed, and the longest pause of any."""
    async with await connect_to(job.endpoint) as client:
        stream = await client.stream(job.stream, partitions=job.partitions)
        end = asyncio.Event()
        pushing = [
            asyncio.create_task(_push_on(stream, partition, job, end))
            for partition in range(job.partitions)
        ]
        await asyncio.sleep(0.5)
        yield {}
        begin = perf_counter()
        await asyncio.sleep(job.seconds)
        seconds = perf_counter() - begin
        end.set()
        confirms = [[at for at in times if at >= begin] for times in await asyncio.gather(*pushing)]
        pauses = [max(b - a for a, b in pairwise([begin, *times])) for times in confirms]
        yield {
            "confirmed_per_second": sum(map(len, confirms)) / seconds,
            "longest_pause_ms": max(pauses) * 1e3,
            "median_of_longest_pauses_ms": statistics.median(pauses) * 1e3,
        }


async def _push_on(
    stream: Stream, partition: int, job: SpreadJob, end: asyncio.Event
) -> list[float]:
    """Push to one partition until the end; return when each message was confirmed."""
    messages = cycle(payloads(job.message_bytes, 64))
    times = [perf_counter()]
    unconfirmed: deque[asyncio.Future[int]] = deque()
    while not end.is_set():
        while len(unconfirmed) < job.window:
            unconfirmed.append(stream.push_nowait(next(messages), partition=partition))
        await unconfirmed[0]
        now = perf_counter()
        while unconfirmed and unconfirmed[0].done():
            unconfirmed.popleft().result()
            times.append(now)
    await asyncio.gather(*unconfirmed)
    return times
