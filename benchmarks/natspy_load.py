"""Loads NATS JetStream by its own Python client, without rillnode."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import cycle, islice
from time import perf_counter
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig

from benchmarks.jobs import (
    BackJob,
    Endpoint,
    FillJob,
    FollowJob,
    PushJob,
    ReplayJob,
    Result,
    StreamsJob,
)
from benchmarks.measure import RETRY_SECONDS, Meter, Reading, payloads, until_back

NAME: Final = "nats-py"
"""What the servers know these clients by."""

_ANSWER_SECONDS: Final = 30.0
_TOGETHER: Final = 64
"""Streams created at one time."""


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1: publications whose answers are awaited in order, at most a window of them."""
    js = await _connect(job.endpoint)
    await _make(js, job.endpoint, job.stream)
    meter = Meter(job)
    messages = cycle(payloads(job.message_bytes))
    sent: deque[tuple[asyncio.Future[Any], float]] = deque()
    now = perf_counter()
    while meter.running(now):
        for message in islice(messages, job.window - len(sent)):
            sent.append((await _publish(js, job.stream, message), now))
        await sent[0][0]
        now = perf_counter()
        while sent and sent[0][0].done():
            confirm, at = sent.popleft()
            confirm.result()
            meter.confirmed(now - at)
    yield meter.result()


async def fill(job: FillJob) -> AsyncGenerator[Result]:
    """W2: store what is then replayed."""
    js = await _connect(job.endpoint)
    await _make(js, job.endpoint, job.stream)
    messages = cycle(payloads(job.message_bytes))
    started = perf_counter()
    left = job.count
    while left:
        some = min(1_000, left)
        sent = [await _publish(js, job.stream, message) for message in islice(messages, some)]
        await asyncio.gather(*sent)
        left -= some
    yield {"messages_per_second": job.count / (perf_counter() - started)}


async def replay(job: ReplayJob) -> AsyncGenerator[Result]:
    """W2: an ordered consumer."""
    js = await _connect(job.endpoint)
    reading = Reading(job.endpoint.pid)
    subscription = await js.subscribe(job.stream, stream=job.stream, ordered_consumer=True)
    read = 0
    while read < job.count:
        message = await subscription.next_msg(_ANSWER_SECONDS)
        read += len(message.data) > 0
    yield reading.result(read)


async def streams(job: StreamsJob) -> AsyncGenerator[Result]:
    """W4: a JetStream stream each, or a subject of one; phases as a node's."""
    js = await _connect(job.endpoint)
    await _make(js, job.endpoint, "before")
    yield {}
    separator = "." if job.subjects else "-"
    names = [f"w4{separator}{number}" for number in range(job.count)]
    started = perf_counter()
    if job.subjects:
        await _make(js, job.endpoint, "w4", "w4.*")
    else:
        for start in range(0, job.count, _TOGETHER):
            some = names[start : start + _TOGETHER]
            await asyncio.gather(*(_make(js, job.endpoint, name) for name in some))
    yield {"creates_per_second": job.count / (perf_counter() - started)}
    message = payloads(job.message_bytes, 1)[0]
    yield {"first_pushes_per_second": await _push_each(js, job, names, message)}
    random.shuffle(names)
    yield {"random_pushes_per_second": await _push_each(js, job, names, message)}


async def follow(job: FollowJob) -> AsyncGenerator[Result]:
    """An ordered consumer for each subject of one stream, which is how one follows it."""
    js = await _connect(job.endpoint)
    await _make(js, job.endpoint, "follow", "follow.*")
    names = [f"follow.{number}" for number in range(job.count)]
    started = perf_counter()
    followed: list[Any] = []
    for start in range(0, job.count, _TOGETHER):
        some = names[start : start + _TOGETHER]
        followed += await asyncio.gather(
            *(js.subscribe(name, stream="follow", ordered_consumer=True) for name in some)
        )
    yield {"followed_per_second": job.count / (perf_counter() - started)}
    started = perf_counter()
    await (await _publish(js, names[-1], b"news"))
    await followed[-1].next_msg(_ANSWER_SECONDS)
    yield {"news_ms": (perf_counter() - started) * 1e3}


async def back(job: BackJob) -> AsyncGenerator[Result]:
    """Publications that are made again where they fail."""
    js = await _connect(job.endpoint)
    await _make(js, job.endpoint, job.stream)

    async def push() -> None:
        # Its headers have no type.
        await js.publish(job.stream, b"x", timeout=RETRY_SECONDS)  # pyright: ignore[reportUnknownMemberType]

    async for result in until_back(job, push, (Error, TimeoutError)):
        yield result


async def _push_each(
    js: JetStreamContext, job: StreamsJob, names: Sequence[str], message: bytes
) -> float:
    started = perf_counter()
    for start in range(0, len(names), job.together):
        some = names[start : start + job.together]
        await asyncio.gather(*[await _publish(js, name, message) for name in some])
    return len(names) / (perf_counter() - started)


async def _connect(endpoint: Endpoint) -> JetStreamContext:
    client = Client()
    await client.connect(f"nats://127.0.0.1:{endpoint.port}", name=NAME, connect_timeout=10)
    return JetStreamContext(client, timeout=_ANSWER_SECONDS)


async def _publish(js: JetStreamContext, stream: str, message: bytes) -> asyncio.Future[Any]:
    """Send; the future is the confirm."""
    # Its headers have no type.
    return await js.publish_async(stream, message)  # pyright: ignore[reportUnknownMemberType]


async def _make(js: JetStreamContext, endpoint: Endpoint, name: str, subjects: str = "") -> None:
    """Make a stream as a node makes its own: in files, with so many replicas."""
    config = StreamConfig(
        name=name,
        subjects=[subjects or name],
        storage=StorageType.FILE,
        num_replicas=endpoint.replicas,
        allow_direct=True,
    )
    # What it takes beside a configuration has no type.
    await js.add_stream(config)  # pyright: ignore[reportUnknownMemberType]
