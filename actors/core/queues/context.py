"""Holds what the parts of a work queue share: names, the node's services, what is to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.queues.said import Word
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.cutting import Cut
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import Route

STOPPED: Final = RequestError(
    "actor.stopped", "The node has ended this queue: work anew", retryable=True
)
"""Nothing comes of what was asked, as the actor ends or begins anew."""


@dataclass(frozen=True, slots=True)
class Due:
    """Time to look what has become due."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """Entries of one kind that follow each other in a partition, given to a worker together.

    Attributes:
        attempt: which one at each of them this is, from 1.
        first_index: the index of the first of them.
        count: how many they are.
        size: how many bytes clients have given of them.
        cuts: the entries.
    """

    partition: int
    attempt: int
    first_index: int
    count: int
    size: int
    cuts: Sequence[Cut]


Runs = list[Run]
"""What a worker is given."""


class QueueContext:
    """A queue as its parts know it; nothing here waits.

    Attributes:
        shared: the services of the node.
        actor: of the queue: what waits, and what is asked of others, does so in its name.
        own_address: who has sent what the queue sends.
        stream: whose entries it gives.
        name: its own.
        said: what was said since the last round.
        more: whether a further round follows while somebody works, without a word from anybody.
    """

    def __init__(
        self, shared: StreamContext, actor: Worker, own_address: bytes, stream: str, name: str
    ) -> None:
        self.shared = shared
        self.actor = actor
        self.own_address = own_address
        self.stream = stream
        self.name = name
        self.said: list[Word] = []
        self.more = False
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def cell(self) -> Cell:
        """Where its actor takes messages."""
        return self.actor.address

    def monotonic(self) -> float:
        """The clock that no change of the date moves."""
        return self.actor.system.timing.monotonic()

    def now_ms(self) -> int:
        """The time that is in the record, milliseconds since 1970."""
        return self.shared.clock.now_ms()

    def may_pull(self, principal: str) -> bool:
        """Whether somebody may take entries of the stream."""
        return self.shared.access.allows(principal, "pull", self.stream)

    def unknown_to(self, origin: Origin) -> RequestError:
        """What is told to who may not."""
        return not_granted("stream.unknown", origin.principal, "pull", self.stream)

    def answer(self, origin: Origin, route: Route, payload: bytes) -> None:
        """Send one message."""
        self.shared.router.reply(origin, self.own_address, [(route, payload)])

    def wake_in(self, seconds: float) -> None:
        """Have the actor get `Due` by then; it may come before."""
        at = self.monotonic() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.actor.wake_after(seconds, Due())

    def woken(self) -> None:
        """`Due` has come."""
        self._timer = None
