"""The tables of `node.toml` about streams that several nodes share."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from rillnode.actors.overlay.limits import OVERLAY_DEGREE, OVERLAY_DEGREE_MAX
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from rillnode.codecs.streamr.node_address import parse_url
from rillnode.node.config.address import WILDCARDS
from rillnode.node.config.kinds import Count, HostPort, Name
from rillnode.node.config.listener_tables import WebListener
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.tables import Config


class TrackerTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tracker, which assigns neighbours to nodes that share streams.

    Nodes hear of each other where grants let them push or subscribe to a stream.

    Attributes:
        enabled: Whether this node is a tracker.
        degree: Neighbours of each node in each stream partition.
    """

    table: ClassVar[str] = "tracker"
    plug_in: ClassVar[str] = "overlay"

    enabled: bool = False
    degree: Annotated[int, Meta(ge=2, le=OVERLAY_DEGREE_MAX)] = OVERLAY_DEGREE


class OverlayTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    table: ClassVar[str] = "overlay"
    plug_in: ClassVar[str] = "overlay"

    streams: Annotated[
        tuple[Name, ...], Meta(title="a list of patterns", examples=[["sensors*"]])
    ] = ("*",)
    trackers: Annotated[
        tuple[Name, ...], Meta(title="a list of names of peers", examples=[["core"]])
    ] = ()
    storage: bool = False
    advertise: Annotated[HostPort | None, Meta(examples=["edge-1.example.org:4100"])] = None

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with how streams are shared with other nodes."""
        names = {peer.name for peer in config.peers if peer.noise is not None}
        for table in config.each(cls):
            for at, name in enumerate(table.trackers):
                if name not in names:
                    text = f"{name!r} is not the name of a peer with noise"
                    yield Problem(("overlay", "trackers", at), "config.value", text)
            if not config.noise.enabled:
                text = "other nodes come to the noise listener"
                yield Problem(("overlay",), "config.conflict", text)
            if table.advertise is None and config.noise.address.host in WILDCARDS:
                text = "noise listens on every address: say at which one others reach it"
                yield Problem(("overlay", "advertise"), "config.missing", text)


class StreamrNetworkListener(
    WebListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """The WebSockets of released Streamr nodes and trackers: streamr-network to 22.

    Off unless the table is present. Released nodes find the tracker of this node at the listener's
    URL, and its part in shared streams below `/node`. They prove nothing: grants see them
    as `anonymous`, and as `streamr:` with the id that they claim.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        advertise: URL at which others reach the listener. Default: that of the address that it is
            bound to.
        trackers: URLs of released trackers, in the same order at all nodes.
        release: Major version of streamr-network that those trackers and their nodes speak.
    """

    table: ClassVar[str] = "streamr_network"
    plug_in: ClassVar[str] = "overlay"

    listen: HostPort = "127.0.0.1:30300"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    advertise: Annotated[Name | None, Meta(examples=["ws://edge-1.example.org:30300"])] = None
    trackers: Annotated[
        tuple[Name, ...],
        Meta(title="a list of URLs", examples=[["ws://tracker.example.org:30300"]]),
    ] = ()
    release: Literal[13, 19, 22] = 22

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with how released nodes and trackers are met."""
        for table in config.each(cls):
            if table.enabled:
                yield from _released_problems(table, config)


def _released_problems(table: StreamrNetworkListener, config: Config) -> Iterator[Problem]:
    name, overlay, tracker = table.table, config.table(OverlayTable), config.table(TrackerTable)
    for at, url in enumerate(table.trackers):
        yield from _url((name, "trackers", at), url)
    if table.advertise is not None:
        yield from _url((name, "advertise"), table.advertise)
    if table.trackers and overlay is None:
        text = "which streams are shared is said in an [overlay] table"
        yield Problem((name, "trackers"), "config.missing", text)
    if table.trackers and overlay is not None and overlay.trackers:
        text = "streams have these trackers or those of [overlay], not both"
        yield Problem((name, "trackers"), "config.conflict", text)
    is_tracker = tracker is not None and tracker.enabled
    if not table.trackers and not is_tracker and overlay is None:
        text = "released nodes come to a tracker or to one that shares streams: "
        text += "add [tracker] with enabled = true, or [overlay]"
        yield Problem((name,), "config.missing", text)
    if table.advertise is None and table.address.host in WILDCARDS:
        text = "it listens on every address: say at which URL others reach it"
        yield Problem((name, "advertise"), "config.missing", text)


def _url(path: KeyPath, url: str) -> Iterator[Problem]:
    try:
        parse_url(url)
    except CodecError as error:
        yield Problem(path, "config.value", f"{url!r}: {error.text}")
