"""Tells in one line of what has failed with a link, and that nobody has asked for.

Futures of `push_nowait` and `done_nowait` need not be awaited. Where a client is closed, or its
link is lost for good, Python would say of each that its exception was never retrieved.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.node.client")

STREAMS_MAX: Final = 8
"""Streams that one line names."""


class Unheard:
    """Futures of one session that have failed together. All calls on the loop."""

    def __init__(self) -> None:
        self._futures: list[tuple[str, Sequence[asyncio.Future[Any]]]] = []

    def add(
        self, stream: str, futures: Sequence[asyncio.Future[Any]], error: RillnodeError
    ) -> None:
        """Tell of these, unless somebody takes their error first.

        What the node has answered is Python's to tell of, one by one.
        """
        if isinstance(error, TransportError):
            if not self._futures:
                # Whoever waits is woken in the next turn.
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._tell, error.code)
            self._futures.append((stream, futures))

    def _tell(self, code: str) -> None:
        failed, self._futures = self._futures, []
        counts = Counter[str]()
        for stream, futures in failed:
            for future in futures:
                # Nobody's business but asyncio's; without it, it is told of what was taken, too.
                if not future.cancelled() and getattr(future, "_log_traceback", True):
                    future.exception()  # who asks later still gets it
                    counts[stream] += 1
        if counts:
            streams = sorted(counts)
            logger.warning(
                "outcomes_unknown",
                extra={
                    "code": code,
                    "count": counts.total(),
                    "streams": streams[:STREAMS_MAX],
                    "streams_count": len(streams),
                },
            )
