"""An event loop in a thread of its own."""

import asyncio
import threading

from rillnode.actors.threads import SYSTEM_THREADS, run_loop


class LoopThread:
    """Runs an event loop from construction until `stop`.

    Attributes:
        loop: the loop.
        ident: the thread's identity, as `threading.get_ident` has it.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = False
        self._thread = SYSTEM_THREADS.start(self._run, name)
        self.ident = asyncio.run_coroutine_threadsafe(_own_ident(), self.loop).result()

    def stop(self) -> None:
        """End the loop and wait for its thread; harmless when repeated."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def _stop(self) -> None:
        self._stopping = True
        self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            run_loop(self.loop, lambda: self._stopping)
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


async def _own_ident() -> int:
    return threading.get_ident()
