"""The tables of `node.toml` about streams that several nodes share."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rillnode.codecs.limits import (
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    OVERLAY_DEGREE,
    OVERLAY_DEGREE_MAX,
)
from rillnode.node.config.kinds import Count, HostPort, Name
from rillnode.node.config.listener_tables import WebListener


class TrackerTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tracker, which assigns neighbours to nodes that share streams.

    Nodes are told of each other as far as grants let them push to a stream or subscribe to it.

    Attributes:
        enabled: Whether this node is a tracker.
        degree: Neighbours of each node in each stream partition.
    """

    enabled: bool = False
    degree: Annotated[int, Meta(ge=2, le=OVERLAY_DEGREE_MAX)] = OVERLAY_DEGREE


class OverlayTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Streams shared with other nodes. Off unless the table is present.

    Attributes:
        streams: Patterns of the names of streams that are shared: `*` stands for any characters,
            `?` for one.
        trackers: Names of the peers that are trackers, in the same order at all nodes; empty: this
            node itself.
        storage: Keep every such stream for the others, whoever made it.
        advertise: Address and port at which other nodes reach this one's `noise` listener.
            Default: those that it is bound to.
    """

    streams: Annotated[
        tuple[Name, ...], Meta(title="a list of patterns", examples=[["sensors*"]])
    ] = ("*",)
    trackers: Annotated[
        tuple[Name, ...], Meta(title="a list of names of peers", examples=[["core"]])
    ] = ()
    storage: bool = False
    advertise: Annotated[HostPort | None, Meta(examples=["edge-1.example.org:4100"])] = None


class StreamrNetworkListener(WebListener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The WebSockets of released Streamr nodes and trackers: streamr-network to 22.

    Off unless the table is present. Released nodes find the tracker of this node at the listener's
    URL, and its part in shared streams below `/node`. They prove nothing: to grants they are
    `anonymous`, and `streamr:` with the id that they say they have.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        advertise: URL at which others reach the listener. Default: that of the address that it is
            bound to.
        trackers: URLs of released trackers, in the same order at all nodes.
        release: Major version of streamr-network that those trackers and their nodes speak.
    """

    listen: HostPort = "127.0.0.1:30300"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    advertise: Annotated[Name | None, Meta(examples=["ws://edge-1.example.org:30300"])] = None
    trackers: Annotated[
        tuple[Name, ...],
        Meta(title="a list of URLs", examples=[["ws://tracker.example.org:30300"]]),
    ] = ()
    release: Literal[13, 19, 22] = 22
