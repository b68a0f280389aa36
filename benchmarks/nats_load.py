"""Load on NATS JetStream."""

import asyncio
import random
from collections.abc import AsyncGenerator
from itertools import cycle, islice
from time import perf_counter
from typing import Final

from benchmarks.jobs import (
    FillJob,
    LinksJob,
    PushJob,
    ReplayJob,
    Result,
    StreamsJob,
    WorkJob,
)
from benchmarks.measure import Meter, Reading, payloads, push_window
from benchmarks.nats_client import Nats, publication

_STREAMS_MAX: Final = 2_000
"""More streams than that take minutes to make."""


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1."""
    connection = await Nats.connect(job.endpoint)
    await connection.create_stream(job.stream, job.stream)
    messages = cycle([publication(job.stream, data) for data in payloads(job.message_bytes)])
    meter = Meter(job)
    yield await push_window(meter, connection, messages, job.window)
    await connection.request(f"STREAM.DELETE.{job.stream}", {})


async def fill(job: FillJob) -> AsyncGenerator[Result]:
    """W2: store what is then replayed."""
    connection = await Nats.connect(job.endpoint)
    await connection.create_stream(job.stream, job.stream)
    messages = [publication(job.stream, data) for data in payloads(job.message_bytes)]
    started = perf_counter()
    await connection.push_all(list(islice(cycle(messages), job.count)))
    yield {"messages_per_second": job.count / (perf_counter() - started)}


async def replay(job: ReplayJob) -> AsyncGenerator[Result]:
    """W2: an ordered consumer is pushed to; a durable one fetches batches and acknowledges."""
    connection = await Nats.connect(job.endpoint)
    reading = Reading(job.endpoint.pid)
    if job.mode == "ordered":
        batches = connection.ordered(job.stream)
    else:
        batches = connection.fetched(job.stream, job.consumer, job.batch, job.count)
    read = 0
    async for batch in batches:
        for _, data in batch:  # an application takes the data of each
            read += len(data) > 0
        if read >= job.count:
            break
    yield reading.result(read)


async def work(job: WorkJob) -> AsyncGenerator[Result]:
    """Fetchers of one durable consumer; each message is acknowledged.

    Nothing answers that, or the server's word that it has heard it; that does not mean synced.
    """
    workers = [await Nats.connect(job.endpoint) for _ in range(job.workers)]
    await workers[0].create_worked(job.stream, job.queue, job.workers * job.in_flight)
    reading = Reading(job.endpoint.pid)
    share, more = divmod(job.count, job.workers)
    await asyncio.gather(*(one.work(job, n, share + (n < more)) for n, one in enumerate(workers)))
    yield reading.result(job.count)


async def streams(job: StreamsJob) -> AsyncGenerator[Result]:
    """W4: one JetStream stream each, of which there cannot be many."""
    connection = await Nats.connect(job.endpoint)
    await connection.create_stream("before", "before")
    yield {}
    count = min(job.count, _STREAMS_MAX)
    started = perf_counter()
    for number in range(count):
        await connection.create_stream(f"w4-{number}", f"w4-{number}")
    yield {"creates_per_second": count / (perf_counter() - started), "streams": count}
    message = payloads(job.message_bytes, 1)[0]
    publications = [publication(f"w4-{number}", message) for number in range(count)]
    for name in ("first_pushes_per_second", "random_pushes_per_second"):
        started = perf_counter()
        await connection.push_all(publications)
        yield {name: count / (perf_counter() - started)}
        random.shuffle(publications)


async def links(job: LinksJob) -> AsyncGenerator[Result]:
    """W5: connections with a subscription each."""
    opened = [await Nats.connect(job.endpoint)]
    yield {}
    started = perf_counter()
    while len(opened) <= job.count:
        some = min(100, job.count + 1 - len(opened))
        opened += await asyncio.gather(*(Nats.connect(job.endpoint) for _ in range(some)))
    seconds = perf_counter() - started
    for connection in opened[1:]:
        connection.send(b"SUB w5 2\r\n")
    yield {"links_per_second": job.count / seconds}
