"""A client of NextGraph brokers, for asyncio: pin, publish, subscribe, sync, blocks, inboxes."""

from rillnode.codecs.nextgraph.sealing import Branch, OpenedEvent, make_commit, open_event
from rillnode.node.nextgraph.client.client import Client, Published
from rillnode.node.nextgraph.client.connecting import connect, fetch_objects, fetch_wallet
from rillnode.node.nextgraph.client.inboxes import Inbox, Inboxes
from rillnode.node.nextgraph.client.objects import Objects
from rillnode.node.nextgraph.client.subscription import Subscription

__all__ = [
    "Branch",
    "Client",
    "Inbox",
    "Inboxes",
    "Objects",
    "OpenedEvent",
    "Published",
    "Subscription",
    "connect",
    "fetch_objects",
    "fetch_wallet",
    "make_commit",
    "open_event",
]
