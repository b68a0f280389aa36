"""What counts as an actor's failure, and its record."""

import logging
from typing import Final

from rillnode.actors.engine.cell import Cell

logger = logging.getLogger("rillnode.actors.engine.system")

FAILURES: Final = BaseException
"""What an actor may raise without harm to others, but for what `passes`: a cancelled future's
result and a panic of native code are no Exceptions, but as much the actor's own."""


def passes(error: BaseException) -> bool:
    """Whether an exception is the host's, that asks the process to end, and no failure."""
    return isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit)


def record_failure(cell: Cell, doing: str, error: BaseException) -> None:
    """Count a failure and log its reason.

    Args:
        cell: whose code raised.
        doing: what the code was doing: the class of the message, or the name of a hook.
        error: what it raised.

    Raises:
        BaseException: the error itself, where it is no failure.
    """
    if passes(error):
        raise error
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
