"""A client of NextGraph brokers, for asyncio: pin, publish, subscribe, sync, blocks."""

from rillnode.node.nextgraph_client.client import Client, connect
from rillnode.node.nextgraph_client.sealing import Branch, OpenedEvent, make_commit, open_event
from rillnode.node.nextgraph_client.subscription import Subscription

__all__ = [
    "Branch",
    "Client",
    "OpenedEvent",
    "Subscription",
    "connect",
    "make_commit",
    "open_event",
]
