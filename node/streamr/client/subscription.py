"""Subscriptions: the messages of one partition, each chain in order, over lost connections.

What is live waits in an inbox while stored messages are read: at the beginning, where the
application asks for some, after a lost connection, after the inbox has overflown, and where a chain
has a gap. What comes twice that way is dropped, because a chain only goes up.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.ordering import (
    GapFound,
    GapSkipped,
    Ordered,
    OrderedChains,
    OrderingEvent,
)
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.streamr.client.live import Partition
from rillnode.node.streamr.client.message import Message
from rillnode.node.streamr.client.reader import Reader, ReaderTools, wait_for
from rillnode.node.streamr.client.resends import From, Last, Range, Resend

logger = event_logger("rillnode.node.streamr.client")

INBOX_BYTES_MAX: Final = 16_777_216
"""Characters of content that may wait to be read; what comes then is read later, from the stored
messages."""

READY_MAX: Final = 1_000
"""Messages that may wait for the application before no more are read."""

RETRY_SECONDS: Final = 1.0
"""How long to wait before stored messages are asked for again that could not be read."""

CLOCKS_MS: Final = 30_000
"""How far clocks of publishers may be apart: what was published while a connection was lost is
looked for from so long before the newest message on, and what has come already is dropped."""

Missing = Last | From
"""Which stored messages are to be read before what follows in the inbox."""

Resending = Callable[[Resend], AsyncGenerator[StreamMessage]]
"""Reads stored messages of the subscription's partition."""


class Following(Protocol):
    """A subscription's access to the client's live messages."""

    def leave(self, partition: Partition, inbox: "Subscription") -> None:
        """Let it have no more."""
        ...


@dataclass(slots=True)
class _Source:
    """Stored messages that are being read: those of a gap, or what is still missing."""

    messages: AsyncGenerator[StreamMessage]
    missing: Missing | None


