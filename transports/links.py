"""Defines what every transport promises of a link, tells its user, and bounds.

`Link` and `LinkEvents` have the shape of the ports that actors declare, which are not imported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rillnode.codecs.limits import (
    CLOSE_SECONDS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    DRAIN_SECONDS_MAX,
    HANDSHAKE_SECONDS_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_CONNECTIONS_PER_ADDRESS_MAX,
    HTTP_HEAD_SECONDS_MAX,
    HTTP_IDLE_CLOSE_SECONDS,
    IDLE_CLOSE_SECONDS,
    IDLE_PING_SECONDS,
    LINK_BUFFER_BYTES_MAX,
    LINK_BUFFER_HIGH_BYTES,
    MESSAGE_SECONDS_MAX,
    UNFINISHED_BYTES_MAX,
)
from rillnode.codecs.links import LinkInfo


class Link(Protocol):
    """One open link; all calls on the loop's thread."""

    @property
    def info(self) -> LinkInfo:
        """Who is at the other end."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the peer has not taken yet."""
        ...

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, in order, as one write; no-op once closed.

        Raises:
            CodecError: a message is empty or larger than `info.message_bytes_max`; none is sent.
                Not of WebSockets, whose peers do not say what they take.
        """
        ...

    def pause_reading(self) -> None:
        """Stop reading from the peer until `resume_reading`, at once; idempotent."""
        ...

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        ...

    def close(self, reason: str) -> None:
        """Close after what is buffered was written; `link_closed` follows once."""
        ...


class LinkEvents(Protocol):
    """The events of one link, told on the loop's thread, never from inside `send`."""

    def link_opened(self, link: Link) -> None:
        """The link is authenticated and ready; the first event."""
        ...

    def messages_received(self, messages: list[bytes]) -> None:
        """All whole messages of one read, in order; none after `close`."""
        ...

    def link_drained(self) -> None:
        """Outgoing bytes fell below the high mark after having been above it."""
        ...

    def link_closed(self, reason: str) -> None:
        """The link is gone; the last event, only ever after `link_opened`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """Bounds of the links of one listener, or of one dialled link.

    Attributes:
        handshake_seconds: from connected to authenticated.
        idle_ping_seconds: without sending, after which a ping is sent; None: never.
        idle_close_seconds: without receiving, after which the link is closed; None: never.
        unused_close_seconds: without sending and without receiving, after which the link is closed,
            which is no failure; None: never.
        message_seconds: from the begin of a message to its end, as far as it is waited for.
        drain_seconds: outgoing bytes above the high mark for longer close the link.
        close_seconds: what a closing link has for writing what is buffered.
        buffer_high_bytes: the high mark; the low mark is half of it.
        buffer_bytes_max: more outgoing bytes close the link at once; above the high mark.
        unfinished_bytes_max: bytes of messages that are not whole yet, of all links of one
            listener, requests over HTTP included; beyond that the one goes that was begun first.
        connections_max: links of one listener.
        connections_per_address_max: links of one listener from one remote address.
        sweep_seconds: how often the times above are looked at, so how late they may be noticed.
    """

    handshake_seconds: float = HANDSHAKE_SECONDS_MAX
    idle_ping_seconds: float | None = IDLE_PING_SECONDS
    idle_close_seconds: float | None = IDLE_CLOSE_SECONDS
    unused_close_seconds: float | None = None
    message_seconds: float = MESSAGE_SECONDS_MAX
    drain_seconds: float = DRAIN_SECONDS_MAX
    close_seconds: float = CLOSE_SECONDS_MAX
    buffer_high_bytes: int = LINK_BUFFER_HIGH_BYTES
    buffer_bytes_max: int = LINK_BUFFER_BYTES_MAX
    unfinished_bytes_max: int = UNFINISHED_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX
    sweep_seconds: float = 1.0


NOISE_LIMITS = LinkLimits()
"""rillnode's own links."""

OCKAM_LIMITS = LinkLimits(idle_ping_seconds=None, idle_close_seconds=None)
"""Ockam's TCP: released peers send nothing while idle."""

HTTP_LIMITS = LinkLimits(
    handshake_seconds=HTTP_HEAD_SECONDS_MAX,
    idle_ping_seconds=None,
    idle_close_seconds=HTTP_IDLE_CLOSE_SECONDS,
    connections_max=HTTP_CONNECTIONS_MAX,
    connections_per_address_max=HTTP_CONNECTIONS_PER_ADDRESS_MAX,
)
"""Connections of an HTTP listener; who asks for a WebSocket is a link from then on."""
