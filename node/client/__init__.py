"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient,
    BlockingConsumer,
    BlockingIteration,
    BlockingJob,
    BlockingMailbox,
    BlockingPusher,
    BlockingService,
    BlockingStream,
    BlockingWorkQueue,
    connect_blocking,
)
from rillnode.node.client.client import Client, SavedIndex, TakenBack, connect
from rillnode.node.client.consumer import Consumer
from rillnode.node.client.lookup import About
from rillnode.node.client.mailbox import Mailbox
from rillnode.node.client.messages import Answer
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.serving import Handler, Service
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo
from rillnode.node.client.work import Job, QueueInfo, QueuePartition, QueueWorker, WorkQueue

__all__ = [
    "About",
    "Answer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingIteration",
    "BlockingJob",
    "BlockingMailbox",
    "BlockingPusher",
    "BlockingService",
    "BlockingStream",
    "BlockingWorkQueue",
    "Client",
    "Consumer",
    "Handler",
    "Job",
    "Mailbox",
    "PartitionInfo",
    "Pusher",
    "QueueInfo",
    "QueuePartition",
    "QueueWorker",
    "SavedIndex",
    "Service",
    "Stream",
    "StreamInfo",
    "TakenBack",
    "WorkQueue",
    "connect",
    "connect_blocking",
]
