"""What the stores on the same logs tell each other: that a log, or the journal, has grown.

The news are plain NATS messages, so one may be lost: when its sender dies, or a connection is. The
news say only where to look; and every few seconds it is looked without any.

    <prefix>-news    log u64 | sequence u64    the JetStream stream of that log has this message
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

from rillnode.actors.storage.jetstream.failures import UnansweredError, failure_of
from rillnode.actors.storage.jetstream.membership import Members
from rillnode.actors.storage.jetstream.server import Server

logger = logging.getLogger("rillnode.actors.storage")

JOURNAL: Final = 2**64 - 1
"""Stands for the journal in the place of a log."""

SWEEP_SECONDS: Final = 5.0
"""What a lost message delays a reader at most, roughly."""

_NEWS: Final = Struct(">QQ")


class Following:
    """Tells the other stores what this one has written, and hears the same of them."""

    def __init__(
        self,
        server: Server,
        members: Members | None,
        *,
        heard: Callable[[int, int], None],
        look: Callable[[], Awaitable[None]],
    ) -> None:
        self._server = server
        self._members = members
        self._subject = server.name_of("news")
        self._heard = heard
        self._look = look
        self._news: dict[int, int] = {}
        self._telling: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Hear from now on; once for each connection.

        Raises:
            UnansweredError: the connection was lost.
        """
        await self._server.listen(self._subject, self._take)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        self._begin_to_tell()

    def end(self) -> None:
        """Tell and hear no more."""
        for task in (self._telling, self._sweeping):
            if task is not None:
                task.cancel()
        self._telling = self._sweeping = None

    def tell(self, log: int, sequence: int) -> None:
        """Let the others know of a message; of several in one log, of the last one.

        A node that knows of no other one tells nobody of its logs: who comes later reads them.
        """
        if self._members is not None and self._members.alone and log != JOURNAL:
            return
        self._news[log] = sequence
        self._begin_to_tell()

    def _begin_to_tell(self) -> None:
        """Tell what there is, unless that is under way."""
        if self._news and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._news:
                log, sequence = next(iter(self._news.items()))
                await self._server.tell(self._subject, _NEWS.pack(log, sequence))
                if self._news[log] == sequence:
                    del self._news[log]
        except UnansweredError:
            # Told once there is a connection again.
            pass
        finally:
            self._telling = None

    def _take(self, data: bytes) -> None:
        if len(data) == _NEWS.size:
            self._heard(*_NEWS.unpack(data))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._look()
            except Exception as error:
                # Whatever it was: it is looked again.
                reason = failure_of(error, "look at what other nodes have written").text
                logger.debug("store_not_followed", extra={"reason": reason})
