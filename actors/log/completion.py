"""Reports completions and health for every store, and answers while one is not open."""

from collections.abc import Sequence

from rillnode.actors.core.threads import ThreadKilled
from rillnode.actors.log import Complete, OnHealth, Operation, StoreHealth
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")


def deliver(complete: Complete, operations: Sequence[Operation]) -> None:
    """Hand completed operations over.

    What `complete` raises is its own, of whatever kind: a RuntimeError of a loop that is closed, or
    what a tracer of an application has raised. All other operations need the thread that calls it.
    """
    try:
        complete(operations)
    except ThreadKilled:
        raise
    except BaseException:
        logger.exception("completion_failed")


def tell(on_health: OnHealth, health: StoreHealth) -> None:
    """Tell of a change of health; what `on_health` raises is as much its own."""
    try:
        on_health(health)
    except ThreadKilled:
        raise
    except BaseException:
        logger.exception("health_not_told")


def closed_error() -> StoreError:
    """The answer to what comes before `open` and after `close`."""
    return StoreError("store.closed", "the store is not open")
