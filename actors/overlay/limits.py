"""Limits on overlays and their trackers, each with its unit and its origin."""

from typing import Final

OVERLAY_DEGREE: Final = 4
"""Neighbours of a node in a stream partition's overlay; streamr-network."""

OVERLAY_DEGREE_MAX: Final = 64
"""Own choice: a message costs a node as many copies as it has neighbours."""

OVERLAY_NODES_MAX: Final = 16_384
"""Nodes that one tracker takes. Own choice."""

OVERLAY_STREAMS_MAX: Final = 65_536
"""Stream partitions that one tracker keeps overlays of. Own choice; about 1 kB each and up."""

OVERLAY_RESENDS_MAX: Final = 32
"""Answers to other nodes that one stream partition prepares at one time. Own choice."""
