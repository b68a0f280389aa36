"""The way into an actor system from other threads."""

import asyncio
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Final

from rillnode.actors.engine.mailboxes import Mailboxes
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")

Delivery = tuple[Any, ...]
"""Arguments of a post: target, message and perhaps sender."""

BATCH_MESSAGES_MAX: Final = 1_024
"""Messages that go into mailboxes before the loop gets its turn."""


class Inbox:
    """Takes deliveries on any thread and posts them on the loop's, in order of arrival.

    The loop is woken once for all that arrives before it comes to it; what arrives on its own
    thread is posted at once.

    Args:
        mailboxes: where it posts.
        loop: what is woken.
        is_here: whether the caller is on its thread.
    """

    def __init__(
        self, mailboxes: Mailboxes, loop: asyncio.AbstractEventLoop, is_here: Callable[[], bool]
    ) -> None:
        self._mailboxes = mailboxes
        self._loop = loop
        self._is_here = is_here
        # Takes a fifth of an empty deque's memory, and most systems' threads say little.
        self._batches: SimpleQueue[tuple[Delivery, ...]] = SimpleQueue()
        self._called = False

    def __bool__(self) -> bool:
        return not self._batches.empty()

    def enter(self, deliveries: Iterable[Delivery]) -> None:
        """Have deliveries posted; what comes after the loop has closed is lost."""
        batch = tuple(deliveries)
        may_post = self._is_here() and not self._loop.is_closed()
        if may_post and self._batches.empty() and len(batch) <= BATCH_MESSAGES_MAX:
            self._post_all(batch)
            return
        for start in range(0, len(batch), BATCH_MESSAGES_MAX):
            self._batches.put(batch[start : start + BATCH_MESSAGES_MAX])
        if may_post:
            self._drain()
            return
        # Whoever sees True has added before the drain set False, which pops only after that.
        if self._called or self._batches.empty():
            return
        self._called = True
        try:
            self._loop.call_soon_threadsafe(self._woken, context=self._mailboxes.fresh_context())
        except RuntimeError:  # the loop is closed
            self.flush()

    def _post_all(self, batch: Iterable[Delivery]) -> None:
        for delivery in batch:
            try:
                self._mailboxes.post(*delivery)
            except Exception:
                # One bad delivery must not cost those behind it.
                logger.exception("bad_delivery")

    def flush(self) -> None:
        """The loop has ended: what it did not come to is lost."""
        self._called = False
        while self:
            for delivery in self._batches.get_nowait():
                self._mailboxes.lose(*delivery)

    def _woken(self) -> None:
        # All that threads have brought is in the mailboxes by the time the turns are given.
        self._mailboxes.at_once(self._drain)

    def _drain(self) -> None:
        self._called = False
        room = BATCH_MESSAGES_MAX
        while not self._batches.empty():
            batch = self._batches.get_nowait()
            room -= len(batch)
            self._post_all(batch)
            if room <= 0:
                break
        if self and not self._called:
            self._called = True
            self._loop.call_soon(self._drain, context=self._mailboxes.fresh_context())
