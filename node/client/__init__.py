"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient,
    BlockingIteration,
    BlockingStream,
    connect_blocking,
)
from rillnode.node.client.client import Client, SavedIndex, connect
from rillnode.node.client.messages import Answer
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo

__all__ = [
    "Answer",
    "BlockingClient",
    "BlockingIteration",
    "BlockingStream",
    "Client",
    "PartitionInfo",
    "SavedIndex",
    "Stream",
    "StreamInfo",
    "connect",
    "connect_blocking",
]
