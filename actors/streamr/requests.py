"""Defines the requests to relays and resends, and their answers.

A connection asks for its client, the REST interface for its own. What is asked of a relay knows who
is to be answered and whether that was done: it has one answer, whoever gives it, the relay or who
tells that the relay has failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from thespian.actors import ActorAddress

from rillnode.actors.engine.cell import Cell
from rillnode.actors.streamr.outlet import Outlet
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.control_messages import RequestId
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.stream_message import MessageRef, StreamMessage

NOT_FOUND: Final = "NOT_FOUND"
PERMISSION_DENIED: Final = "PERMISSION_DENIED"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"
FUTURE_TIMESTAMP: Final = "FUTURE_TIMESTAMP"
INVALID_REQUEST: Final = "INVALID_REQUEST"
REQUEST_FAILED: Final = "REQUEST_FAILED"
RESEND_FAILED: Final = "RESEND_FAILED"
"""Codes of error responses, as released nodes send them; also those of RequestErrors here."""

UNDELIVERABLE: Final = "UNDELIVERABLE"
"""Of a key message that was taken, for subscribers that read no form which can carry it."""


@dataclass(frozen=True, slots=True)
class Publication:
    """One message to be published.

    Attributes:
        text: what it was decoded from, where it was a text.
        principal: whose session token came with it. It counts for unsigned messages only.
        request_id: the asker's own.
    """

    message: StreamMessage
    text: bytes | None
    principal: str
    request_id: RequestId | None = None


@dataclass(slots=True, eq=False)
class Publish:
    """Publish messages of one stream partition, in order; answered by Published.

    Attributes:
        asker: who is sent the answer; None: whoever sends this, by `ask`.
    """

    publications: Sequence[Publication]
    asker: ActorAddress | None = None
    answered: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True)
class Published:
    """Everything of a Publish is durable, but for what was refused.

    Attributes:
        refused: what was not taken, each with the reason; UNDELIVERABLE: what not everybody is
            sent. Duplicates are dropped and not told of.
    """

    request: Publish
    refused: Sequence[tuple[Publication, RequestError]] = ()


@dataclass(slots=True, eq=False)
class Subscribe:
    """Let a client have every message from now on; the response is written to its outlet.

    Who asks has made sure that the client may subscribe. Where nothing comes of it an error is
    written instead, and the asker is sent a SubscribeFailed.

    Attributes:
        asker: the client's connection.
        over: the asker has taken it back: nobody is to be let in any more.
    """

    outlet: Outlet
    stream_id: str
    partition: int
    request_id: RequestId | None
    asker: Cell | None = None
    over: bool = field(default=False, init=False)
    answered: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True)
class SubscribeFailed:
    """Nothing came of a Subscribe."""

    request: Subscribe


@dataclass(slots=True, eq=False)
class Unsubscribe:
    """Let a client have no more; the response is written to its outlet, if `silent` is not set."""

    outlet: Outlet
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    silent: bool = False
    answered: bool = field(default=False, init=False)


@dataclass(slots=True, eq=False)
class Revoked:
    """A client may have no more: what is written next for its subscription is `error`, the last."""

    outlet: Outlet
    stream_id: str
    partition: int
    request_id: RequestId | None
    error: RequestError
    answered: bool = field(default=False, init=False)


# Resends -------------------------------------------------------------------------------------

FIRST: Final = MessageRef(0, 0)
LAST: Final = MessageRef(STREAMR_INTEGER_MAX, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendQuery:
    """A query for messages of a partition: ascending by (timestamp, sequence), or by index.

    Attributes:
        principal: who asks.
        token: of whose session, where that was proved by one.
        last: only the newest so many; None: all.
        from_ref: lower bound, included; a missing sequence is the first of its millisecond.
        to_ref: upper bound, included; a missing sequence is the last of its millisecond.
        publisher_id: only this publisher's, compared without case.
        chain_id: only this chain's.
        first_index: in place of references, positions in the log: from this one on.
        last_index: up to this one, included; None: to the end.
    """

    stream_id: str
    partition: int
    principal: str
    token: str | None = None
    last: int | None = None
    from_ref: MessageRef = FIRST
    to_ref: MessageRef = LAST
    publisher_id: str | None = None
    chain_id: str | None = None
    first_index: int | None = None
    last_index: int | None = None


class ResendSink(Protocol):
    """Takes what a resend brings; all calls on the loop's thread."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes taken and not passed on yet: the resend waits while they are many."""
        ...

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """The next messages, in order; at least one."""
        ...

    def finished(self, error: RequestError | None) -> None:
        """Nothing follows: all was resent, or why not. Called once."""
        ...
