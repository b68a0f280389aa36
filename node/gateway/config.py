"""The table of the `gateway` listener."""

from typing import ClassVar

from rillnode.node.config.keyed_listener import KeyedListener
from rillnode.node.config.kinds import Count, HostPort, Seconds


class GatewayListener(KeyedListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Streams over HTTP, for anything that can send a request.

    Off unless the table is present. Clients without a key are `anonymous`, and may do what a grant
    lets that principal do.

    Attributes:
        tails_max: Tails (streams of server-sent events) open at one time.
        body_bytes_max: Largest body of a request.
        ticket_seconds: How long a ticket is valid; while a tail uses it, it is renewed.
    """

    table: ClassVar[str] = "gateway"
    plug_in: ClassVar[str] = "gateway"
    tried: ClassVar[bool] = True

    listen: HostPort = "127.0.0.1:8891"
    tails_max: Count = 1_000
    body_bytes_max: Count = 16_777_216
    ticket_seconds: Seconds = 300.0
