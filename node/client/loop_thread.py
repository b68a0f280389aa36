"""Runs an event loop of its own, for threads that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, TypeVar

from rillnode.actors.core.threads import SYSTEM_THREADS, run_loop
from rillnode.codecs.errors import TransportError
from rillnode.node.client.session import closed_error

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
        kept = Kept(self, lambda: work)
        try:
            return kept.wait()
        except KeyboardInterrupt:
            kept.drop()
            raise
        except TransportError:
            if not kept.is_begun:
                work.close()
            raise

    @property
    def is_stopped(self) -> bool:
        """Whether it is to end, or has."""
        return self._stopped

    def do(self, work: Callable[[], object]) -> None:
        """Have something done on the loop.

        Raises:
            TransportError: `client.closed`, the loop has ended.
        """
        with self._lock:
            if self._stopped:
                raise closed_error()
            self._loop.call_soon_threadsafe(work)

    def post(self, work: Callable[[], object]) -> None:
        """Have something done on the loop, also from a signal's handler; after its end, nothing."""
        if not self._over.is_set():
            self._loop.call_soon_threadsafe(work)

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


class Kept(Generic[T]):
    """Work on a loop, begun by who waits for it first; its result is kept for who waits again.

    So it can be noted before it is begun: a thread may be interrupted between any two steps, and
    what has been begun and noted nowhere would take what it brings with it.

    Args:
        loop: where it is done.
        work: what is done, once.
    """

    def __init__(self, loop: LoopThread, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._result: Future[T] = Future()

    def wait(self, timeout: float | None = None) -> T:
        """Wait for its result; an interrupt or the timeout leaves it under way.

        Raises:
            TimeoutError: it has none within `timeout` seconds.
            TransportError: `client.closed`, the loop has ended, or ends meanwhile.
        """
        if not self.is_begun:
            self._loop.do(self._begin)
        try:
            return self._result.result(timeout)
        except CancelledError:
            if self._loop.is_stopped:
                raise closed_error() from None
            raise

    def drop(self, unused: Callable[[T], object] | None = None) -> None:
        """Cancel it: nobody waits for it any more.

        Args:
            unused: called on the loop with the result that it has by then.
        """
        self._loop.post(partial(self._cancel, unused))

    @property
    def is_begun(self) -> bool:
        """Whether anything of it has been done."""
        return self._task is not None

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self._result.cancel()
        elif (error := task.exception()) is not None:
            self._result.set_exception(error)
        else:
            self._result.set_result(task.result())

    def _cancel(self, unused: Callable[[T], object] | None) -> None:
        task = self._task
        if task is None:
            return
        if not task.done():
            task.cancel()
        elif unused is not None and not (task.cancelled() or task.exception()):
            unused(task.result())


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
