"""Drives shared stores on one engine, each from outside of its loop."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from rillnode.actors.log import AnyWatch, LogStore
from rillnode.actors.log.shared.placement import PlaceOf
from rillnode.actors.log.shared.port import Blobs, SharedLog
from rillnode.actors.log.shared.rocks_view import RocksView
from rillnode.actors.log.shared.shard import SharedOptions
from rillnode.actors.log.shared.store import MakeView, SharedLogStore
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS, ThreadedDriver

T = TypeVar("T")

SMALL_SHARED: Final = SharedOptions(
    shards=4,
    frame_bytes_max=65_536,
    read_bytes_max=262_144,
    patience_seconds=0.5,
    retry_seconds=0.01,
    idle_seconds=60.0,
)
"""Everything a shared store does at its limits happens early."""


rocks_view: Final[MakeView] = partial(RocksView, on_loop=True)
"""Makes views on disk, which do small work on the loop."""


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
        self._inner = store
        self._loop = loop
        self.open = store.open
        self.close = store.close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, operation: Any) -> None:
        self._loop.call(lambda: self._inner.submit(operation))

    def read(self, operation: Any) -> bool:
        return self._loop.call(lambda: self._inner.read(operation))

    def watch(self, operation: AnyWatch) -> None:
        self._loop.call(lambda: self._inner.watch(operation))


class EngineDriver(ThreadedDriver):
    """Drives a SharedLogStore on an engine.

    Args:
        engine: gives a client of the engine that is not open, on the logs that are the same each
            time.
        directory: of the store's views.
        view: makes them; on disk, as a node does, if nothing else is said.
        places: what protocols say of where their names lie.
        shards: how many are made.
        beside: another one, on whose loop this one is.
    """

    def __init__(
        self,
        engine: Callable[[], tuple[SharedLog, Blobs]],
        directory: Path,
        *,
        view: MakeView = rocks_view,
        places: Sequence[PlaceOf] = (),
        shards: int = 4,
        beside: "EngineDriver | None" = None,
    ) -> None:
        self.thread: LoopInThread = beside.thread if beside else LoopInThread()
        self._is_guest = beside is not None
        self._engine = engine
        self.directory = directory
        self._view = view
        self._places = places
        self._shards = shards
        self._crashed: list[LogStore] = []
        super().__init__()

    def new_store(self) -> LogStore:
        """A store on a new client of the engine."""
        log, blobs = self._engine()
        made: Any = _OnLoop(
            SharedLogStore(
                log,
                blobs,
                self.directory,
                self._view,
                entropy=os.urandom,
                now_ms=lambda: 0,
                complete=self.take,
                on_health=self.hear,
                loop=self.thread.loop,
                options=replace(SMALL_SHARED, shards=self._shards),
                places=self._places,
            ),
            self.thread,
        )
        store: LogStore = made
        return store

    def crash(self) -> None:
        """Go on without the views: what was confirmed is in the engine's logs."""
        self._crashed.append(self._store)  # it goes on, and is used by nobody
        self.directory = self.directory.with_name(f"{self.directory.name}-crashed")
        self._store = self.new_store()
        self._store.open()

    def other(self, directory: Path) -> "EngineDriver":
        """Another store on the same logs, on this one's loop."""
        return EngineDriver(
            self._engine,
            directory,
            view=self._view,
            places=self._places,
            shards=self._shards,
            beside=self,
        )

    def end(self) -> None:
        """Close the store, and end its loop; those on the same loop first."""
        for store in (self._store, *self._crashed):
            store.close()
        if not self._is_guest:
            self.thread.close()
