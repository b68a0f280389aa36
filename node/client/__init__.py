"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient,
    BlockingConsumer,
    BlockingFollowing,
    BlockingIteration,
    BlockingJob,
    BlockingMailbox,
    BlockingProducer,
    BlockingPusher,
    BlockingService,
    BlockingStream,
    BlockingTypedStream,
    BlockingWorkQueue,
    connect_blocking,
)
from rillnode.node.client.client import (
    Client,
    ConsoleTicket,
    GroupInfo,
    GroupMember,
    SavedIndex,
    TakenBack,
    connect,
)
from rillnode.node.client.consumer import Consumer
from rillnode.node.client.following import Followed, Following
from rillnode.node.client.lookup import About
from rillnode.node.client.mailbox import Mailbox
from rillnode.node.client.messages import Answer
from rillnode.node.client.producer import NamedProducer
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.serving import Handler, Service
from rillnode.node.client.stream import PartitionInfo, Stream, StreamInfo
from rillnode.node.client.typed import TypedStream
from rillnode.node.client.work import Job, QueueInfo, QueuePartition, QueueWorker, WorkQueue

__all__ = [
    "About",
    "Answer",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingFollowing",
    "BlockingIteration",
    "BlockingJob",
    "BlockingMailbox",
    "BlockingProducer",
    "BlockingPusher",
    "BlockingService",
    "BlockingStream",
    "BlockingTypedStream",
    "BlockingWorkQueue",
    "Client",
    "ConsoleTicket",
    "Consumer",
    "Followed",
    "Following",
    "GroupInfo",
    "GroupMember",
    "Handler",
    "Job",
    "Mailbox",
    "NamedProducer",
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
    "TypedStream",
    "WorkQueue",
    "connect",
    "connect_blocking",
]
