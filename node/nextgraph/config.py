"""The table of the `nextgraph` listener."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from rillnode.codecs.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from rillnode.node.config.kinds import Count, HostPort, Name
from rillnode.node.config.listener_tables import WebListener
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.tables import Config

KEY_FILE: Final = "nextgraph.key"


class NextgraphListener(
    WebListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """NextGraph's WebSocket with its Noise XK, for unmodified NextGraph clients.

    Off unless the table is present.

    Attributes:
        connections_max: WebSockets open at one time.
        connections_per_address_max: WebSockets open at one time from one remote address.
        registration: Who may register: nobody, holders of an invitation, or everybody.
        public_name: Name, and port unless it is 443, under which clients reach the node over TLS,
            also through a proxy on this machine.
        origins: Origins of web pages that may connect, beside those of the node's own name.
        discoverable: Tell the broker's id to clients that probe for brokers.
    """

    table: ClassVar[str] = "nextgraph"
    plug_in: ClassVar[str] = "nextgraph"
    tried: ClassVar[bool] = True
    made_keys: ClassVar[Mapping[str, str]] = {KEY_FILE: "nextgraph_peer_id"}

    listen: HostPort = "127.0.0.1:1440"
    connections_max: Count = CONNECTIONS_MAX
    connections_per_address_max: Count = CONNECTIONS_PER_ADDRESS_MAX
    registration: Literal["closed", "invitation", "open"] = "invitation"
    public_name: Annotated[Name | None, Meta(examples=["broker.example.org"])] = None
    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    discoverable: bool = False

    def for_everybody(self) -> Self:
        """The table with which everybody may register."""
        return replace(self, registration="open")

    def key_files(self, config: Config) -> Mapping[str, Path]:
        """The file of the broker's key."""
        return {"nextgraph key": nextgraph_key_file(config)}


def nextgraph_key_file(config: Config) -> Path:
    """The file of the NextGraph broker's peer key."""
    return config.data_dir / KEY_FILE
