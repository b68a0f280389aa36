"""Whether the store takes writes, and how a write whose answer is missing is settled.

While the servers elect who is to answer, writes wait. Only when that takes too long, or the cluster
refuses, are they refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rillnode.actors.storage import OnHealth, StoreHealth
from rillnode.actors.storage.completion import closed_error
from rillnode.actors.storage.jetstream.failures import unreachable_error
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.server import Server, UnansweredError, WrongLastSequenceError
from rillnode.codecs.errors import StoreError

A = TypeVar("A")

logger = logging.getLogger("rillnode.actors.storage")


class Gate:
    """Open while the cluster answers. When it shuts, it is tried again with backoff.

    Attributes:
        refusal: the answer to new writes once it was shut for too long, else None.
        health: the same for people.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        *,
        on_health: OnHealth,
        on_shut: Callable[[StoreError], None],
    ) -> None:
        self._options = options
        self._on_health = on_health
        self._on_shut = on_shut
        self._opened = asyncio.Event()
        # Open, or refusing.
        self._decided = asyncio.Event()
        self._repair: asyncio.Task[None] | None = None
        self._try: Callable[[], Awaitable[None]] | None = None
        self._closing = False
        # Grows while it shuts again soon after it was opened.
        self._pause_seconds = options.repair_seconds_min
        self._opened_at = 0.0
        self.refusal: StoreError | None = closed_error()
        self.health = StoreHealth(writable=False, reason="the store is not open")

    def open(self, again: Callable[[], Awaitable[None]]) -> None:
        """Let writes through; `again` is what must succeed before they are let through anew."""
        self._try = again
        self._let_through()

    def shut(self, error: StoreError, *, patient: bool = False) -> None:
        """Let nothing through until the cluster answers again.

        What waits and what comes is refused, where it is to be `patient` only after a while.
        """
        if not self._opened.is_set() or self.refusal is not None:
            return
        logger.error("store_failed", extra={"code": error.code, "reason": error.text})
        patience = self._options.patience_seconds if patient and not self._closing else 0.0
        if not patience:
            self._refuse(error)
        if not self._closing:
            self._opened.clear()
            if patience:
                self._decided.clear()
            self._repair = asyncio.get_running_loop().create_task(self._open_again(error, patience))

    def _refuse(self, error: StoreError) -> None:
        known, self.refusal = self.refusal, error
        self._decided.set()
        if known is None or known.code != error.code:
            self._set_health(StoreHealth(writable=False, reason=error.text))
        if known is None:
            self._on_shut(error)

    def _let_through(self) -> None:
        healed = not self.health.writable
        self.refusal = None
        self._opened.set()
        self._decided.set()
        if healed:
            self._set_health(StoreHealth(writable=True))

    def stop_waiting(self) -> None:
        """Let what is under way end, with an error where that would take a repair."""
        self._closing = True
        if self._repair is not None:
            self._repair.cancel()
        if not self._opened.is_set() and self.refusal is None:
            self._refuse(closed_error())
        self._opened.set()

    def close(self) -> None:
        """Refuse what comes."""
        self.refusal = closed_error()
        self.health = StoreHealth(writable=False, reason="the store is closed")

    async def passed(self) -> None:
        """Wait until the gate is open.

        Raises:
            StoreError: the store is being closed while the gate is shut.
        """
        await self._opened.wait()
        if self._closing and self.refusal is not None:
            raise closed_error()

    async def commit(
        self,
        server: Server,
        name: str,
        data: bytes,
        *,
        after: int,
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Publish a message that is like no other, and know afterwards whether it is stored.

        Where no answer comes, the cluster is asked what stands at the message's place; where
        nothing does, it is published again, for that place alone, so it is stored once at most.
        Each stream has one such message under way at most. Before the cluster is asked, `check`
        raises where the stream is no more.

        Raises:
            WrongLastSequenceError: another message stands there.
            StoreError: it is not stored, or not known to be after `settle_seconds_max`: then the
                stream's end must be read before anything else is published.
        """
        try:
            return await server.publish(name, data, after=after)
        except StoreError as error:
            self.shut(error)
            raise
        except UnansweredError as error:
            missing = unreachable_error(str(error))
            self.shut(missing, patient=True)
        try:
            async with asyncio.timeout(self._options.settle_seconds_max):
                return await self.surely(lambda: _settle(server, name, data, after, check))
        except TimeoutError:
            raise missing from None

    async def surely(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Ask until there is an answer.

        Raises:
            StoreError: the store is being closed meanwhile, or the cluster refuses.
        """
        while True:
            await self.passed()
            try:
                return await ask()
            except UnansweredError as error:
                missing = unreachable_error(str(error))
            if self._closing:
                raise missing
            self.shut(missing, patient=True)

    async def patiently(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Ask until there is an answer, or the gate refuses.

        Raises:
            StoreError: the refusal, or the cluster's own.
        """
        while True:
            await self._decided.wait()
            if self.refusal is not None:
                raise self.refusal
            try:
                return await ask()
            except UnansweredError as error:
                self.shut(unreachable_error(str(error)), patient=True)

    async def _open_again(self, error: StoreError, patience: float) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        refused_at = loop.time() + patience
        if loop.time() - self._opened_at > options.repair_seconds_max:
            self._pause_seconds = options.repair_seconds_min
        while self._try is not None:
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, options.repair_seconds_max)
            try:
                await self._try()
                break
            except UnansweredError as missing:
                error = unreachable_error(str(missing))
            except StoreError as refusal:
                error = refusal
            logger.warning("store_not_reopened", extra={"reason": error.text})
            if loop.time() >= refused_at or not error.retryable:
                self._refuse(error)
        self._opened_at = loop.time()
        self._let_through()

    def _set_health(self, health: StoreHealth) -> None:
        self.health = health
        self._on_health(health)


async def _settle(
    server: Server, name: str, data: bytes, after: int, check: Callable[[], None]
) -> int:
    check()
    found = await server.get(name, after + 1, committed=False)
    if found is None:
        if await server.last_sequence(name) is None:
            if after:
                raise server.less(name)
            # Nothing was confirmed of it: a cluster in trouble may take a new stream back.
            await server.make_stream(name)
        try:
            return await server.publish(name, data, after=after)
        except WrongLastSequenceError:
            # It may be the first copy, come late.
            found = await server.get(name, after + 1, committed=False)
    if found is None or found.data != data:
        raise WrongLastSequenceError
    return found.sequence
