"""The table `[overlay]` of a scenario."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from rillnode.actors.overlay.limits import OVERLAY_DEGREE, OVERLAY_DEGREE_MAX
from rillnode.node.config.paths import KeyPath
from rillnode.node.simulated.tables import Scenario, SharingTable, Whole

TRACKER: Final = "tracker"
"""The node that forms the overlay."""


class SharedOverlay(SharingTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An overlay over which all nodes share one stream; a node called `tracker` forms it.

    Without faults only spreading is measured. With faults, which can also strike the tracker,
    clients push and follow, and the rules are checked.

    Attributes:
        degree: Neighbours of each node.
        storage_nodes: How many nodes keep streams for others; only with faults.
    """

    table: ClassVar[str] = "overlay"
    plug_in: ClassVar[str] = "overlay"
    more_nodes: ClassVar[tuple[str, ...]] = (TRACKER,)

    degree: Annotated[int, Meta(ge=2, le=OVERLAY_DEGREE_MAX)] = OVERLAY_DEGREE
    storage_nodes: Whole = 0

    def problems(self, scenario: Scenario) -> Iterator[tuple[KeyPath, str]]:
        """Too few nodes."""
        if scenario.nodes < 2:
            yield ("nodes",), "an overlay has at least two"
        if self.storage_nodes > scenario.nodes:
            text = f"expected at most the {scenario.nodes} nodes"
            yield ("overlay", "storage_nodes"), text
        if self.storage_nodes and not scenario.has_faults:
            yield ("overlay", "storage_nodes"), "only an overlay with faults has them"
