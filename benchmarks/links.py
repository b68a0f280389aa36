"""Links: sealing, echo over an encrypted socket, and what an idle connection costs a server.

    python -m benchmarks.links

The server runs in a process of its own; rates of the codec are per second of processor time.
"""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import Link, LinkLimits
from rillnode.transports.tcp import dial, listen

_NODE = Identity.from_seed(b"n" * 32)
_CLIENT = Identity.from_seed(b"c" * 32)
_LIMITS = LinkLimits(handshake_seconds=120.0)
_READ_BYTES = 262_144


class Echo:
    """Sends back what it gets."""

    def link_opened(self, link: Link) -> None:
        """Remember the link."""
        self.link = link

    def messages_received(self, messages: list[bytes]) -> None:
        """Echo, and hold back a peer that does not read."""
        self.link.send(messages)
        if self.link.buffered_bytes > LINK_BUFFER_HIGH_BYTES:
            self.link.pause_reading()

    def link_drained(self) -> None:
        """Read on."""
        self.link.resume_reading()

    def link_closed(self, reason: str) -> None:
        """Nothing to do."""


class Counting(Echo):
    """Counts what comes back and keeps a window of batches under way."""

    def __init__(self, batch: Sequence[bytes], window: int, total: int) -> None:
        self._batch, self._window, self._left = batch, window, total
        self._out = 0
        self.done = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Fill the window."""
        for _ in range(self._window // len(self._batch)):
            self.link.send(self._batch)
            self._out += len(self._batch)

    def messages_received(self, messages: list[bytes]) -> None:
        """Count and refill."""
        self._out -= len(messages)
        self._left -= len(messages)
        if self._left <= 0:
            if not self.done.done():
                self.done.set_result(None)
            return
        while self._out + len(self._batch) <= self._window:
            self.link.send(self._batch)
            self._out += len(self._batch)


def main() -> None:
    """Run all parts, or the server that they start."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(_serve())
        return
    _codec_table()
    asyncio.run(_echo_table())
    _memory_table()


def _joined(suite: Suite) -> tuple[NoiseLink, NoiseLink]:
    near = NoiseLink.initiator(_CLIENT, suite=suite)
    far = NoiseLink.responder(_NODE, accept=lambda _: True)
    far.receive(near.start())
    for end, other in ((near, far), (far, near), (near, far)):
        end.receive(other.take_output())
    return near, far


def _processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _codec_table() -> None:
    handshakes = 200
    seconds = _processor_seconds(lambda: [_joined(Suite.AESGCM_SHA256) for _ in range(handshakes)])
    print(f"handshake, both sides: {seconds / handshakes * 1e6:,.0f} us\n")
    print(f"{'suite':<20}{'bytes':>7}{'batch':>7}{'seal msg/s':>14}{'open msg/s':>14}{'MB/s':>9}")
    for suite in Suite:
        for size, count in ((64, 1), (64, 1_000), (1_024, 1), (1_024, 64), (1_024, 1_024)):
            sealing, opening = min(_seal_and_open(suite, size, count) for _ in range(9))
            print(
                f"{suite.name:<20}{size:>7,}{count:>7,}{1 / sealing:>14,.0f}"
                f"{1 / opening:>14,.0f}{size / (sealing + opening) / 1e6:>9,.0f}"
            )


def _seal_and_open(suite: Suite, size: int, count: int) -> tuple[float, float]:
    """Processor seconds per message for sealing and for opening."""
    near, far = _joined(suite)
    batch = [os.urandom(size) for _ in range(count)]
    rounds = max(1, 4_096 // count)
    sealed = list[bytes]()
    sealing = _processor_seconds(lambda: sealed.extend(near.encode(batch) for _ in range(rounds)))
    reads = sealed
    if count > 1:
        stream = b"".join(sealed)
        reads = [stream[at : at + _READ_BYTES] for at in range(0, len(stream), _READ_BYTES)]
    opening = _processor_seconds(lambda: deque(map(far.receive, reads), maxlen=0))
    return sealing / (rounds * count), opening / (rounds * count)


class _Server:
    """The echo server's process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.links", "serve"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = self._number()

    def rss_bytes(self) -> int:
        """Resident memory of the server now."""
        assert self._process.stdin is not None
        self._process.stdin.write("rss\n")
        self._process.stdin.flush()
        return self._number()

    def stop(self) -> None:
        """End the server and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    listener = await listen(
        "127.0.0.1",
        0,
        codec_factory=lambda: NoiseLink.responder(_NODE, accept=lambda _: True),
        events_factory=Echo,
        transport_name="noise",
        clock=SystemClock(loop),
        limits=_LIMITS,
    )
    print(listener.port, flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(pages * resource.getpagesize(), flush=True)


async def _echo_table() -> None:
    server = _Server()
    print(f"\n{'echo, 1 KiB, both ways':<27}{'batch':>7}{'window':>8}{'msg/s':>12}")
    for batch, window, total in ((1, 1, 5_000), (64, 1_024, 300_000), (64, 4_096, 300_000)):
        events = Counting([os.urandom(1_024)] * batch, window, total)
        await _connect(server.port, events)
        started = time.perf_counter()
        events.start()
        await events.done
        rate = total / (time.perf_counter() - started)
        print(f"{'':<27}{batch:>7,}{window:>8,}{rate:>12,.0f}")
        events.link.close("done")
    server.stop()


def _memory_table() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"\n{'idle encrypted connections':<27}{'server RSS MB':>15}{'kB each':>9}")
    for count in (1_000, 5_000):
        if count + 100 > most:
            print(f"{count:<27,} needs more than the {most:,} open files allowed here")
            continue
        server = _Server()
        before, after = asyncio.run(_idle(server, count))
        print(f"{count:<27,}{after / 1e6:>15,.1f}{(after - before) / count / 1e3:>9,.1f}")
        server.stop()


async def _idle(server: _Server, count: int) -> tuple[int, int]:
    """The server's memory with one connection, and with `count` more."""
    await _connect(server.port, Echo())
    before = server.rss_bytes()
    for start in range(0, count, 50):
        await asyncio.gather(
            *(_connect(server.port, Echo()) for _ in range(start, min(start + 50, count)))
        )
    return before, server.rss_bytes()


async def _connect(port: int, events: Echo) -> None:
    await dial(
        "127.0.0.1",
        port,
        codec=NoiseLink.initiator(_CLIENT, node_identity=_NODE.public_hex),
        events=events,
        transport_name="noise",
        clock=SystemClock(asyncio.get_running_loop()),
        limits=_LIMITS,
    )


if __name__ == "__main__":
    main()
