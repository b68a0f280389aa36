"""A mailbox: an address of a client to which messages come that answer none of its questions."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import WireMessage
from rillnode.node.client.messages import Answer, Messages
from rillnode.node.iteration import Iteration

logger = event_logger("rillnode.node.client")

MAILBOX_MESSAGES: Final = 1_024

MAILBOX_BYTES_MAX: Final = 16_777_216
"""Payload bytes that wait in one mailbox, beyond the first message. Own choice: four of the
largest messages."""


class Mailbox(Iteration[Answer]):
    """An address of a client for unasked messages, in each sender's order; see `Client.mailbox`.

    Who is to send to it gets its address as a return route: `send(route, payload,
    return_address=box.address)`. The worker there may answer as often as it likes, and later.
    What comes while a link is lost, or to a route over a link that is gone, does not come again.
    A mailbox that is full drops what comes, counts it in `dropped` and logs it: nobody is kept
    waiting by who does not read.

    Attributes:
        address: the client's own address that its messages come to.
    """

    def __init__(self, messages: Messages, messages_max: int) -> None:
        self._box = box = _Box(messages, messages_max)
        self.address = box.address
        super().__init__(box)
        self._close_when_dropped()

    @property
    def dropped(self) -> int:
        """Messages that came while it was full, since it was made."""
        return self._box.dropped


class _Box:
    """What waits in a mailbox; the source of its iteration."""

    def __init__(self, messages: Messages, messages_max: int) -> None:
        self.dropped = 0
        self._messages = messages
        self._messages_max = messages_max
        self._waiting: deque[Answer] = deque()
        self._waiting_bytes = 0
        self._full = False
        self._closed = False
        self._error = messages.error
        self._wake = asyncio.Event()
        self.address = messages.attach(self._received, self)

    async def fetch(self) -> Sequence[Answer]:
        """Wait for the next message; raises why nothing comes any more."""
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message.payload)
        self._full = False
        return (message,)

    async def close(self) -> None:
        """Give the address back; who waits is told that nothing comes."""
        self._messages.detach(self.address)
        self._waiting.clear()
        self._closed = True
        self._wake.set()

    def _received(self, wire: WireMessage) -> None:
        waiting, size = self._waiting, len(wire.payload)
        too_large = waiting and self._waiting_bytes + size > MAILBOX_BYTES_MAX
        if too_large or len(waiting) >= self._messages_max:
            self.dropped += 1
            if not self._full:  # once until something is taken, not for each
                self._full = True
                logger.warning("mailbox_full", extra={"waiting": len(waiting)})
            return
        waiting.append(Answer(wire.return_route, wire.payload))
        self._waiting_bytes += size
        self._wake.set()

    def link_opened(self) -> None:
        """It makes no difference to what waits."""

    def ended(self, error: RillnodeError) -> None:
        """Tell who reads, after what has come."""
        self._error = error
        self._wake.set()
