"""Loads NATS JetStream with frames as bare as they can be: what the servers alone can keep.

A message of the job's window costs here only its bytes in a frame, and a frame a publication with
its answer on a blocking socket: no dedupe id, no headers, no event loop. Whatever a node or another
client adds to that is its own.
"""

import json
import socket
from collections import deque
from collections.abc import AsyncGenerator, Generator
from itertools import cycle
from time import perf_counter
from typing import Final

from benchmarks.jobs import PushJob, Result
from benchmarks.measure import Meter, payloads

_READ_BYTES: Final = 65_536
_ANSWER_SECONDS: Final = 30.0
_FRAMES: Final = 64
"""Different ones; all are random bytes."""


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1: the window lies in `frames` frames, and the answer to one lets the next one go."""
    frames = job.endpoint.frames
    each = job.window // frames
    with socket.create_connection(("127.0.0.1", job.endpoint.port), _ANSWER_SECONDS) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = _answers(link)
        _make(link, answers, job)
        bodies = payloads(each * job.message_bytes, _FRAMES)
        head = b"PUB %s a %d\r\n" % (job.stream.encode(), each * job.message_bytes)
        packed = cycle([b"%s%s\r\n" % (head, body) for body in bodies])
        meter, sent = Meter(job), deque[float]()
        now = perf_counter()
        while meter.running(now):
            while len(sent) < frames:
                link.sendall(next(packed))
                sent.append(now)
            answer = next(answers)
            if b'"error"' in answer:
                raise RuntimeError(answer.decode())
            now = perf_counter()
            meter.confirmed(now - sent.popleft(), each)
        yield meter.result()


def _make(link: socket.socket, answers: Generator[bytes], job: PushJob) -> None:
    """Make a stream as a node makes its own: in files, with so many replicas."""
    config = {
        "name": job.stream,
        "subjects": [job.stream],
        "storage": "file",
        "num_replicas": job.endpoint.replicas,
        "allow_direct": True,
    }
    body = json.dumps(config).encode()
    link.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
    link.sendall(b"PUB $JS.API.STREAM.CREATE.%s a %d\r\n" % (job.stream.encode(), len(body)))
    link.sendall(body + b"\r\n")
    answer = next(answers)
    if b'"error"' in answer:
        raise RuntimeError(answer.decode())


def _answers(link: socket.socket) -> Generator[bytes]:
    """The data of each message that comes, without end."""
    kept = b""
    while True:
        line, found, rest = kept.partition(b"\r\n")
        size = int(line.rpartition(b" ")[2]) if line.startswith(b"MSG ") else -2
        if found and len(rest) >= size + 2:
            if size >= 0:
                yield rest[:size]
            elif line == b"PING":
                link.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise RuntimeError(line.decode())
            kept = rest[size + 2 :]
            continue
        some = link.recv(_READ_BYTES)
        if not some:
            raise EOFError("the server has left")
        kept += some
