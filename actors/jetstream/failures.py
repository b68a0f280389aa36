"""Maps JetStream's errors to errors of the store.

Codes of errors are those of nats-server (server/errors.json).
"""

from ssl import SSLCertVerificationError
from typing import Final

import msgspec

from rillnode.actors.log.shared.port import LogLost
from rillnode.codecs.errors import StoreError

NO_MESSAGE: Final = 10037
STREAM_EXISTS: Final = 10058
"""With another configuration, such as a number of replicas that was given since."""

NO_STREAM: Final = 10059

_FULL: Final = frozenset({10002, 10023, 10028, 10047, 10122})
"""Storage, or an account's share of it, is used up."""

_NOT_STORED: Final = 10077
"""A server could not store a message; others may have."""

_LIMIT: Final = "maximum"
"""So begins what is said with that code where a stream's own limits are meant: to all replicas."""

_NO_PEERS: Final = 10005
"""Fewer servers are there than a stream is to have replicas: not yet, or some are away."""

_TOO_LARGE: Final = 10054
_NO_JETSTREAM: Final = 10039
"""For the account of this user."""


class Fault(msgspec.Struct, frozen=True):
    """An error in an answer of JetStream; code is like a status of HTTP."""

    code: int = 0
    err_code: int = 0
    description: str = ""


def refusal(fault: Fault) -> StoreError | LogLost:
    """What to raise for a fault: what the servers may do later, or have done in part, is lost."""
    said, number = fault.description, fault.err_code
    if number in _FULL or (number == _NOT_STORED and said.startswith(_LIMIT)):
        return StoreError(
            "store.full",
            f"JetStream has no room ({said}): give its servers more storage, or the account or "
            "the stream a higher limit; the store takes writes again by itself",
        )
    if number == _NO_JETSTREAM:
        return denied_error(said)
    if number == _TOO_LARGE:
        return too_large_error(said)
    if 400 <= fault.code < 500 and number != _NO_PEERS:
        return StoreError(
            "store.refused", f"JetStream refuses ({said}): check [store] and its servers"
        )
    return LogLost(said or f"JetStream failed with code {number}")


def denied_error(reason: str) -> StoreError:
    """The servers answer, and do not let us in, or do not let us do what was asked."""
    return StoreError(
        "store.denied",
        f"the NATS servers do not let this node in ({reason}): check store.credentials_file, and "
        "that its user's account has JetStream and may use the subjects of the store",
        retryable=False,
    )


def unusable_error(reason: str) -> StoreError:
    """What this node is to show the servers cannot be used."""
    return StoreError(
        "store.denied",
        f"{reason}: check servers, credentials_file, tls_ca, tls_cert and tls_key of [store]",
        retryable=False,
    )


def incomplete_error(what: str) -> StoreError:
    """Logs are not there, or are not those that they were."""
    return StoreError(
        "store.incomplete",
        f"{what}: restore the servers' storage; or, to begin anew without what was stored, delete "
        "all streams of this prefix while no node runs",
        retryable=False,
    )


def too_large_error(reason: str) -> StoreError:
    """What must be written as one message is larger than the servers take."""
    return StoreError(
        "store.too_large",
        f"what is to be written at once is larger than the NATS servers take ({reason}): set "
        "max_payload: 8MB in their configuration",
        retryable=False,
    )


def told(error: Exception) -> str:
    """Why a server is not connected to, and what to set where that is about its certificate."""
    if isinstance(error, SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return f"its certificate is not trusted ({why}): see tls_ca of [store]"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return str(error) or type(error).__name__
