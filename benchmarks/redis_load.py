"""Load on Redis streams: the leanest client that Python can have, hiredis over asyncio."""

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator
from itertools import cycle, islice
from time import perf_counter
from typing import Any, Final

import hiredis

from benchmarks.jobs import (
    Endpoint,
    FillJob,
    LinksJob,
    PushJob,
    ReplayJob,
    Result,
    StreamsJob,
    WorkJob,
)
from benchmarks.measure import Meter, Reading, payloads, push_window

_READ_BYTES: Final = 262_144
_TOGETHER: Final = 1_000
"""Commands sent at one time where there is no window."""


class _Redis:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader(notEnoughData=_NOTHING)

    @classmethod
    async def connect(cls, endpoint: Endpoint) -> "_Redis":
        context = None
        if endpoint.ca_file:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", endpoint.port, ssl=context, limit=_READ_BYTES
            )
        )

    def send(self, data: bytes) -> None:
        """Send packed commands."""
        self._writer.write(data)

    async def replies(self) -> list[Any]:
        """Wait for replies; at least one.

        Raises:
            hiredis.ReplyError: the server refused a command.
        """
        found: list[Any] = []
        while not found:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise ConnectionError("Redis has closed the connection")
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not _NOTHING:
                if isinstance(reply, hiredis.ReplyError):
                    raise reply
                found.append(reply)
        return found

    async def confirms(self) -> int:
        """Wait for replies; return how many have come."""
        return len(await self.replies())

    async def command(self, *words: str | int | bytes) -> Any:
        """Send one command and wait for its reply."""
        self.send(hiredis.pack_command(words))
        (reply,) = await self.replies()
        return reply

    async def pipeline(self, commands: list[bytes]) -> None:
        """Send packed commands and wait for all replies."""
        self.send(b"".join(commands))
        left = len(commands)
        while left:
            left -= await self.confirms()


_NOTHING: Final = object()


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1."""
    redis = await _Redis.connect(job.endpoint)
    # Each command is packed once, and not in the measured time: this favours the peer.
    commands = cycle([_add(job.stream, data) for data in payloads(job.message_bytes)])
    meter = Meter(job)
    yield await push_window(meter, redis, commands, job.window)
    await redis.command("DEL", job.stream)


async def fill(job: FillJob) -> AsyncGenerator[Result]:
    """W2: store what is then replayed."""
    redis = await _Redis.connect(job.endpoint)
    commands = cycle([_add(job.stream, data) for data in payloads(job.message_bytes)])
    started = perf_counter()
    for start in range(0, job.count, _TOGETHER):
        await redis.pipeline(list(islice(commands, min(_TOGETHER, job.count - start))))
    yield {"messages_per_second": job.count / (perf_counter() - started)}


async def replay(job: ReplayJob) -> AsyncGenerator[Result]:
    """W2: XREAD from an id on; as a group, each batch is acknowledged."""
    redis = await _Redis.connect(job.endpoint)
    group = job.mode == "group"
    if group:
        await redis.command("XGROUP", "CREATE", job.stream, job.consumer, "0")
    reading = Reading(job.endpoint.pid)
    read, last = 0, b"0"
    while read < job.count:
        if group:
            reply = await redis.command(
                "XREADGROUP", "GROUP", job.consumer, "one", "COUNT", job.batch,
                "STREAMS", job.stream, ">",
            )  # fmt: skip
        else:
            reply = await redis.command("XREAD", "COUNT", job.batch, "STREAMS", job.stream, last)
        entries = reply[0][1]
        for _, (_, data) in entries:  # an application takes the data of each
            read += len(data) > 0
        last = entries[-1][0]
        if group:
            await redis.command("XACK", job.stream, job.consumer, *(entry[0] for entry in entries))
    yield reading.result(job.count)


async def work(job: WorkJob) -> AsyncGenerator[Result]:
    """Consumers of one group; each entry is acknowledged, those of one read by one command."""
    workers = [await _Redis.connect(job.endpoint) for _ in range(job.workers)]
    await workers[0].command("XGROUP", "CREATE", job.stream, job.queue, "0")
    reading = Reading(job.endpoint.pid)
    done = await asyncio.gather(*(_work(redis, job, f"{n}") for n, redis in enumerate(workers)))
    if sum(done) != job.count:
        raise RuntimeError(f"{sum(done)} entries were acknowledged, not {job.count}")
    yield reading.result(job.count)


async def _work(redis: _Redis, job: WorkJob, name: str) -> int:
    done = 0
    while True:
        reply = await redis.command(
            "XREADGROUP", "GROUP", job.queue, name, "COUNT", job.in_flight,
            "STREAMS", job.stream, ">",
        )  # fmt: skip
        if not reply:
            return done
        ids = [entry for entry, (_, data) in reply[0][1] if data]
        done += await redis.command("XACK", job.stream, job.queue, *ids)


async def streams(job: StreamsJob) -> AsyncGenerator[Result]:
    """W4: in Redis the first message makes the stream, so creates are first pushes."""
    redis = await _Redis.connect(job.endpoint)
    yield {}
    message = payloads(job.message_bytes, 1)[0]
    commands = [_add(f"w4-{number}", message) for number in range(job.count)]
    rate = await _all(redis, commands)
    yield {"creates_per_second": rate}
    yield {"first_pushes_per_second": rate}
    random.shuffle(commands)
    yield {"random_pushes_per_second": await _all(redis, commands)}


async def _all(redis: _Redis, commands: list[bytes]) -> float:
    started = perf_counter()
    for start in range(0, len(commands), _TOGETHER):
        await redis.pipeline(commands[start : start + _TOGETHER])
    return len(commands) / (perf_counter() - started)


async def links(job: LinksJob) -> AsyncGenerator[Result]:
    """W5: connections that block in XREAD."""
    follow = hiredis.pack_command(("XREAD", "BLOCK", 0, "STREAMS", "w5", "$"))
    opened = [await _Redis.connect(job.endpoint)]
    opened[0].send(follow)
    yield {}
    started = perf_counter()
    while len(opened) <= job.count:
        some = min(100, job.count + 1 - len(opened))
        opened += await asyncio.gather(*(_Redis.connect(job.endpoint) for _ in range(some)))
    seconds = perf_counter() - started
    for redis in opened[1:]:
        redis.send(follow)
    yield {"links_per_second": job.count / seconds}


def _add(stream: str, data: bytes) -> bytes:
    return hiredis.pack_command(("XADD", stream, "*", "d", data))
