"""Thespian's blocking API: how threads outside the loop ask actors."""

import queue
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Protocol

from thespian.actors import Actor, ActorAddress
from thespian.system import isInternalActorSystemMessage

from rillnode.actors.engine.cell import Cell, Period
from rillnode.actors.engine.outside import Outside
from rillnode.codecs.errors import ActorError


class Entrance(Protocol):
    """The way into a system from its callers' threads."""

    def enter(self, deliveries: Iterable[tuple[Any, ...]]) -> None:
        """Post many."""
        ...

    def newPrimaryActor(
        self,
        actor_class: type[Actor] | str,
        requirements: dict[str, Any] | None = None,
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> Cell:
        """Make an actor without a parent."""
        ...

    def on_loop_thread(self) -> bool:
        """Whether the caller is on the loop's thread."""
        ...


def seconds_of(period: Period) -> float | None:
    """What Thespian takes as a time, in seconds."""
    return period.total_seconds() if isinstance(period, timedelta) else period


class Caller(Outside):
    """An address at which a thread waits for messages; the methods are Thespian's."""

    def __init__(self, base: Entrance, name: str) -> None:
        super().__init__(name)
        self._system = base
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open = True

    def deliver(self, message: Any) -> bool:
        """Keep a message for `listen`; the system's own are taken, but not shown, as ever."""
        if self._open and not isInternalActorSystemMessage(message):
            self._arrived.put(message)
        return self._open

    def tell(self, target: ActorAddress, message: Any) -> None:
        """Send a message; never waits."""
        self._system.enter([(target, message, self)])

    def ask(self, target: ActorAddress, message: Any, timeout: Period = None) -> Any:
        """Send a message and return the next that arrives, or None after `timeout`."""
        self.tell(target, message)
        return self.listen(timeout)

    def listen(self, timeout: Period = None) -> Any:
        """Return the next message that arrives, or None after `timeout`.

        Raises:
            ActorError: `actor.would_block`, called on the loop's own thread.
        """
        if self._system.on_loop_thread():
            raise ActorError("actor.would_block", "The loop's thread cannot wait: `await base.ask`")
        seconds = seconds_of(timeout)
        try:
            return self._arrived.get(timeout=None if seconds is None else max(0.0, seconds))
        except queue.Empty:
            return None

    def newPrimaryActor(
        self,
        actor_class: type[Actor] | str,
        requirements: dict[str, Any] | None = None,
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> Cell:
        """Make an actor, see `AsyncioSystemBase.newPrimaryActor`."""
        return self._system.newPrimaryActor(actor_class, requirements, global_name, source_hash)

    def exit_context(self) -> None:
        """Take no more messages."""
        self._open = False
