"""Load on WebSocket servers: one publisher, many subscribers.

On a rillnode the messages are Streamr's; bare servers are sent the same texts, and nodes of
streamr-network the same messages in the form of nodes.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Final

import msgspec

from benchmarks.fanout_sockets import Outgoing, Socket, Subscribers, client_frame
from benchmarks.jobs import FanoutJob, Result
from benchmarks.processes import cpu_seconds
from rillnode import streamr
from rillnode.codecs.streamr.control import encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    PublishRequest,
    SubscribeRequest,
)
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage

_KEY: Final = streamr.EthereumKey(b"a publisher of the benchmarks".ljust(32, b"."))
_STREAM: Final = "w3"
_PATH: Final = "/api/v1/ws?controlLayerVersion=2&messageLayerVersion=32"
_WARM_UP: Final = 0.25
"""Part of a job's time that runs before the measurement."""

_BEHIND_MS: Final = 100_000
"""How far in the past messages are dated: a millisecond for each must not lead into the future."""

_STALLED_SECONDS: Final = 30.0

_SETTLE_SECONDS: Final = 2.0
"""Nodes of streamr-network do not answer who subscribes."""


async def fanout(job: FanoutJob) -> AsyncGenerator[Result]:
    """W3, and publishing with a single subscriber."""
    if job.endpoint.key_file:
        await make_stream(job.endpoint.port)
    # Threads and event loops would only slow it down from here on.
    yield await asyncio.to_thread(FanoutLoad(job).run)


async def make_stream(port: int) -> None:
    """Make a node's stream of the messages, where there is none."""
    async with await streamr.connect(f"ws://127.0.0.1:{port}", private_key=_KEY) as client:
        await client.get_or_create_stream(_STREAM)


