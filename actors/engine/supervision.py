"""Supervision: what follows when an actor fails.

A handler that has raised costs its message, of which who waits is told; then comes what the class
says. A restart keeps the cell and what waits in its mailbox. An instance that could not start costs
no message. Too many restarts within the class's window end the actor.
"""

from collections.abc import Callable
from typing import Any, Final

from rillnode.actors.engine.cell import FAILURES, GONE, Cell
from rillnode.actors.engine.dead_letters import DeadLetters
from rillnode.actors.engine.lifecycle import Lifecycle
from rillnode.actors.engine.mailboxes import Mailboxes
from rillnode.actors.engine.waiting import Continuation
from rillnode.actors.ports import Timing
from rillnode.codecs.errors import ActorError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")

GIVEN_UP_KEPT: Final = 10_000
"""Cells remembered as given up, the newest: who still has one of them asks soon."""

REPLACED: Final = "The actor failed at other work and was restarted: the node's log says why"

OnFatal = Callable[[Cell, BaseException], object]
"""Told of an essential actor that was given up, and of its last failure."""


class Supervision:
    """Applies each class's policy; see `Worker`."""

    def __init__(
        self,
        life: Lifecycle,
        letters: DeadLetters,
        mailboxes: Mailboxes,
        timing: Timing,
        on_fatal: OnFatal,
    ) -> None:
        self._life = life
        self._letters = letters
        self._mailboxes = mailboxes
        self._timing = timing
        self._restarts: dict[Cell, list[float]] = {}
        self._tries: dict[Cell, tuple[Any, int]] = {}
        self._given_up: dict[Cell, None] = {}
        self._on_fatal = on_fatal

    def failed(self, cell: Cell, message: Any, sender: Any, error: BaseException) -> None:
        """A handler has raised: it costs its message, and what the policy says."""
        cell.failed(type(message).__name__, error)
        if isinstance(sender, Continuation):  # it tells who waits by itself, and runs once
            self._letters.poison(cell, message, None, error)
        elif cell.kind.on_failure != "stop" and self._may_try_again(cell, message):
            self._mailboxes.put_back(cell, [(message, sender)])
        else:
            self._tries.pop(cell, None)
            self._letters.poison(cell, message, sender, error)
        self.mend(cell, error)

    def mend(self, cell: Cell, error: BaseException, *, has_started: bool = True) -> None:
        """Do what the policy says of an actor whose failure was recorded and told."""
        if cell.kind.on_failure == "stop":
            self.give_up(cell, error)
        elif cell.kind.on_failure == "restart" or not has_started:
            self._restart(cell, error)

    def not_started(self, cell: Cell, error: BaseException) -> None:
        """An instance could not be made, or has failed in `started`: no message is to blame."""
        cell.failed("started", error)
        self.mend(cell, error, has_started=False)

    def was_given_up(self, cell: Cell) -> bool:
        """Whether an actor ended because it failed too often; known for some time."""
        return cell in self._given_up

    def forget(self, cell: Cell) -> None:
        """The actor has exited."""
        self._restarts.pop(cell, None)
        self._tries.pop(cell, None)

    def give_up(self, cell: Cell, error: BaseException) -> None:
        """End an actor for its failures."""
        if cell.mailbox is GONE:
            return
        logger.error("actor_stopped_by_failure", extra=cell.logged(policy=cell.kind.on_failure))
        self._given_up[cell] = None
        if len(self._given_up) > GIVEN_UP_KEPT:
            del self._given_up[next(iter(self._given_up))]
        self._life.terminate(cell)
        if cell.kind.essential:
            self._on_fatal(cell, error)

    def _may_try_again(self, cell: Cell, message: Any) -> bool:
        attempts = cell.kind.attempts
        if attempts == 1 or cell.mailbox is GONE:
            return False
        before, tries = self._tries.get(cell, (None, 0))
        tries = tries + 1 if before is message else 1
        self._tries[cell] = message, tries
        return tries < attempts

    def _restart(self, cell: Cell, error: BaseException) -> None:
        """Make a new instance, as often as the intensity allows."""
        if cell.mailbox is GONE:
            return
        kind = cell.kind
        now = self._timing.monotonic()
        restarts = self._restarts.setdefault(cell, [])
        restarts[:] = [at for at in restarts if now - at < kind.restart_window_seconds]
        if len(restarts) >= kind.restarts_max:
            self.give_up(cell, error)
            return
        restarts.append(now)
        kind.restarts += 1
        replaced = ActorError("actor.failed", REPLACED)
        self._life.give_up_instance(cell, replaced, lambda: self._begin_again(cell, replaced))

    def _begin_again(self, cell: Cell, replaced: ActorError) -> None:
        self._mailboxes.forget_own(cell, replaced)
        try:
            self._life.instance_of(cell)
        except FAILURES as error:
            self.not_started(cell, error)


def log_fatal(cell: Cell, error: BaseException) -> None:
    """Tell the log of an essential actor that was given up."""
    logger.critical("essential_actor_ended", extra={"actor": cell.name}, exc_info=error)
