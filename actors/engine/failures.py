"""What counts as an actor's failure, and its record."""

import asyncio
import logging
from typing import Final

from rillnode.actors.engine.cell import Cell

logger = logging.getLogger("rillnode.actors.engine.system")

FAILURES: Final = BaseException
"""What an actor may raise without harm to others, but for what `passes`: a cancelled future's
result and a panic of native code are no Exceptions, but as much the actor's own."""


HOSTS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""What asks the process to end. It is an actor's failure too, so that who waits has his outcome."""


def record_failure(cell: Cell, doing: str, error: BaseException) -> None:
    """Count a failure and log its reason.

    One of `HOSTS` goes to the loop besides, which raises it once all that follows from the failure
    is done.

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
    if isinstance(error, HOSTS):
        asyncio.get_running_loop().call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
