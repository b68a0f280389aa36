"""Describes a work queue to people: in figures that metrics read, and as a document.

Nothing here changes the queue, nor is anything decided by it.
"""

from typing import Final

import msgspec

from rillnode.actors.core.queues.context import QueueContext
from rillnode.actors.core.queues.letters import DeadLetters
from rillnode.actors.core.queues.members import Member, Members
from rillnode.actors.core.queues.names import Gauge
from rillnode.actors.core.queues.partitions import Partitions
from rillnode.actors.core.queues.state import QueueState
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.queues.queue")

OLDEST_SECONDS: Final = 1.0
"""How often it is looked when the oldest entry came that is not settled."""


class QueueStatus:
    """Describes a queue as it is in memory, and says once when it begins to hold up."""

    def __init__(
        self, queue: QueueContext, partitions: Partitions, members: Members, letters: DeadLetters
    ) -> None:
        self._queue = queue
        self._partitions = partitions
        self._members = members
        self._letters = letters
        self._held = ""
        self._oldest_at = 0
        self._look_oldest_at = 0.0

    def note(self, state: QueueState) -> Gauge:
        """Note how the queue stands, for people; and say so where it holds up."""
        held = self._why_held(state)
        if held and not self._held:
            extra = {"stream": self._queue.stream, "queue": self._queue.name, "why": held}
            logger.warning("queue_held", extra=extra)
        self._held = held
        gauges = self._queue.shared.queues.gauges
        gauge = gauges.get(self._queue.own_address)
        if gauge is None:
            gauge = gauges[self._queue.own_address] = Gauge(self._queue.stream, self._queue.name)
        gauge.in_flight = state.given_count
        gauge.waiting = state.open_count - state.given_count - len(state.dying)
        gauge.depth = self._partitions.depth(state)
        gauge.workers = sum(one.origin is not None for one in self._members.by_token.values())
        gauge.done, gauge.dead, gauge.trimmed = state.done, state.dead, state.trimmed
        gauge.held, gauge.oldest_at = held, self._oldest_at if gauge.depth else 0
        return gauge

    def forget(self) -> None:
        """The queue is not in use here any more."""
        self._queue.shared.queues.gauges.pop(self._queue.own_address, None)

    def is_old(self) -> bool:
        """Whether it is time to look for the oldest entry again."""
        return self._queue.monotonic() >= self._look_oldest_at

    async def find_oldest(self, state: QueueState) -> None:
        """See when the oldest entry came that is not settled, and where partitions end."""
        self._look_oldest_at = self._queue.monotonic() + OLDEST_SECONDS
        self._oldest_at = await self._partitions.find_oldest(state)

    async def document(self, state: QueueState) -> bytes:
        """How the queue stands, as JSON text."""
        await self.find_oldest(state)
        lows = [state.low_mark(partition) for partition in range(len(self._partitions.logs))]
        kept = await self._letters.count()
        here = {one.token: one for one in self._members.by_token.values() if one.origin is not None}
        gauge = self.note(state)
        document = {
            **{name: getattr(gauge, name) for name in gauge.__struct_fields__},
            "dying": len(state.dying),
            "dead_kept": kept,
            "attempts": state.settings.attempts,
            "in_flight_max": state.settings.in_flight,
            "by_key": state.settings.by_key,
            "partitions": [
                {"partition": at, "low": low, "next": state.next_index(at), "end": end}
                for at, (low, end) in enumerate(zip(lows, self._partitions.ends, strict=True))
            ],
            "with_workers": [
                {
                    "worker": token.hex()[:8],
                    "principal": _principal_of(here.get(token)),
                    "in_flight": state.given[number],
                    "connected": token in here,
                }
                for number, token in state.workers_of(here)
            ],
        }
        return msgspec.json.encode(document)

    def _why_held(self, state: QueueState) -> str:
        if not state.is_full:
            return ""
        if state.dying and self._letters.error:
            return f"dead letters cannot be kept ({self._letters.error})"
        return f"{state.open_count:,} entries are open: settle some"


def _principal_of(member: Member | None) -> str:
    return "" if member is None or member.origin is None else member.origin.principal
