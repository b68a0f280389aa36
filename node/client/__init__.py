"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient,
    BlockingIteration,
    BlockingMailbox,
    BlockingService,
    BlockingStream,
    connect_blocking,
)
from rillnode.node.client.client import Client, SavedIndex, connect
from rillnode.node.client.mailbox import Mailbox
from rillnode.node.client.messages import Answer
from rillnode.node.client.serving import Handler, Service
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.client.hub_stream import HubEntry, HubStream
from rillnode.node.spark.client.sink import sink_client

__all__ = [
    "Answer",
    "BlockingClient",
    "BlockingIteration",
    "BlockingMailbox",
    "BlockingService",
    "BlockingStream",
    "Client",
    "Handler",
    "Hub",
    "HubEntry",
    "HubStream",
    "Mailbox",
    "PartitionInfo",
    "SavedIndex",
    "SecureChannel",
    "Service",
    "Stream",
    "StreamInfo",
    "connect",
    "connect_blocking",
    "sink_client",
]
