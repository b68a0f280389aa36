"""An event loop in a thread of its own."""

import asyncio
import threading


class LoopThread:
    """Runs an event loop from construction until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The thread's identity, as `threading.get_ident` has it."""
        return self._thread.ident

    def stop(self) -> None:
        """End the loop and wait for its thread; harmless when repeated."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