class FanoutLoad:
    """One job on its own sockets."""

    def __init__(self, job: FanoutJob) -> None:
        publish_path, subscribe_path = (_PATH, _PATH) if job.endpoint.key_file else ("/pub", "/sub")
        self._job = job
        self._frames = _frames(job)
        subscribe = SubscribeRequest(stream_id=_STREAM, partition=0, request_id="s")
        if job.neighbours:
            sockets = [_neighbour(job, number) for number in range(job.subscribers)]
            for one in sockets:
                one.raw.sendall(client_frame(_wrapped(subscribe)))
            time.sleep(_SETTLE_SECONDS)
            publisher = _neighbour(job, job.subscribers)
        else:
            port = job.endpoint.port
            sockets = [Socket(port, subscribe_path) for _ in range(job.subscribers)]
            for one in sockets:
                one.ask(encode_control(subscribe, 2, 32).encode())
            publisher = Socket(port, publish_path)
        # The first message tells how long all others are, but for what precedes a second one.
        publisher.raw.sendall(next(self._frames) + next(self._frames))
        (size,) = {len(one.receive() and one.receive()) for one in sockets}
        self._message_bytes = size + (4 if size < 65_536 else 10)
        self._subscribers = Subscribers(sockets)
        self._outgoing = Outgoing(publisher)
        self._sent_at: list[float] = []
        self._latencies: list[float] = []
        self._seen = [0] * len(sockets)

    def run(self) -> Result:
        """Warm up, measure, and wait for the last message."""
        seconds = self._job.seconds
        self._until(time.perf_counter() + seconds * _WARM_UP)
        self._latencies.clear()
        server, client = cpu_seconds(self._job.endpoint.pid), time.process_time()
        received, began = self._subscribers.total, time.perf_counter()
        self._until(began + seconds)
        took = time.perf_counter() - began
        deliveries = (self._subscribers.total - received) / self._message_bytes
        server = cpu_seconds(self._job.endpoint.pid) - server
        client = time.process_time() - client
        result: Result = {
            "deliveries_per_second": deliveries / took,
            "server_cpu_us": server / deliveries * 1e6,
            "client_cpu_us": client / deliveries * 1e6,
        }
        if self._job.rate:
            self._latencies.sort()
            result |= {"p50_ms": self._latency(0.5), "p99_ms": self._latency(0.99)}
        self._finish()
        return result

    def publish(self, count: int) -> None:
        """Publish so many messages more in the job's window, and wait until all have come."""
        per_message = self._message_bytes * self._job.subscribers
        sent_in_all = len(self._sent_at) + count
        while (received := self._subscribers.total // per_message) < sent_in_all:
            most = min(sent_in_all, received + self._job.window)
            self._send(most - len(self._sent_at), 0.0)
            self._receive(1.0)

    def _until(self, end: float) -> None:
        """Send and receive up to a time."""
        job, size = self._job, self._message_bytes
        per_message = size * job.subscribers
        begin, sent_before = time.perf_counter(), len(self._sent_at)
        while (now := time.perf_counter()) < end:
            if job.rate:
                due = sent_before + int((now - begin) * job.rate) - len(self._sent_at)
                wait = begin + (len(self._sent_at) + due + 1 - sent_before) / job.rate - now
            else:
                due = job.window - len(self._sent_at) + self._subscribers.total // per_message
                wait = min(end - now, 1.0)
            self._send(due, now)
            self._receive(min(wait, end - now))

    def _send(self, count: int, now: float) -> None:
        frames = b"".join(islice(self._frames, max(count, 0)))
        self._sent_at += [now] * max(count, 0)
        self._outgoing.send(frames)

    def _receive(self, wait: float) -> None:
        read = self._subscribers.read(wait)
        if not self._job.rate:
            return
        now, size, counts, seen = (
            time.perf_counter(),
            self._message_bytes,
            self._subscribers.bytes,
            self._seen,
        )
        for number in read:
            have = counts[number] // size
            for nth in range(seen[number], have):
                self._latencies.append(now - self._sent_at[nth])
            seen[number] = have

    def _finish(self) -> None:
        """Wait for all that was sent.

        Raises:
            RuntimeError: a subscriber did not get every message, or got more.
        """
        wanted = len(self._sent_at) * self._message_bytes
        last = time.perf_counter()
        while min(self._subscribers.bytes) < wanted:
            before = self._subscribers.total
            self._outgoing.send()
            self._receive(0.1)
            if self._subscribers.total > before:
                last = time.perf_counter()
            elif time.perf_counter() - last > _STALLED_SECONDS:
                break
        if set(self._subscribers.bytes) != {wanted}:
            raise RuntimeError(f"not every subscriber has got {wanted} bytes")

    def _latency(self, share: float) -> float:
        return self._latencies[int(share * (len(self._latencies) - 1))] * 1e3


def _frames(job: FanoutJob) -> Iterator[bytes]:
    """Frames that publish one message after the other; from the second on all of one length."""
    if job.signed:
        # Made before the time is taken.
        yield from list(islice(_endless(job), job.signed))
        raise RuntimeError(f"the job needs more than {job.signed} messages")
    yield from _endless(job)


def _endless(job: FanoutJob) -> Iterator[bytes]:
    content = msgspec.json.encode({"data": "x" * (job.message_bytes - len('{"data":""}'))}).decode()
    timestamp = time.time_ns() // 1_000_000 - _BEHIND_MS
    previous: MessageRef | None = None
    while True:
        name = MessageId(_STREAM, 0, timestamp, 0, _KEY.address.lower(), "w" * 20)
        message = StreamMessage(id=name, previous=previous, content=content)
        if job.signed:
            message = sign_message(message, _KEY)
        previous = MessageRef(timestamp, 0)
        timestamp += 1
        if job.neighbours:
            yield client_frame(_wrapped(BroadcastMessage(message=message)))
        else:
            request = PublishRequest(message=message, request_id="p")
            yield client_frame(encode_control(request, 2, 32).encode())


def _neighbour(job: FanoutJob, number: int) -> Socket:
    """A connection to a node of streamr-network, as another node makes it."""
    headers = f"streamr-peer-id: peer {number}\r\nstreamr-peer-type: node\r\n"
    return Socket(job.endpoint.port, f"/?address=ws://neighbour:{number}", headers)


def _wrapped(message: ControlMessage) -> bytes:
    """A control message as streamr-network 13 sends it from node to node."""
    payload = {"serializedControlLayerPayload": encode_control(message, 1, 31)}
    return msgspec.json.encode({"version": "13.0.0", "code": 4, "payload": payload})
