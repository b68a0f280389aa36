"""Configuration: TOML, environment and overrides into checked structs.

What is had from here is imported on first use: tables of plug-ins stand on modules of this folder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rillnode.node.config.address import (
        ListenAddress as ListenAddress,
        parse_address as parse_address,
    )
    from rillnode.node.config.listener_tables import (
        Listener as Listener,
        WebListener as WebListener,
    )
    from rillnode.node.config.loading import (
        Loaded as Loaded,
        check_config as check_config,
        load as load,
        load_config as load_config,
        parse_config as parse_config,
    )
    from rillnode.node.config.location import Location as Location
    from rillnode.node.config.peer_tables import (
        DiallingTable as DiallingTable,
        PeerTable as PeerTable,
    )
    from rillnode.node.config.plug_in_table import PlugInTable as PlugInTable
    from rillnode.node.config.store_tables import StoreTable as StoreTable
    from rillnode.node.config.stream_tables import (
        QuotaTable as QuotaTable,
        StreamTable as StreamTable,
    )
    from rillnode.node.config.tables import (
        Config as Config,
        GrantTable as GrantTable,
        HttpListener as HttpListener,
        IdentityTable as IdentityTable,
        LogTable as LogTable,
        MetricsTable as MetricsTable,
        NoiseListener as NoiseListener,
        for_process as for_process,
    )


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
    "rillnode.node.config.store_tables": ("StoreTable",),
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


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
