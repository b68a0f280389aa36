"""Configuration: TOML, environment and overrides into checked structs."""

from rillnode.node.config.address import ListenAddress, parse_address
from rillnode.node.config.listener_tables import Listener, WebListener
from rillnode.node.config.load import (
    Loaded,
    check_config,
    load,
    load_config,
    parse_config,
)
from rillnode.node.config.location import Location
from rillnode.node.config.peer_tables import DiallingTable, PeerTable
from rillnode.node.config.store_tables import StoreTable
from rillnode.node.config.stream_tables import QuotaTable, StreamTable
from rillnode.node.config.tables import (
    ChannelTable,
    Config,
    GrantTable,
    HttpListener,
    IdentityTable,
    LogTable,
    MetricsTable,
    NextgraphListener,
    NoiseListener,
    OckamListener,
    StreamrListener,
    for_process,
)
from rillnode.node.ockam.config import ServicesTable
from rillnode.node.spark.config import FilesSink, SinkTables, SparkSink
from rillnode.node.streamr.config import ApiKeyTable
from rillnode.node.telemetry.config import TelemetryTable

__all__ = [
    "ApiKeyTable",
    "ChannelTable",
    "Config",
    "DiallingTable",
    "FilesSink",
    "GrantTable",
    "HttpListener",
    "IdentityTable",
    "ListenAddress",
    "Listener",
    "Loaded",
    "Location",
    "LogTable",
    "MetricsTable",
    "NextgraphListener",
    "NoiseListener",
    "OckamListener",
    "PeerTable",
    "QuotaTable",
    "ServicesTable",
    "SinkTables",
    "SparkSink",
    "StoreTable",
    "StreamTable",
    "StreamrListener",
    "TelemetryTable",
    "WebListener",
    "check_config",
    "for_process",
    "load",
    "load_config",
    "parse_address",
    "parse_config",
]
