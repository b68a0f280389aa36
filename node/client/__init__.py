"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import BlockingClient, connect_blocking
from rillnode.node.client.client import Client, SavedIndex, connect
from rillnode.node.client.sink import sink_client
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo

__all__ = [
    "BlockingClient",
    "Client",
    "PartitionInfo",
    "SavedIndex",
    "Stream",
    "StreamInfo",
    "connect",
    "connect_blocking",
    "sink_client",
]
