"""The table `[ockam]` of a scenario."""

from collections.abc import Mapping
from typing import ClassVar

from rillnode.node.simulated.tables import SimulatedTable, Whole


class OckamClients(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients of Ockam's protocols: hosts `o0`, `t0`, `x0` and so on.

    Attributes:
        users: Clients that push, pull and save indexes with Ockam's stream protocols.
        tcp_users: The same, over plain Ockam TCP, in either dialect.
        channel_users: The same through secure channels, with the node or its peer.
    """

    table: ClassVar[str] = "ockam"
    plug_in: ClassVar[str] = "ockam"
    kinds: ClassVar[Mapping[str, str]] = {"users": "o", "tcp_users": "t", "channel_users": "x"}

    users: Whole = 1
    tcp_users: Whole = 0
    channel_users: Whole = 0

    @property
    def needs_peers(self) -> bool:
        """For channels that end at another node."""
        return self.channel_users > 0
