"""The table `[streamr]` of a scenario."""

from collections.abc import Mapping
from typing import ClassVar

from rillnode.node.simulated.tables import SimulatedTable, Some


class StreamrClients(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients of the `streamr` listener: hosts `w0` and so on.

    Attributes:
        users: Clients that publish signed messages, follow, ask for resends and make streams.
    """

    table: ClassVar[str] = "streamr"
    plug_in: ClassVar[str] = "streamr"
    kinds: ClassVar[Mapping[str, str]] = {"users": "w"}

    users: Some = 1