class Subscription:
    """The messages of one stream partition: an async iterator that ends with `close`.

    Attributes:
        partition: stream id and partition.
        gaps: how many gaps were skipped because the missing messages could not be had.
        reader: counts in `dropped` what could not be handed on.
    """

    def __init__(
        self,
        partition: Partition,
        live: Following,
        resending: Resending,
        tools: ReaderTools,
        *,
        start: Missing | None,
    ) -> None:
        self.partition = partition
        self.gaps = 0
        self._live = live
        self._resending = resending
        self._clock = tools.clock
        self._wake = asyncio.Event()  # there is something to do
        self._woken = asyncio.Event()  # there is something to take
        self.reader = Reader(tools, self._wake.set)
        self._chains = OrderedChains()
        self._inbox: deque[StreamMessage | Missing] = deque()
        self._inbox_bytes = 0
        self._is_overfull = False
        self._now_ms = tools.now_ms
        self._subscribed_ms = self._newest = tools.now_ms()
        # What was the newest when the connection was lost, until what is missing is asked for.
        self._lost_at: int | None = None
        self._sources: deque[_Source] = deque()
        self._ready: deque[Message] = deque()
        self._retry_at = 0.0
        self._error: RillnodeError | None = None
        self._closed = False
        # The server has said which stored messages there are to begin with.
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if start is None:
            self._began()
        else:
            self._inbox.append(start)
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin to read, now that live messages come: what is stored later is among them.

        Returns once the first stored message has come, so that none that is published afterwards
        counts as one of the last.

        Raises:
            RequestError: the server refuses to resend them; the code is the server's.
            TransportError: the connection is over.
        """
        self._running = asyncio.get_running_loop().create_task(self._run())
        await self._begun

    async def __aenter__(self) -> Self:
        """It is subscribed already."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Message:
        """Wait for the next message.

        Raises:
            RequestError: the server refuses to go on; the code is the server's.
            TransportError: the connection is over.
        """
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if self._running is not None and self._running.done():
                assert self._error is not None, "only an error or `close` ends the task"
                raise self._error
            self._woken.clear()
            await self._woken.wait()
        self._wake.set()
        return self._ready.popleft()

    async def close(self) -> None:
        """End the subscription; what has not been taken is forgotten."""
        if self._closed:
            return
        self._closed = True
        self._live.leave(self.partition, self)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._ready.clear()
        self._inbox.clear()
        self._woken.set()

    # Inbox -----------------------------------------------------------------------------------

    def message_received(self, message: StreamMessage) -> None:
        """Take a message as it came."""
        if self._is_overfull or self._inbox_bytes >= INBOX_BYTES_MAX:
            self._is_overfull = True
            self._miss(message.id.timestamp)
            return
        self._inbox.append(message)
        self._inbox_bytes += len(message.content)
        self._has_come(message)
        self._wake.set()

    def interrupted(self) -> None:
        """Note what was the newest: live messages may come before `resubscribed` is called."""
        if self._lost_at is None:
            self._lost_at = self._newest

    def resubscribed(self) -> None:
        """Read what was published meanwhile."""
        lost_at, self._lost_at = self._lost_at, None
        self._miss((self._newest if lost_at is None else lost_at) - CLOCKS_MS)
        self._wake.set()

    def _has_come(self, message: StreamMessage) -> None:
        # A clock that is ahead says nothing of what others have published by then.
        self._newest = max(self._newest, min(message.id.timestamp, self._now_ms()))

    def _miss(self, since_ms: int) -> None:
        """Have stored messages read from a time on, where what is to be read last does not.

        None from before the subscription, which nobody has asked for.
        """
        since_ms = max(self._subscribed_ms, since_ms)
        last = self._inbox[-1] if self._inbox else None
        if isinstance(last, From) and last == From(last.timestamp):
            since_ms = min(since_ms, last.timestamp)
            self._inbox.pop()
        self._inbox.append(From(since_ms))

    def failed(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        self._error = error
        self._wake.set()

    # Steps -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._closed:
                await self._step()
        except RillnodeError as error:
            self._error = error
        except Exception as error:
            logger.exception("subscription_failed")
            self._error = TransportError("client.failed", f"the subscription failed: {error!r}")
        finally:
            self.reader.close()
            for source in self._sources:
                await source.messages.aclose()
            self._began(self._error)
            self._woken.set()

    async def _step(self) -> None:
        """Do the next thing that there is to do, or wait for one."""
        now = self._clock.monotonic()
        self._deliver(await self.reader.poll())
        if not self._sources:
            # A gap is not given up while it is being filled.
            await self._order(self._chains.poll(now))
        may_read = len(self._ready) < READY_MAX and not self.reader.is_full
        if may_read and self._sources:
            await self._read(self._sources[0])
        elif may_read and self._inbox and now >= self._retry_at:
            await self._take_next(self._inbox.popleft())
        elif self._error is not None and not self._inbox and not self._sources:
            raise self._error
        else:
            await self._wait(now)

    async def _take_next(self, item: StreamMessage | Missing) -> None:
        if isinstance(item, StreamMessage):
            self._inbox_bytes -= len(item.content)
            await self._take(item)
        else:
            # All that is stored by now comes, and all that is live from now on.
            self._is_overfull = False
            self._sources.append(_Source(self._resending(item), item))

    async def _read(self, source: _Source) -> None:
        """Take the next stored message."""
        try:
            message = await anext(source.messages)
        except StopAsyncIteration:
            self._began()
            self._sources.popleft()
        except TransportError as error:
            logger.info("resend_broke", extra={"code": error.code})
            self._sources.popleft()
            if source.missing is not None:
                self._retry_at = self._clock.monotonic() + RETRY_SECONDS
                self._inbox.appendleft(source.missing)
        except RequestError as error:
            if source.missing is not None:
                raise
            # The chain itself asks again, and skips the gap in the end.
            logger.warning("gap_not_filled", extra={"code": error.code})
            self._sources.popleft()
        else:
            self._began()
            if source.missing is not None:
                publisher = source.missing.publisher if isinstance(source.missing, From) else None
                source.missing = From(message.id.timestamp, publisher=publisher)
                if publisher is None:
                    self._has_come(message)
            await self._take(message)

    async def _take(self, message: StreamMessage) -> None:
        if self._chains.has(message):
            return  # and nothing is to be found out of it
        if await self.reader.is_genuine(message):
            await self._order(self._chains.add(message, self._clock.monotonic()))

    async def _order(self, events: list[OrderingEvent]) -> None:
        for event in events:
            match event:
                case Ordered(message=message):
                    self._deliver(await self.reader.read(message))
                case GapFound():
                    gap = _range_of(event)
                    self._sources.append(_Source(self._resending(gap), None))
                case GapSkipped(publisher_id=publisher_id, first=first, last=last):
                    self.gaps += 1
                    extra = {"publisher": publisher_id, "first": first, "last": last}
                    logger.warning("gap_skipped", extra=extra)

    def _began(self, error: RillnodeError | None = None) -> None:
        if self._begun.done():
            return
        if error is None:
            self._begun.set_result(None)
        else:
            self._begun.set_exception(error)

    def _deliver(self, messages: list[Message]) -> None:
        self._ready += messages
        if messages:
            self._woken.set()

    async def _wait(self, now: float) -> None:
        """Wait until something comes, or its time does."""
        deadlines = [self.reader.wait_seconds]
        if self._chains.deadline is not None and not self._sources:
            deadlines.append(self._chains.deadline - now)
        if now < self._retry_at:
            deadlines.append(self._retry_at - now)
        seconds = min((one for one in deadlines if one is not None), default=None)
        self._wake.clear()
        await wait_for(self._wake, self._clock, seconds)


def _range_of(gap: GapFound) -> Range:
    return Range(
        start=gap.first[0],
        start_sequence=gap.first[1],
        end=gap.last[0],
        end_sequence=gap.last[1],
        publisher=gap.publisher_id,
        chain_id=gap.chain_id,
    )
