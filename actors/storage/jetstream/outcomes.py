"""What is told to who waits for work that has failed, whatever it failed of."""

import logging

from rillnode.actors.storage.jetstream.connection import UnansweredError
from rillnode.actors.storage.jetstream.failures import unreachable_error
from rillnode.codecs.errors import CodecError, StoreError

logger = logging.getLogger("rillnode.actors.storage")


def failure_of(error: Exception, what: str) -> StoreError:
    """The answer to `what` that ended with an error; for handlers that take all of them.

    They must: what waits for the store waits in actors, which nobody but the store wakes, so an
    error that a handler lets pass leaves it waiting for ever. One that is not expected is a bug,
    here or in the client of the servers, and is logged with its traceback.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, CodecError):
        return StoreError("store.corrupt", str(error), retryable=False)
    if isinstance(error, UnansweredError):
        return unreachable_error(str(error))
    logger.exception("store_failed")
    return StoreError("store.failed", f"the {what} failed ({error!r})")
