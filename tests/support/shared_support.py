"""Shared stores for tests: on servers in memory, each driven from outside of its loop."""

import asyncio
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nats_support import NatsServer
from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log import AnyWatch, LogStore, Operation
from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers
from rillnode.actors.log.shared.memory_view import MemoryView
from rillnode.actors.log.shared.placement import PlaceOf
from rillnode.actors.log.shared.port import Blobs, SharedLog
from rillnode.actors.log.shared.rocks_view import RocksView
from rillnode.actors.log.shared.shard import SharedOptions, View
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.node.stores import places
from store_support import ANSWER_SECONDS, StoreDriver, ThreadedDriver

T = TypeVar("T")

SMALL_SHARED = SharedOptions(
    shards=4,
    frame_bytes_max=65_536,
    read_bytes_max=262_144,
    patience_seconds=0.5,
    retry_seconds=0.01,
    idle_seconds=60.0,
)


class LoopInThread:
    """A loop of its own, on which stores are driven from a test's thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], T]) -> T:
        """Call something there, and wait for what it returns."""

        async def called() -> T:
            return call()

        return self.wait(called())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(ANSWER_SECONDS)

    def close(self) -> None:
        """End it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _OnLoop:
    """A store as its loop's thread uses it."""

    def __init__(self, store: SharedLogStore, loop: LoopInThread) -> None:
        self.inner = store
        self._loop = loop
        self.open = store.open
        self.close = store.close

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, operation: Any) -> None:
        self._loop.call(lambda: self.inner.submit(operation))

    def read(self, operation: Any) -> bool:
        return self._loop.call(lambda: self.inner.read(operation))

    def watch(self, operation: AnyWatch) -> None:
        self._loop.call(lambda: self.inner.watch(operation))


class OnLoopDriver(ThreadedDriver):
    """Drives a SharedLogStore.

    Args:
        directory: of its views.
        view: "rocks" or "memory".
        shards: how many are made.
        beside: another one, on whose loop this one is.
    """

    def __init__(
        self,
        directory: Path,
        *,
        view: str = "rocks",
        places: Sequence[PlaceOf] = (),
        shards: int = 4,
        beside: "OnLoopDriver | None" = None,
    ) -> None:
        self.thread: LoopInThread = beside.thread if beside else LoopInThread()
        self._is_guest = beside is not None
        self.directory = directory
        self._view = view
        self._places = places
        self._options = replace(SMALL_SHARED, shards=shards)
        super().__init__()

    @property
    def shared(self) -> SharedLogStore:
        """The store itself."""
        store: Any = self._store
        inner: SharedLogStore = store.inner
        return inner

    @abstractmethod
    def engine(self) -> tuple[SharedLog, Blobs]:
        """An engine that is not open, on the logs that are the same each time."""

    def new_store(self) -> LogStore:
        log, blobs = self.engine()
        made: Any = _OnLoop(
            SharedLogStore(
                log,
                blobs,
                self.directory,
                rocks_view if self._view == "rocks" else memory_view,
                entropy=os.urandom,
                now_ms=lambda: 0,
                complete=self.take,
                on_health=self.hear,
                loop=self.thread.loop,
                options=self._options,
                places=self._places,
            ),
            self.thread,
        )
        store: LogStore = made
        return store

    def take(self, operations: Sequence[Operation]) -> None:
        """Take what is complete; from any thread."""
        self.told.put(operations)

    def end(self) -> None:
        """Close the store, and end its loop; those on the same loop first."""
        self._store.close()
        if not self._is_guest:
            self.thread.close()


class SharedDriver(OnLoopDriver):
    """Drives a SharedLogStore on an engine in memory.

    Args:
        servers: its engine's; others of these have the same logs.
        directory: of its views.
        view: "rocks" or "memory".
        shards: how many are made.
        beside: another one of these servers, which are all on one loop.
    """

    def __init__(
        self,
        servers: MemoryServers,
        directory: Path,
        *,
        view: str = "rocks",
        places: Sequence[PlaceOf] = (),
        shards: int = 4,
        beside: OnLoopDriver | None = None,
    ) -> None:
        self.servers = servers
        self.faults = LogFaults()
        super().__init__(directory, view=view, places=places, shards=shards, beside=beside)

    def engine(self) -> tuple[SharedLog, Blobs]:
        log = MemoryLog(self.servers, self.faults)
        return log, log

    def other(self, directory: Path) -> StoreDriver:
        shards = self._options.shards
        return SharedDriver(self.servers, directory, view=self._view, shards=shards, beside=self)


class JetStreamDriver(OnLoopDriver):
    """Drives a SharedLogStore on NATS JetStream.

    Args:
        server: where it is.
        prefix: of its streams; others of the same have the same logs.
        directory: of its views.
        shards: how many are made.
    """

    def __init__(
        self, server: NatsServer, prefix: str, directory: Path, *, shards: int = 4
    ) -> None:
        self.server = server
        self.prefix = prefix
        super().__init__(directory, places=places(), shards=shards)

    def engine(self) -> tuple[SharedLog, Blobs]:
        options = JetStreamOptions(
            servers=(self.server.url,),
            monitors=(self.server.monitor,),
            prefix=self.prefix,
            replicas=1,
        )
        log = JetStreamLog(options)
        return log, JetStreamBlobs(log)

    def other(self, directory: Path) -> StoreDriver:
        return JetStreamDriver(self.server, self.prefix, directory, shards=self._options.shards)


def rocks_view(path: Path, identity: bytes, shard: int, shards: int, **calls: Any) -> View:
    return RocksView(path, identity, shard, shards, on_loop=True, **calls)


def memory_view(path: Path, identity: bytes, shard: int, shards: int, **calls: Any) -> View:
    del identity
    loop = asyncio.get_running_loop()
    return MemoryView(path, shard, shards, post=loop.call_soon_threadsafe, **calls)
