"""The way into an actor system from other threads."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

logger = logging.getLogger("rillnode.actors.system")

Delivery = tuple[Any, ...]
"""Arguments of a post: target, message and perhaps sender."""

Schedule = Callable[[Callable[[], object]], object]

BATCH_MESSAGES_MAX: Final = 1_024
"""Messages that go into mailboxes before the loop gets its turn."""


class Inbox:
    """Takes deliveries on any thread and posts them on the loop's, in order of arrival.

    The loop is woken once for all that arrives before it comes to it; what arrives on its own
    thread is posted at once.
    """

    def __init__(
        self,
        *,
        post: Callable[..., None],
        lose: Callable[..., None],
        call_soon: Schedule,
        call_soon_threadsafe: Schedule,
        may_post: Callable[[], bool],
    ) -> None:
        self._post = post
        self._lose = lose
        self._call_soon = call_soon
        self._call_soon_threadsafe = call_soon_threadsafe
        self._may_post = may_post
        self._batches: deque[tuple[Delivery, ...]] = deque()
        self._called = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def enter(self, deliveries: Iterable[Delivery]) -> None:
        """Have deliveries posted; what comes after the loop has closed is lost to `lose`."""
        batch = tuple(deliveries)
        for start in range(0, len(batch), BATCH_MESSAGES_MAX):
            self._batches.append(batch[start : start + BATCH_MESSAGES_MAX])
        if self._may_post():
            self._drain()
            return
        # Whoever sees True has added before the drain set False, which pops only after that.
        if self._called or not self._batches:
            return
        self._called = True
        try:
            self._call_soon_threadsafe(self._drain)
        except RuntimeError:  # the loop is closed
            self.flush()

    def flush(self) -> None:
        """The loop has ended: what it did not come to is lost."""
        self._called = False
        while self._batches:
            for delivery in self._batches.popleft():
                self._lose(*delivery)

    def _drain(self) -> None:
        self._called = False
        room = BATCH_MESSAGES_MAX
        while self._batches:
            batch = self._batches.popleft()
            room -= len(batch)
            for delivery in batch:
                try:
                    self._post(*delivery)
                except Exception:
                    # One bad delivery must not cost those behind it.
                    logger.exception("bad_delivery")
            if room <= 0:
                break
        if self._batches and not self._called:
            self._called = True
            self._call_soon(self._drain)
