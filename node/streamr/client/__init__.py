"""A client of Streamr servers, for asyncio: publish, subscribe, resend, exchange keys."""

from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.connecting import connect
from rillnode.node.streamr.client.message import Message
from rillnode.node.streamr.client.resends import From, Last, Range, Resend
from rillnode.node.streamr.client.streams import Operation, Permission, StreamInfo
from rillnode.node.streamr.client.subscription import Subscription

__all__ = [
    "Client",
    "From",
    "Last",
    "Message",
    "Operation",
    "Permission",
    "Range",
    "Resend",
    "StreamInfo",
    "Subscription",
    "connect",
]
