"""How every store hands completed operations over, and what it answers while it is not open."""

import logging
from collections.abc import Sequence

from rillnode.actors.storage import Complete, Operation
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")


def deliver(complete: Complete, operations: Sequence[Operation]) -> None:
    """Hand completed operations over.

    What `complete` raises is its own, of whatever kind: a RuntimeError of a loop that is closed, or
    what a tracer of an application has raised. All other operations need the thread that calls it.
    """
    try:
        complete(operations)
    except Exception:
        logger.exception("completion_failed")


def closed_error() -> StoreError:
    """The answer to what comes before `open` and after `close`."""
    return StoreError("store.closed", "the store is not open")
