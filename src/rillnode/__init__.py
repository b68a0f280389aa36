"""rillnode: an actor-model node for event streams.

What applications use can be had from here. It is imported on first use, so that a client or a
Spark task does not pay for a whole node.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rillnode.actors.apps.actor import Actor
    from rillnode.actors.apps.context import Context
    from rillnode.actors.apps.endpoint import ActorRef, Ended
    from rillnode.actors.apps.messages import ActorReply, Answer, Message
    from rillnode.codecs.channel_key import ChannelKey
    from rillnode.codecs.dead_letters import DeadLetter
    from rillnode.codecs.entries import Entry, EntryKind
    from rillnode.codecs.errors import (
        ActorError,
        AddressError,
        AddressUnknown,
        ConfigError,
        ConsumerError,
        ConsumerStopped,
        EntryError,
        EntryTooLarge,
        HandshakeError,
        JobLate,
        NodeFailed,
        PartitionUnknown,
        PeerError,
        QueueError,
        QueueStopped,
        QuotaError,
        RequestError,
        RillnodeError,
        StreamError,
        StreamRemoved,
        StreamUnknown,
        TransportError,
    )
    from rillnode.codecs.keys import Identity
    from rillnode.node.client import (
        About,
        BlockingClient,
        BlockingConsumer,
        BlockingIteration,
        BlockingJob,
        BlockingMailbox,
        BlockingPusher,
        BlockingService,
        BlockingStream,
        BlockingWorkQueue,
        Client,
        Consumer,
        Job,
        Mailbox,
        PartitionInfo,
        Pusher,
        QueueInfo,
        QueuePartition,
        QueueWorker,
        SavedIndex,
        Service,
        Stream,
        StreamInfo,
        TakenBack,
        WorkQueue,
        connect,
        connect_blocking,
    )
    from rillnode.node.config import Config
    from rillnode.node.iteration import Iteration
    from rillnode.node.ockam.client.channel import SecureChannel
    from rillnode.node.ockam.client.hub import Hub
    from rillnode.node.ockam.client.hub_stream import HubEntry, HubStream
    from rillnode.node.ockam.client.serving import HubService, PlainService
    from rillnode.node.runtime import Node

__version__ = "0.1.0"

__all__ = [
    "About",
    "Actor",
    "ActorError",
    "ActorRef",
    "ActorReply",
    "AddressError",
    "AddressUnknown",
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
    "ChannelKey",
    "Client",
    "Config",
    "ConfigError",
    "Consumer",
    "ConsumerError",
    "ConsumerStopped",
    "Context",
    "DeadLetter",
    "Ended",
    "Entry",
    "EntryError",
    "EntryKind",
    "EntryTooLarge",
    "HandshakeError",
    "Hub",
    "HubEntry",
    "HubService",
    "HubStream",
    "Identity",
    "Iteration",
    "Job",
    "JobLate",
    "Mailbox",
    "Message",
    "Node",
    "NodeFailed",
    "PartitionInfo",
    "PartitionUnknown",
    "PeerError",
    "PlainService",
    "Pusher",
    "QueueError",
    "QueueInfo",
    "QueuePartition",
    "QueueStopped",
    "QueueWorker",
    "QuotaError",
    "RequestError",
    "RillnodeError",
    "SavedIndex",
    "SecureChannel",
    "Service",
    "Stream",
    "StreamError",
    "StreamInfo",
    "StreamRemoved",
    "StreamUnknown",
    "TakenBack",
    "TransportError",
    "WorkQueue",
    "connect",
    "connect_blocking",
]

_HOMES: Final = {
    "rillnode.actors.apps.actor": ("Actor",),
    "rillnode.actors.apps.context": ("Context",),
    "rillnode.actors.apps.endpoint": ("ActorRef", "Ended"),
    "rillnode.actors.apps.messages": ("ActorReply", "Answer", "Message"),
    "rillnode.codecs.entries": ("Entry", "EntryKind"),
    "rillnode.codecs.errors": (
        "ActorError",
        "AddressError",
        "AddressUnknown",
        "ConfigError",
        "ConsumerError",
        "ConsumerStopped",
        "EntryError",
        "EntryTooLarge",
        "HandshakeError",
        "JobLate",
        "NodeFailed",
        "PartitionUnknown",
        "PeerError",
        "QueueError",
        "QueueStopped",
        "QuotaError",
        "RequestError",
        "RillnodeError",
        "StreamError",
        "StreamRemoved",
        "StreamUnknown",
        "TransportError",
    ),
    "rillnode.codecs.keys": ("Identity",),
    "rillnode.codecs.channel_key": ("ChannelKey",),
    "rillnode.codecs.dead_letters": ("DeadLetter",),
    "rillnode.node.client": (
        "About",
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
    ),
    "rillnode.node.config": ("Config",),
    "rillnode.node.iteration": ("Iteration",),
    "rillnode.node.ockam.client.channel": ("SecureChannel",),
    "rillnode.node.ockam.client.hub": ("Hub",),
    "rillnode.node.ockam.client.hub_stream": ("HubEntry", "HubStream"),
    "rillnode.node.ockam.client.serving": ("HubService", "PlainService"),
    "rillnode.node.runtime": ("Node",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
