"""Whether the connection to the servers stands, and what becomes of writes while it does not.

Writes wait for it. Only when that takes too long, or the servers refuse, are they refused. What is
a single stream's fault is no concern of the gate's: see `patience`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rillnode.actors.storage import OnHealth, StoreHealth
from rillnode.actors.storage.completion import closed_error
from rillnode.actors.storage.jetstream.failures import failure_of
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

Remedy = Callable[[], Awaitable[None]]
"""What must succeed before writes are let through again."""


class Gate:
    """Open while the connection stands. When it shuts, the remedy is tried with backoff.

    `check` is to let a connection go that stands and is of no use; `on_shut` takes the refusal of
    what waits.

    Attributes:
        options: sizes and times of the store.
        closing: the store is being closed: nothing is waited for any more.
        refusal: the answer to new writes once it was shut for too long, else None.
        health: the same for people.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        *,
        check: Callable[[], Awaitable[None]],
        on_health: OnHealth,
        on_shut: Callable[[StoreError], None],
    ) -> None:
        self.options = options
        self._check = check
        self._on_health = on_health
        self._on_shut = on_shut
        self._opened = asyncio.Event()
        # Open, or refusing.
        self._decided = asyncio.Event()
        self._ended = asyncio.Event()
        self._repair: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        # Grows while it shuts again soon after it was opened.
        self._pause_seconds = options.repair_seconds_min
        self._opened_at = 0.0
        self.closing = False
        self.refusal: StoreError | None = closed_error()
        self.health = StoreHealth(writable=False, reason="the store is not open")

    @property
    def is_open(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._opened.is_set()

    def open(self) -> None:
        """Let writes through."""
        healed = not self.health.writable
        self.refusal = None
        self._opened.set()
        self._decided.set()
        if healed:
            self._set_health(StoreHealth(writable=True))

    def shut(self, error: StoreError, remedy: Remedy, *, patient: bool = False) -> None:
        """Let nothing through until the remedy succeeds.

        What waits and what comes is refused, where it is to be `patient` only after a while.
        """
        if not self.is_open or self.refusal is not None:
            return
        logger.error("store_failed", extra={"code": error.code, "reason": error.text})
        patience = self.options.patience_seconds if patient and not self.closing else 0.0
        if not patience:
            self._refuse(error)
        if not self.closing:
            self._opened.clear()
            if patience:
                self._decided.clear()
            task = self._open_again(error, remedy, patience)
            self._repair = asyncio.get_running_loop().create_task(task)

    def doubt(self) -> None:
        """Some answer is missing: look whether the connection is at fault."""
        if self.is_open and not self.closing and self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._checked())

    async def passed(self) -> None:
        """Wait until the gate is open.

        Raises:
            StoreError: the store is being closed while the gate is shut.
        """
        await self._opened.wait()
        if self.closing and self.refusal is not None:
            raise closed_error()

    async def decided(self) -> None:
        """Wait until the gate is open or refuses.

        Raises:
            StoreError: the refusal.
        """
        await self._decided.wait()
        if self.refusal is not None:
            raise self.refusal

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless the store is being closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def stop_waiting(self) -> None:
        """Let what is under way end, with an error where that would take a repair."""
        self.closing = True
        self._ended.set()
        for task in (self._repair, self._checking):
            if task is not None:
                task.cancel()
        if not self.is_open and self.refusal is None:
            self._refuse(closed_error())
        self._opened.set()

    def close(self) -> None:
        """Refuse what comes."""
        self.refusal = closed_error()
        self.health = StoreHealth(writable=False, reason="the store is closed")

    def _refuse(self, error: StoreError) -> None:
        known, self.refusal = self.refusal, error
        self._decided.set()
        if known is None or known.code != error.code:
            self._set_health(StoreHealth(writable=False, reason=error.text))
        if known is None:
            self._on_shut(error)

    async def _open_again(self, error: StoreError, remedy: Remedy, patience: float) -> None:
        options, loop = self.options, asyncio.get_running_loop()
        refused_at = loop.time() + patience
        if loop.time() - self._opened_at > options.repair_seconds_max:
            self._pause_seconds = options.repair_seconds_min
        while True:
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, options.repair_seconds_max)
            try:
                await remedy()
                break
            except Exception as failed:
                error = failure_of(failed, "repair")
            logger.warning("store_not_reopened", extra={"reason": error.text})
            if loop.time() >= refused_at or not error.retryable:
                self._refuse(error)
        self._opened_at = loop.time()
        self.open()

    async def _checked(self) -> None:
        try:
            await self._check()
            # Not again for a while, however many streams ask for it.
            await self.pause(self.options.repair_seconds_max)
        finally:
            self._checking = None

    def _set_health(self, health: StoreHealth) -> None:
        self.health = health
        self._on_health(health)
