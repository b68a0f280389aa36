"""Workers of queues without sockets or threads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from core_support import Core, Peer, decode
from rillnode.actors.core.queues.names import queue_address
from rillnode.codecs import native
from rillnode.codecs.entries import Entry, entries_of, pack_body
from rillnode.codecs.native import Settlement

ADDRESS: Final = queue_address("s", "q")


@dataclass(frozen=True)
class JobItem:
    """A job that has come."""

    partition: int
    index: int
    attempt: int
    received_at: int
    data: bytes
    key: bytes | None = None
    headers: bytes = b""


DONE, RETRY, REJECT, EXTEND, RELEASE = range(5)


class Worker:
    """A worker of a queue, as a client's messages have it."""

    def __init__(self, core: Core, token: bytes = b"w", principal: str = "friend") -> None:
        self.core = core
        self.peer: Peer = core.peer(principal)
        self.token = token.ljust(16, b"-")
        self.number = 0
        self.jobs: list[JobItem] = []
        self.failures: list[native.Failure] = []
        self.settled: list[Any] = []
        self.joined = 0

    def send(self, request: native.Request, address: bytes = ADDRESS) -> None:
        self.peer.send(address, native.encode(request))

    async def take(self, rounds: int = 20) -> list[JobItem]:
        """The jobs that have come since the last time."""
        await self.core.settle(rounds)
        found: list[JobItem] = []
        for answer in self.peer.answers:
            match decode(answer.payload):
                case native.JobsResponse(jobs=jobs):
                    self.joined += not jobs
                    found += [
                        JobItem(
                            one.partition, one.index, run.attempt, one.received_at, one.data,
                            one.pushed_key, one.encoded_headers,
                        )
                        for run in jobs
                        for one in native.entries_of_run(run)
                    ]  # fmt: skip
                case native.Failure() as failure:
                    self.failures.append(failure)
                case other:
                    self.settled.append(other)
        self.peer.answers.clear()
        self.jobs += found
        return found

    async def work(
        self,
        *,
        in_flight: int = 10,
        attempts: int = 3,
        visibility: int = 30_000,
        by_key: bool = False,
        all_in_flight: int = 0,
        holds: Sequence[JobItem] = (),
        address: bytes = ADDRESS,
    ) -> list[JobItem]:
        held = [native.JobRef(one.partition, one.index, one.attempt) for one in holds]
        self.send(
            native.WorkRequest(
                7, self.token, held, in_flight, all_in_flight, attempts, visibility, by_key
            ),
            address,
        )
        return await self.take()

    async def settle(
        self,
        *jobs: JobItem,
        outcome: int = DONE,
        milliseconds: int | None = None,
        reason: str = "",
        again: bool = False,
    ) -> Any:
        """Settle jobs; return the answer, and keep jobs that come with it."""
        self.number += not again
        items = [
            Settlement(one.partition, one.index, one.attempt, outcome, milliseconds, reason)
            for one in jobs
        ]
        self.send(native.SettleRequest(100 + self.number, self.token, self.number, items))
        failures = len(self.failures)
        await self.take()
        return self.settled.pop() if self.settled else self.failures[failures:]

    def lose(self) -> None:
        """Lose the link."""
        self.peer.origin.end()

    def come_back(self) -> None:
        """Have another one."""
        self.peer = self.core.peer(self.peer.origin.principal)


async def opened(core: Core, *texts: bytes, partitions: int = 1, name: str = "s") -> Peer:
    """A stream with entries in its partition 0."""
    peer = core.peer()
    await peer.ask(b"stream", native.OpenRequest(1, name, partitions))
    await push(peer, *texts, name=name)
    return peer


async def push(peer: Peer, *texts: bytes, partition: int = 0, name: str = "s") -> None:
    if texts:
        request = native.AppendRequest(2, len(texts), pack_body(texts))
        address = f"ST_S_{partition}_{name}"
        (answer,) = await peer.ask(address, request)
        assert isinstance(answer, native.PositionResponse), answer


async def entries(peer: Peer, name: str, partition: int = 0) -> list[Entry]:
    (found,) = await peer.ask(
        f"ST_S_{partition}_{name}", native.ReadRequest(3, 0, 10_000, 4_000_000)
    )
    assert isinstance(found, native.BlocksResponse), found
    return [entry for block in native.blocks_of(found) for entry in entries_of(block)]


async def shown(peer: Peer, address: bytes = ADDRESS) -> dict[str, Any]:
    """How a queue stands."""
    (found,) = await peer.ask(address, native.DescribeQueueRequest(4))
    assert isinstance(found, native.DocumentResponse), found
    document: dict[str, Any] = json.loads(found.document)
    return document


def texts(jobs: Sequence[JobItem]) -> list[bytes]:
    return [job.data for job in jobs]
