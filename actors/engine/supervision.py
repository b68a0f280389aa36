"""Supervision: what follows when an actor's handler raises."""

import logging
import traceback
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ChildActorExited, PoisonMessage

from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.failures import FAILURES, record_failure

if TYPE_CHECKING:
    from rillnode.actors.engine.dispatcher import Dispatcher

logger = logging.getLogger("rillnode.actors.engine.system")


class Supervision:
    """Applies each class's `on_failure`; see `Worker`."""

    def __init__(self, base: "Dispatcher") -> None:
        self._base = base
        self._restarts: dict[Cell, list[float]] = {}

    def recover(
        self, cell: Cell, message: Any, sender: ActorAddress | None, error: BaseException
    ) -> bool:
        """Deal with a handler's failure; False when the actor has exited of it.

        The message stays in its place: it is tried again before any other is.
        """
        record_failure(cell, type(message).__name__, error)
        policy = cell.kind.policy.on_failure
        if policy == "stop" or (policy == "restart" and not self._restart(cell)):
            return self._stop(cell, message, sender, error)
        try:
            self._base.deliver(cell, message, sender)
        except FAILURES as again:
            record_failure(cell, type(message).__name__, again)
            if policy == "restart" and not self._restart(cell):
                return self._stop(cell, message, sender, again)
            self._poison(cell, message, sender, again)
        return cell.mailbox is not GONE

    def forget(self, cell: Cell) -> None:
        """The actor has exited."""
        self._restarts.pop(cell, None)

    def _restart(self, cell: Cell) -> bool:
        """Make a new instance, as often as the intensity allows; False when it allows no more."""
        kind = cell.kind
        restarts = self._restarts.setdefault(cell, [])
        while True:
            now = self._base.timing.monotonic()
            restarts[:] = [at for at in restarts if now - at < kind.policy.restart_window_seconds]
            if len(restarts) >= kind.policy.restarts_max:
                return False
            restarts.append(now)
            kind.restarts += 1
            try:
                self._base.life.replace_instance(cell)
            except FAILURES as error:
                record_failure(cell, "restart", error)
            else:
                return True

    def _stop(
        self, cell: Cell, message: Any, sender: ActorAddress | None, error: BaseException
    ) -> bool:
        logger.error(
            "actor_stopped_by_failure",
            extra={
                "actor": cell.name,
                "actor_class": cell.kind.policy.name,
                "policy": cell.kind.policy.on_failure,
            },
        )
        self._poison(cell, message, sender, error)
        self._base.life.terminate(cell)
        return False

    def _poison(
        self, cell: Cell, message: Any, sender: ActorAddress | None, error: BaseException
    ) -> None:
        self._base.poison(message)
        # Neither is bad news about bad news, nor does a child hear that its end was bad news.
        if sender is None or isinstance(message, PoisonMessage | ChildActorExited):
            self._base.bury(cell, message, sender, "poison")
            return
        details = "".join(traceback.format_exception(error))
        self._base.post(sender, PoisonMessage(message, details), cell)
