"""What the store says when JetStream fails or refuses."""

from typing import Final

from nats.js.errors import APIError

from rillnode.codecs.errors import StoreError

FULL: Final = frozenset({10002, 10023, 10028, 10047, 10077, 10122})
"""Errors of nats-server (server/errors.json) that say that storage or an account is used up."""


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
