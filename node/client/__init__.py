"""Clients of a node: over a Noise link, in the node's own process, or blocking."""

from rillnode.node.client.blocking import (
    BlockingClient as BlockingClient,
    BlockingConsumer as BlockingConsumer,
    BlockingFollowing as BlockingFollowing,
    BlockingIteration as BlockingIteration,
    BlockingJob as BlockingJob,
    BlockingMailbox as BlockingMailbox,
    BlockingProducer as BlockingProducer,
    BlockingPusher as BlockingPusher,
    BlockingService as BlockingService,
    BlockingStream as BlockingStream,
    BlockingTypedStream as BlockingTypedStream,
    BlockingWorkQueue as BlockingWorkQueue,
    connect_blocking as connect_blocking,
)
from rillnode.node.client.client import (
    Client as Client,
    ConsoleTicket as ConsoleTicket,
    GroupInfo as GroupInfo,
    GroupMember as GroupMember,
    SavedIndex as SavedIndex,
    TakenBack as TakenBack,
    connect as connect,
)
from rillnode.node.client.consumer import Consumer as Consumer
from rillnode.node.client.following import Followed as Followed, Following as Following
from rillnode.node.client.lookup import About as About
from rillnode.node.client.mailbox import Mailbox as Mailbox
from rillnode.node.client.messages import Answer as Answer
from rillnode.node.client.producer import NamedProducer as NamedProducer
from rillnode.node.client.pusher import Pusher as Pusher
from rillnode.node.client.serving import Handler as Handler, Service as Service
from rillnode.node.client.stream import (
    PartitionInfo as PartitionInfo,
    Stream as Stream,
    StreamInfo as StreamInfo,
)
from rillnode.node.client.typed import TypedStream as TypedStream
from rillnode.node.client.work import (
    Job as Job,
    QueueInfo as QueueInfo,
    QueuePartition as QueuePartition,
    QueueWorker as QueueWorker,
    WorkQueue as WorkQueue,
)
