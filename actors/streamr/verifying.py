"""Verifies the signatures of messages that came together, with threads that help the loop.

libsecp256k1 lets go of the interpreter while it works, so a thread that has a core to itself takes
nearly half of a group off the loop. It does so only while the loop verifies as well: beside a loop
that runs Python, it would have to wait for the interpreter at every signature. So the loop works
through a group from one end, and helpers from the other. It waits for none of them: what one has
begun and not finished when nothing else is left, the loop verifies too. Where no core is free, it
does everything by itself, and everything that follows is as if there were no helpers.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rillnode.actors.core.threads import Queue, Running, ThreadKilled, Threads
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.signing import Verdict, verify_message
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = event_logger("rillnode.actors.streamr.verifying")

GROUP_MIN: Final = 4
"""Messages that helpers are woken for: to wake one takes as long as to verify a signature."""

Verify = Callable[[Sequence[StreamMessage]], Sequence[Verdict]]


def verify_each(messages: Sequence[StreamMessage]) -> Sequence[Verdict]:
    """The verdicts on messages, in their order."""
    return [verify_message(message) for message in messages]


class _Group:
    """Messages, what is known of them, and the numbers of those that nobody has begun with."""

    __slots__ = ("_left", "_messages", "_verdicts")

    def __init__(self, messages: Sequence[StreamMessage]) -> None:
        self._messages = messages
        self._verdicts: list[Verdict | None] = [None] * len(messages)
        self._left = deque(range(len(messages)))

    def verify(self) -> Sequence[Verdict]:
        """Verify what nobody has begun with from the first on, then what is not known yet."""
        messages, verdicts, left = self._messages, self._verdicts, self._left
        while left:
            try:
                number = left.popleft()
            except IndexError:  # a helper was faster
                break
            verdicts[number] = verify_message(messages[number])
        return [
            verify_message(message) if verdict is None else verdict
            for message, verdict in zip(messages, verdicts, strict=True)
        ]

    def help(self) -> None:
        """Verify what nobody has begun with, from the last on.

        What fails is left to `verify`, which fails likewise, where somebody is told of it.
        """
        messages, verdicts, left = self._messages, self._verdicts, self._left
        while left:
            try:
                number = left.pop()
            except IndexError:  # the loop was faster
                return
            try:
                verdicts[number] = verify_message(messages[number])
            except ThreadKilled:
                raise
            except Exception:
                logger.debug("not_helped", exc_info=True)


class VerifyingThreads:
    """Verifies messages in the thread that asks, and helpers' threads.

    All calls on one thread. Helpers are started when there is something for them to do.

    Args:
        threads: make the helpers.
        count: of helpers; 0: none.
    """

    def __init__(self, threads: Threads, count: int) -> None:
        self._threads = threads
        self._count = count
        self._queue: Queue[_Group | None] = threads.queue()
        self._running: list[Running] = []
        self._is_stopped = False

    def __call__(self, messages: Sequence[StreamMessage]) -> Sequence[Verdict]:
        """The verdicts on messages, in their order."""
        if not self._count or self._is_stopped or len(messages) < GROUP_MIN:
            return verify_each(messages)
        if not self._running:
            self._running = [
                self._threads.start(self._run, f"streamr-verifier-{number}")
                for number in range(self._count)
            ]
        group = _Group(messages)
        # Who has not even come for the last group has no core.
        if not self._queue.qsize():
            for _ in range(min(self._count, len(messages) // 2)):
                self._queue.put(group)
        return group.verify()

    def stop(self) -> None:
        """End the helpers; what is asked for later is verified without any."""
        self._is_stopped = True
        running, self._running = self._running, []
        for _ in running:
            self._queue.put(None)
        for thread in running:
            thread.join()

    def _run(self) -> None:
        while (group := self._queue.get()) is not None:
            group.help()
