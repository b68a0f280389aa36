"""Nodes on one engine in memory, in virtual time or on disk, for tests of a shared store."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Union
from zlib import crc32

import msgspec
import pytest

from rillnode.actors.log import (
    Append,
    Operation,
    PutStream,
    Read,
    RemoveStream,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.shared import frames
from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers
from rillnode.actors.log.shared.placement import Placement
from rillnode.actors.log.shared.port import LogLost
from rillnode.actors.log.shared.shard import Shard, SharedOptions
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.codecs.entries import entries_of, pack_body
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.loop import ProcessLoop, Scheduler
from rillnode.node.testing.contract.stores.on_engine import rocks_view
from shared_support import memory_view

OPTIONS = SharedOptions(
    shards=3, patience_seconds=0.5, retry_seconds=0.01, idle_seconds=60.0, snapshot_seconds=0.01
)
ANSWER_SECONDS = 30.0

AnyOperation = TypeVar("AnyOperation", bound=Operation)


def in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    """Run a test whose clock does not wait."""
    scheduler = Scheduler()
    done = ProcessLoop(scheduler, "test").create_task(work)
    scheduler.run_until(done)
    done.result()


class Node:
    """One store, and all that it has completed."""

    def __init__(
        self,
        servers: MemoryServers,
        directory: Path,
        *,
        view: Callable[..., Any] = memory_view,
        seed: object = 0,
        **options: Any,
    ) -> None:
        self.faults = LogFaults()
        self.log = MemoryLog(servers, self.faults)
        self.completed: dict[Operation, int] = {}
        self.healths: list[Any] = []
        self._waiting: dict[Operation, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self.store = SharedLogStore(
            self.log,
            self.log,
            directory,
            view,
            entropy=random.Random(f"{directory}{seed}").randbytes,
            now_ms=lambda: int(self._loop.time() * 1_000),
            complete=self._complete,
            on_health=self.healths.append,
            loop=self._loop,
            options=replace(OPTIONS, **options),
        )
        self.store.open()

    def _complete(self, operations: Sequence[Operation]) -> None:
        self._loop.call_soon_threadsafe(self._settle, list(operations))

    def _settle(self, operations: Sequence[Operation]) -> None:
        for one in operations:
            self.completed[one] = self.completed.get(one, 0) + 1
            future = self._waiting.pop(one, None)
            if future is not None and not future.done():
                future.set_result(None)

    def begin(self, operation: AnyOperation) -> "asyncio.Task[AnyOperation]":
        """Submit a write; the task ends with it."""
        future = self._waiting[operation] = self._loop.create_future()
        any_operation: Any = operation
        self.store.submit(any_operation)
        return self._loop.create_task(self._end(operation, future))

    async def write(self, operation: AnyOperation) -> AnyOperation:
        """Submit a write, and wait for it."""
        return await self.begin(operation)

    async def read(self, operation: AnyOperation) -> AnyOperation:
        """Read, and wait for the answer."""
        future = self._waiting[operation] = self._loop.create_future()
        any_operation: Any = operation
        if self.store.read(any_operation):
            del self._waiting[operation]
            return operation
        return await self._end(operation, future)

    async def watch(self, operation: AnyOperation) -> AnyOperation:
        """Wait for what is watched."""
        future = self._waiting[operation] = self._loop.create_future()
        any_operation: Any = operation
        self.store.watch(any_operation)
        return await self._end(operation, future)

    async def _end(self, operation: AnyOperation, future: "asyncio.Future[None]") -> AnyOperation:
        async with asyncio.timeout(ANSWER_SECONDS):
            await future
        return operation

    async def stream(self, name: str) -> int:
        """Make a stream of one partition; returns its log."""
        made = await self.write(PutStream(record=StreamRecord(name=name)))
        assert made.error is None, made.error
        return log_id(made.record.id, 0)

    async def push(self, log: int, *texts: bytes, **fields: Any) -> Append:
        """Append entries, and wait for it."""
        return await self.write(
            Append(log=log, count=len(texts), body=pack_body(texts), received_at=1, **fields)
        )

    async def texts(self, log: int) -> list[bytes]:
        """All entries, as far as this node has them."""
        found: list[bytes] = []
        while True:
            read = await self.read(Read(log=log, index=len(found)))
            assert read.error is None, read.error
            if not read.blocks:
                return found
            for block in read.blocks:
                some = entries_of(block, first=len(found))
                assert some[0].index == len(found)
                found += [entry.data for entry in some]

    async def fresh(self, log: int) -> None:
        """Wait until it has all that was confirmed."""
        await until(lambda: self.store.shards.placement is not None)
        await self.shard(log).fresh()

    def shard(self, log: int) -> Shard:
        """The shard of a log."""
        return self.store.shards[self.placement.of_log(log)]

    @property
    def placement(self) -> Placement:
        """Where names lie."""
        return self.store.shards.place

    async def close(self) -> None:
        """Close it; whatever it was given is complete then, once."""
        await self.store._close()  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0)
        assert set(self.completed.values()) <= {1}
        assert not self._waiting
        assert self.store.pending_bytes == 0

    async def die(self) -> None:
        """End without a word to the engine."""
        self.faults.is_cut = True
        await self.store._close()  # pyright: ignore[reportPrivateUsage]


class Cluster:
    """The nodes of a test, closed when it ends.

    Attributes:
        servers: their engine.
        directory: of their views, one in another.
        view: makes them.
    """

    def __init__(self, directory: Path, view: Callable[..., Any] = memory_view) -> None:
        self.servers = MemoryServers(b"x" * 16)
        self.directory = directory
        self.view = view
        self._nodes: list[Node] = []

    def node(self, name: str = "1", **options: Any) -> Node:
        """A node with a directory of this name, which an earlier one may have left."""
        options = {"view": self.view, "seed": len(self._nodes), **options}
        self._nodes.append(Node(self.servers, self.directory / name, **options))
        return self._nodes[-1]

    def nodes(self, count: int) -> list[Node]:
        """So many nodes, each with a directory of its own."""
        return [self.node(str(number)) for number in range(1, count + 1)]

    async def close(self) -> None:
        """Close them all; those that are closed stay so."""
        for node in self._nodes:
            await node.close()


def with_cluster(test: Callable[[Cluster], Coroutine[Any, Any, None]], directory: Path) -> None:
    """Run a test in virtual time, with views in memory."""
    in_virtual_time(_with(test, Cluster(directory)))


def with_disks(test: Callable[[Cluster], Coroutine[Any, Any, None]], directory: Path) -> None:
    """Run a test with views on disk."""
    asyncio.run(_with(test, Cluster(directory, rocks_view)))


async def _with(test: Callable[[Cluster], Coroutine[Any, Any, None]], cluster: Cluster) -> None:
    await test(cluster)
    await cluster.close()


def plant_second_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a version of frames that has one more field of a trim, and removals."""
    kinds, packed = dict[type[Any], Any](), list[Any]()
    for number, (operation, counts, required) in enumerate(
        frames._LAYOUT,  # pyright: ignore[reportPrivateUsage]
        1,
    ):
        if operation is Trim:
            counts, required = (4, *counts), 4
        elif operation is RemoveStream:
            counts = (0, *counts)
        kind = frames._Kind(  # pyright: ignore[reportPrivateUsage]
            number, operation, counts, required
        )
        kinds[operation] = kind
        packed.append(kind.packed)
    decoder = msgspec.msgpack.Decoder(list[Union[tuple(packed)]])  # type: ignore[misc] # noqa: UP007
    monkeypatch.setattr(frames, "_KINDS", kinds)
    monkeypatch.setattr(frames, "_OPERATIONS", {one.packed: key for key, one in kinds.items()})
    monkeypatch.setattr(frames, "_decoder", decoder)
    monkeypatch.setattr(frames, "FRAME_VERSION", 2)


def later_frame() -> bytes:
    """A frame that a later version has written."""
    rest = b"whatever a later version writes, if it is long enough"
    return bytes([frames.FRAME_VERSION + 1]) + crc32(rest).to_bytes(4, "big") + rest


async def unanswered(*_: object) -> None:
    """What an engine's calls are while it does not answer."""
    raise LogLost("planted")


def name_in(shard: int, shards: int = 3, *, but: Sequence[str] = ()) -> str:
    """A stream's name that lies in a shard."""
    placement = Placement(shards)
    names = (f"s{number}" for number in range(1_000))
    return next(one for one in names if placement.of_stream(one) == shard and one not in but)


async def until(reached: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
    """Look again and again until something is so."""
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)


def code(operation: Operation) -> str:
    return "" if operation.error is None else operation.error.code


async def refused(node: Node, log: int) -> str:
    """With what a fresh read of a shard fails."""
    with pytest.raises(StoreError) as caught:
        await node.fresh(log)
    return caught.value.code


def snapshots_of(servers: MemoryServers) -> list[str]:
    """The snapshots that are whole."""
    return [name for name in servers.blobs if name.endswith(".snapshot")]
