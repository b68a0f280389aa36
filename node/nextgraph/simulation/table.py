"""The table `[nextgraph]` of a scenario."""

from collections.abc import Mapping
from typing import ClassVar

from rillnode.node.simulated.tables import SimulatedTable, Some


class NextgraphClients(SimulatedTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients of the `nextgraph` listener: hosts `g0` and so on.

    Attributes:
        users: Clients that write one document for each node.
    """

    table: ClassVar[str] = "nextgraph"
    plug_in: ClassVar[str] = "nextgraph"
    kinds: ClassVar[Mapping[str, str]] = {"users": "g"}

    users: Some = 1
