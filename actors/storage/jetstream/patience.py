"""How the answers of one JetStream stream are waited for, and how a missing one is settled.

A stream may have no leader while all others have theirs, so each is waited for by itself. While
the servers elect who is to answer, its writes wait; when that takes too long they are refused.
Where the connection itself is away, it is that which is waited for: the gate.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rillnode.actors.storage.jetstream.failures import (
    UnansweredError,
    WrongLastSequenceError,
    unreachable_error,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.server import Server
from rillnode.codecs.errors import StoreError

A = TypeVar("A")

Check = Callable[[], Awaitable[None]]
"""Raises where a stream is no more."""

logger = logging.getLogger("rillnode.actors.storage")


class Patience:
    """Waits for one stream.

    Args:
        name: the stream.
        gate: whether the connection stands.
        refuse: is to refuse what waits behind a question that was not answered for too long.
    """

    def __init__(
        self, name: str, gate: Gate, refuse: Callable[[StoreError], None] = lambda error: None
    ) -> None:
        self._name = name
        self._gate = gate
        self._refuse = refuse
        # Since when it gives no answers, on the loop's clock.
        self._since: float | None = None

    async def surely(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Ask until there is an answer.

        Raises:
            StoreError: the store is being closed meanwhile, or the servers refuse.
        """
        return await self._ask(ask, self._gate.passed, for_ever=True)

    async def patiently(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Ask until there is an answer, or it has taken too long.

        Raises:
            StoreError: it has, or the servers refuse.
        """
        return await self._ask(ask, self._gate.decided, for_ever=False)

    async def commit(
        self,
        server: Server,
        data: bytes,
        *,
        after: int,
        check: Check | None = None,
    ) -> int:
        """Publish a message that is like no other, and know afterwards whether it is stored.

        Where no answer comes, the cluster is asked what stands at the message's place; where
        nothing does, it is published again, for that place alone, so it is stored once at most.
        The stream has one such message under way at most. Where the cluster knows of no such
        stream, `check` raises if it was removed.

        Raises:
            WrongLastSequenceError: another message stands there.
            StoreError: it is not stored, or not known to be after `settle_seconds_max`: then the
                stream's end must be read before anything else is published.
        """
        name = self._name
        try:
            sequence = await server.publish(name, data, after=after)
        except UnansweredError as error:
            missing = unreachable_error(str(error))
        else:
            self._answered()
            return sequence
        self._unanswered(missing)
        try:
            async with asyncio.timeout(self._gate.options.settle_seconds_max):
                return await self.surely(lambda: _settle(server, name, data, after, check))
        except TimeoutError:
            raise missing from None

    async def _ask(
        self, ask: Callable[[], Awaitable[A]], may: Callable[[], Awaitable[None]], *, for_ever: bool
    ) -> A:
        while True:
            await may()
            try:
                answer = await ask()
            except UnansweredError as error:
                missing = unreachable_error(str(error))
            else:
                self._answered()
                return answer
            if self._gate.closing or (self._unanswered(missing) and not for_ever):
                raise missing
            await self._pause()

    def _answered(self) -> None:
        if self._since is not None:
            self._since = None
            logger.info("store_stream_answers", extra={"stream": self._name})

    def _unanswered(self, missing: StoreError) -> bool:
        """Note that no answer came; returns whether that goes on for too long."""
        if not self._gate.is_open:
            # The stream had no chance to answer.
            return False
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            logger.warning(
                "store_stream_unanswered", extra={"stream": self._name, "reason": missing.text}
            )
        self._gate.doubt()
        over = now - self._since >= self._gate.options.patience_seconds
        if over:
            self._refuse(missing)
        return over

    async def _pause(self) -> None:
        """The longer there was no answer, the longer."""
        if self._since is not None and self._gate.is_open:
            options = self._gate.options
            passed = asyncio.get_running_loop().time() - self._since
            seconds = min(max(passed, options.repair_seconds_min), options.repair_seconds_max)
            await self._gate.pause(seconds)


async def _settle(server: Server, name: str, data: bytes, after: int, check: Check | None) -> int:
    found = await server.get(name, after + 1, committed=False)
    if found is None:
        if await server.last_sequence(name) is None:
            if check is not None:
                await check()
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
