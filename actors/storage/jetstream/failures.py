"""What is raised when JetStream fails or refuses, and what the store says of it."""

import logging
from typing import Final

from nats.js.errors import APIError

from rillnode.codecs.errors import CodecError, StoreError

logger = logging.getLogger("rillnode.actors.storage")

FULL: Final = frozenset({10002, 10023, 10028, 10047, 10077, 10122})
"""Errors of nats-server (server/errors.json) that say that storage or an account is used up."""


class WrongLastSequenceError(Exception):
    """Nothing was stored: another writer's message stands where this one was to stand."""


class ExistsError(Exception):
    """A stream of this name is there already."""


class UnansweredError(Exception):
    """It is not known whether the request was carried out."""


class NobodyError(Exception):
    """Nobody listens for such requests: who did is gone."""


def unreachable_error(reason: str) -> StoreError:
    """No server answers as it should."""
    return StoreError(
        "store.unreachable",
        f"JetStream does not answer ({reason}): check the servers and the network between",
    )


def denied_error(reason: str) -> StoreError:
    """The servers answer, and do not let us in."""
    return StoreError(
        "store.denied",
        f"the NATS servers do not let this node in ({reason}): check store.credentials_file, and "
        "that its user's account has JetStream",
        retryable=False,
    )


def unusable_error(reason: str) -> StoreError:
    """What this node is to show the servers cannot be used."""
    return StoreError(
        "store.denied",
        f"{reason}: check credentials_file, tls_ca, tls_cert and tls_key of [store]",
        retryable=False,
    )


def lost_error(name: str) -> StoreError:
    """The cluster has less than it had confirmed."""
    return StoreError(
        "store.lost",
        f"JetStream has lost what it had confirmed of {name}: restore the servers' storage, or "
        "restart the node to go on without it",
        retryable=False,
        stream=name,
    )


def too_large_error(room: int) -> StoreError:
    """What must be written as one message is larger than the servers take."""
    return StoreError(
        "store.too_large",
        f"what is to be written at once does not fit the {room} bytes that the NATS servers take: "
        "set max_payload: 8MB in their configuration",
        retryable=False,
    )


def refused_error(error: APIError) -> StoreError:
    """The cluster said no."""
    text = error.description or str(error)
    if error.err_code in FULL:
        return StoreError(
            "store.full",
            f"JetStream has no room ({text}): give its servers more storage, or the account a "
            "higher limit; the store takes writes again by itself",
        )
    return StoreError("store.refused", f"JetStream refuses ({text}): check [store] and its servers")


def fenced_error(what: str) -> StoreError:
    """Another node was first."""
    return StoreError(
        "store.fenced", f"another node has {what} meanwhile: read it again, then try again"
    )


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
