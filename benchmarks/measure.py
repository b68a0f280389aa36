"""Measures latencies and rates for load generators."""

import asyncio
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from itertools import accumulate, islice
from random import Random
from typing import Final, Protocol

from benchmarks.jobs import BackJob, PushJob, Result
from benchmarks.processes import cpu_seconds

_PAYLOADS: Final = 4_096
_WARM_UP: Final = 0.25
"""Part of a job's time that runs before the measurement."""

RETRY_SECONDS: Final = 0.5
"""A push that has no outcome by then is made again, where it is looked for when one has."""


def payloads(message_bytes: int, count: int = _PAYLOADS) -> list[bytes]:
    """Random messages: no two alike, so that nothing is gained by compressing them."""
    return [os.urandom(message_bytes) for _ in range(count)]


class NumberedPayloads:
    """Messages that can be made again from their numbers, in any process."""

    def __init__(self, message_bytes: int) -> None:
        random = Random(message_bytes)
        self._tails = [random.randbytes(message_bytes - 8) for _ in range(_PAYLOADS)]

    def __getitem__(self, number: int) -> bytes:
        """The message with this number."""
        return number.to_bytes(8, "big") + self._tails[number % _PAYLOADS]


class Meter:
    """Counts confirmed messages between the end of the warm-up and the end of a job."""

    def __init__(self, job: PushJob) -> None:
        self._pid = job.endpoint.pid
        self._keepers = job.endpoint.keepers
        self._begin = time.perf_counter() + job.seconds * _WARM_UP
        self._seconds = job.seconds
        self._end = self._begin + job.seconds
        self._begun = 0.0
        self._cpu = (0.0, 0.0)
        self._keepers_cpu = 0.0
        self._latencies: list[float] = []
        self._counts: list[int] = []

    def running(self, now: float) -> bool:
        """Whether there is still time; to be asked after each confirm."""
        if not self._begun and now >= self._begin:
            self._begun = now
            # From now: a peer that syncs each message may have taken seconds for the first window.
            self._end = now + self._seconds
            self._latencies.clear()
            self._counts.clear()
            self._cpu = (cpu_seconds(self._pid), time.process_time())
            self._keepers_cpu = sum(map(cpu_seconds, self._keepers))
        return now < self._end

    def confirmed(self, latency: float, count: int = 1) -> None:
        """Count messages that were confirmed `latency` seconds after they were sent."""
        self._latencies.append(latency)
        self._counts.append(count)

    def result(self) -> Result:
        """Rate, latency and processor time per message, as of now."""
        seconds = time.perf_counter() - self._begun
        confirmed = sum(self._counts)
        server = cpu_seconds(self._pid) - self._cpu[0]
        client = time.process_time() - self._cpu[1]
        result = {
            "confirmed_per_second": confirmed / seconds,
            "p50_ms": self._percentile(0.50) * 1e3,
            "p99_ms": self._percentile(0.99) * 1e3,
            "server_cpu_us": server / confirmed * 1e6,
            "client_cpu_us": client / confirmed * 1e6,
        }
        if self._keepers:
            keepers = sum(map(cpu_seconds, self._keepers)) - self._keepers_cpu
            result["keepers_cpu_us"] = keepers / confirmed * 1e6
        return result

    def _percentile(self, share: float) -> float:
        """The latency that this share of all messages did not exceed."""
        ordered = sorted(zip(self._latencies, self._counts, strict=True))
        reached = list(accumulate(count for _, count in ordered))
        return ordered[bisect_left(reached, share * reached[-1])][0]


class Connection(Protocol):
    """A peer's connection, whose answers come in the order of what was sent."""

    def send(self, data: bytes) -> None:
        """Send packed messages."""
        ...

    async def confirms(self) -> int:
        """Wait for confirms; return how many have come."""
        ...


async def push_window(
    meter: Meter, connection: Connection, messages: Iterator[bytes], window: int
) -> Result:
    """W1 for a peer: keep `window` packed messages unconfirmed, then wait for the last of them."""
    sent: deque[tuple[float, int]] = deque()
    unconfirmed = 0
    now = time.perf_counter()
    while meter.running(now):
        free = window - unconfirmed
        connection.send(b"".join(islice(messages, free)))
        sent.append((now, free))
        confirmed = await connection.confirms()
        unconfirmed = window - confirmed
        now = time.perf_counter()
        while confirmed:
            at, count = sent.popleft()
            taken = min(count, confirmed)
            meter.confirmed(now - at, taken)
            confirmed -= taken
            if taken < count:
                sent.appendleft((at, count - taken))
    result = meter.result()
    while unconfirmed:
        unconfirmed -= await connection.confirms()
    return result


async def until_back(
    job: BackJob, push: Callable[[], Awaitable[object]], failures: tuple[type[Exception], ...]
) -> AsyncGenerator[Result]:
    """Push one message after the other until one is confirmed after a gap; the two phases.

    The second tells when that was, on the clock that all processes of a machine have.
    """
    began = False
    last = time.monotonic()
    while True:
        try:
            await push()
        except failures:
            await asyncio.sleep(0.01)
            continue
        now = time.monotonic()
        if not began:
            began = True
            yield {}
            last = time.monotonic()
        elif now - last >= job.gap_seconds:
            yield {"confirmed_at_seconds": now}
            return
        else:
            last = now
        await asyncio.sleep(0.005)


class Reading:
    """Times one replay."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu = (cpu_seconds(pid), time.process_time())
        self._started = time.perf_counter()

    def result(self, count: int) -> Result:
        """Rate and processor time per message, as of now."""
        seconds = time.perf_counter() - self._started
        server, client = cpu_seconds(self._pid) - self._cpu[0], time.process_time() - self._cpu[1]
        return {
            "messages_per_second": count / seconds,
            "server_cpu_us": server / count * 1e6,
            "client_cpu_us": client / count * 1e6,
        }
