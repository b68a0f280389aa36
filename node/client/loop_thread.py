"""Runs an event loop of its own, for threads that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from rillnode.actors.core.threads import SYSTEM_THREADS, run_loop
from rillnode.codecs.errors import TransportError

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a daemon thread; any number of threads may use it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._over = threading.Event()
        self._thread = SYSTEM_THREADS.start(
            lambda: run_loop(self._loop, self._over.is_set), "rillnode-client"
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt cancels it.

        Raises:
            TransportError: `client.closed`, the loop has ended, or ends meanwhile.
        """
        future = self.start(work)
        try:
            return self.result(future)
        except KeyboardInterrupt:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; `result` waits for it.

        Raises:
            TransportError: `client.closed`, the loop has ended.
        """
        with self._lock:
            if self._stopped:
                work.close()
                raise _closed()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def post(self, work: Callable[[], object]) -> None:
        """Have something done on the loop, also from a signal's handler; after its end, nothing."""
        if not self._over.is_set():
            self._loop.call_soon_threadsafe(work)

    def result(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for what `start` has begun; an interrupt or the timeout leaves it under way.

        Raises:
            TimeoutError: it has no result within `timeout` seconds.
            TransportError: `client.closed`, the loop ends meanwhile.
        """
        try:
            return future.result(timeout)
        except CancelledError:
            if self._stopped:
                raise _closed() from None
            raise

    def stop(self, last: Coroutine[Any, Any, object] | None = None) -> None:
        """End the loop and its thread; who still waits for a result gets an error.

        Args:
            last: what to do before; it is not begun where the loop has ended already.
        """
        with self._lock:
            stopped, self._stopped = self._stopped, True
        if stopped:
            if last is not None:
                last.close()
            return
        try:
            if last is not None:
                asyncio.run_coroutine_threadsafe(last, self._loop).result()
        finally:
            self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._over.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._loop.is_running():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _closed() -> TransportError:
    return TransportError("client.closed", "the client is closed")
