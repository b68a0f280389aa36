"""What counts as an actor's failure, and its record."""

import asyncio
import logging
from typing import Final

from rillnode.actors.engine.cell import Cell

logger = logging.getLogger("rillnode.actors.engine.system")

FAILURES: Final = (Exception, asyncio.CancelledError)
"""What an actor may raise without harm to others. A cancelled future's result is no Exception, but
as much the actor's own; SystemExit and KeyboardInterrupt are the host's and pass through."""


def record_failure(cell: Cell, doing: str, error: BaseException) -> None:
    """Count a failure and log its reason.

    Args:
        cell: whose code raised.
        doing: what the code was doing: the class of the message, or the name of a hook.
        error: what it raised.
    """
    cell.kind.failed(error)
    logger.warning(
        "actor_failed",
        exc_info=error,
        extra={
            "actor": cell.name,
            "actor_class": cell.kind.policy.name,
            "doing": doing,
            "policy": cell.kind.policy.on_failure,
        },
    )
