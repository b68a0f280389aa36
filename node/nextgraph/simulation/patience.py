"""Bounds a simulated NextGraph user's wait for an answer, and tells whose fault none is.

The protocol has no pings, and a WebSocket's frames are not sealed: where a bit has flipped in a
frame's length, the other side waits for the rest of it, and who waits for an answer does not learn
that. A program gives up then. Where nothing was harmed, an answer must come once all faults are
over: that a broker has lost power, a client's system finds out by itself.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from rillnode.codecs.errors import TransportError
from rillnode.node.nextgraph.simulation.document import Document
from rillnode.node.simulated.programs import Share

T = TypeVar("T")

LOOK_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
"""Within which an answer comes when all is well."""


class Patience:
    """One user's.

    Attributes:
        healed_at: when all faults were over; None: they are not.
    """

    def __init__(self, share: Share, document: Document, name: str) -> None:
        self._share = share
        self._document = document
        self._name = name
        self._began = 0
        self.healed_at: float | None = None

    def begin(self) -> None:
        """A connection begins."""
        self._began = self._harm

    @property
    def excused(self) -> bool:
        """Whether something has happened since then that no broker can help."""
        return self._harm != self._began

    @property
    def _harm(self) -> int:
        """What a connection may not outlast: it is another value after each time."""
        return self._share.world.network.harmed

    async def ask(self, asking: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer.

        Raises:
            RillnodeError: as what is waited for; TransportError `link.closed`, none comes.
        """
        history = self._share.history
        began, task = history.now(), asyncio.get_running_loop().create_task(asking)
        try:
            while True:
                done, _ = await asyncio.wait((task,), timeout=LOOK_SECONDS)
                if done:
                    return task.result()
                if self.excused:
                    break
                healed = self.healed_at
                if healed is not None and history.now() > max(began, healed) + ANSWER_SECONDS:
                    self._document.broken("no-progress", self._name, "what it asks is not answered")
                    break
        finally:
            task.cancel()
        raise TransportError("link.closed", "there is no answer")
