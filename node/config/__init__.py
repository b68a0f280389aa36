"""Configuration: TOML, environment and overrides into checked structs.

What is had from here is imported on first use: tables of plug-ins stand on modules of this folder.
"""

from typing import TYPE_CHECKING, Final

from rillnode.exports import exported

if TYPE_CHECKING:
    from rillnode.node.config.address import ListenAddress, parse_address
    from rillnode.node.config.listener_tables import Listener, WebListener
    from rillnode.node.config.loading import (
        Loaded,
        check_config,
        load,
        load_config,
        parse_config,
    )
    from rillnode.node.config.location import Location
    from rillnode.node.config.peer_tables import DiallingTable, PeerTable
    from rillnode.node.config.plug_in_table import PlugInTable
    from rillnode.node.config.store_tables import SharedStore, StoreTable
    from rillnode.node.config.stream_tables import QuotaTable, StreamTable
    from rillnode.node.config.tables import (
        Config,
        GrantTable,
        HttpListener,
        IdentityTable,
        LogTable,
        MetricsTable,
        NoiseListener,
        for_process,
    )

__all__ = [
    "Config",
    "DiallingTable",
    "GrantTable",
    "HttpListener",
    "IdentityTable",
    "ListenAddress",
    "Listener",
    "Loaded",
    "Location",
    "LogTable",
    "MetricsTable",
    "NoiseListener",
    "PeerTable",
    "PlugInTable",
    "QuotaTable",
    "SharedStore",
    "StoreTable",
    "StreamTable",
    "WebListener",
    "check_config",
    "for_process",
    "load",
    "load_config",
    "parse_address",
    "parse_config",
]

_HOMES: Final = {
    "rillnode.node.config.address": (
        "ListenAddress",
        "parse_address",
    ),
    "rillnode.node.config.listener_tables": (
        "Listener",
        "WebListener",
    ),
    "rillnode.node.config.loading": (
        "Loaded",
        "check_config",
        "load",
        "load_config",
        "parse_config",
    ),
    "rillnode.node.config.location": ("Location",),
    "rillnode.node.config.peer_tables": (
        "DiallingTable",
        "PeerTable",
    ),
    "rillnode.node.config.plug_in_table": ("PlugInTable",),
    "rillnode.node.config.store_tables": (
        "SharedStore",
        "StoreTable",
    ),
    "rillnode.node.config.stream_tables": (
        "QuotaTable",
        "StreamTable",
    ),
    "rillnode.node.config.tables": (
        "Config",
        "GrantTable",
        "HttpListener",
        "IdentityTable",
        "LogTable",
        "MetricsTable",
        "NoiseListener",
        "for_process",
    ),
}


if not TYPE_CHECKING:  # else every name would pass for one of these
    __getattr__ = exported(__name__, _HOMES)
