"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient,
    BlockingConsumer,
    BlockingIteration,
    BlockingMailbox,
    BlockingPusher,
    BlockingService,
    BlockingStream,
    connect_blocking,
)
from rillnode.node.client.client import Client, SavedIndex, connect
from rillnode.node.client.consumer import Consumer
from rillnode.node.client.lookup import About
from rillnode.node.client.mailbox import Mailbox
from rillnode.node.client.messages import Answer
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.serving import Handler, Service
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo
from rillnode.node.client.typed import BlockingTypedStream, TypedStream

__all__ = [
    "About",
    "Answer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingIteration",
    "BlockingMailbox",
    "BlockingPusher",
    "BlockingService",
    "BlockingStream",
    "BlockingTypedStream",
    "Client",
    "Consumer",
    "Handler",
    "Mailbox",
    "PartitionInfo",
    "Pusher",
    "SavedIndex",
    "Service",
    "Stream",
    "StreamInfo",
    "TypedStream",
    "connect",
    "connect_blocking",
]
